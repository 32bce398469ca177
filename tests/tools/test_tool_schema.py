"""The schema that a model is shown, and the validation of what it sends, both from the signature."""

import enum
import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pydantic
import pytest
import trio

from teams.tools import Tool, ToolContext, ToolDispatcher, tool
from teams.tools.schema import InvalidArguments, describe_arguments, read_docstring


class Colour(enum.Enum):
    """A value from a fixed set."""

    RED = "red"
    BLUE = "blue"


class Point(pydantic.BaseModel):
    """A nested object."""

    x: int
    y: int = 0


class Greeter:
    """An object that can be called."""

    async def __call__(self, who: str) -> str:
        """Greet somebody.

        Args:
            who: the one to greet
        """
        return f"hello {who}"


@tool(effect="reads")
async def paint(
    colour: Colour,
    points: list[Point],
    context: ToolContext,
    how: Literal["thin", "thick"] = "thin",
    width: Annotated[int, pydantic.Field(ge=1)] = 1,
    schema: str | None = None,
) -> str:
    """Paint the points
    in one colour.

    Not shown to the model.

    Args:
        colour: what to paint
            them with
        width (int): of the brush

    Returns:
        nothing: really
    """
    await trio.lowlevel.checkpoint()
    return f"{colour} {points} {how} {width} {schema} {context}"


def test_schema_is_the_signature() -> None:
    """Types, defaults, enums, nested models and descriptions of the parameters come out as a closed JSON schema."""
    definition = paint.definition()
    schema = definition["input_schema"]
    assert definition["name"] == "paint"
    assert definition["description"] == "Paint the points in one colour."
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["colour", "points"]
    assert list(schema["properties"]) == ["colour", "points", "how", "width", "schema"]
    assert schema["properties"]["colour"] == {"$ref": "#/$defs/Colour", "description": "what to paint them with"}
    assert schema["properties"]["how"] == {"enum": ["thin", "thick"], "type": "string", "default": "thin"}
    assert schema["properties"]["width"] == {"minimum": 1, "type": "integer", "description": "of the brush", "default": 1}
    assert schema["properties"]["schema"]["default"] is None
    assert schema["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert schema["$defs"]["Point"]["required"] == ["x"]


def test_valid_input_becomes_python_values() -> None:
    """The handler gets enums, models and numbers, and what was left out keeps the handler's own default."""
    arguments = paint.signature.validate({"colour": "blue", "points": [{"x": "3"}]})
    assert arguments == {"colour": Colour.BLUE, "points": [Point(x=3)]}


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({}, "colour: required, but missing"),
        ({"colour": "green", "points": []}, "colour: input should be 'red' or 'blue', got 'green'"),
        ({"colour": "red", "points": [{"x": "left"}]}, "points.0.x: input should be a valid integer"),
        ({"colour": "red", "points": [], "width": 0}, "width: input should be greater than or equal to 1, got 0"),
        ({"colour": "red", "points": [], "how": 5}, "how: input should be 'thin' or 'thick', got 5"),
        ({"colour": "red", "points": [], "brush": 1}, "brush: the tool has no such argument"),
        ({"colour": "red", "points": [], "context": {}}, "context: the tool has no such argument"),
        ({"colour": "red", "points": "x" * 10_000}, "..."),
        (["red"], "the input must be an object, got ['red']"),
        (None, "the input must be an object, got None"),
        ("{}", "the input must be an object, got '{}'"),
    ],
)
def test_wrong_input_is_explained(sent: Any, said: str) -> None:
    """The text names the field, what is wrong with it and what the tool expects, and stays short."""
    with pytest.raises(InvalidArguments) as caught:
        paint.signature.validate(sent)
    text = str(caught.value)
    assert text.startswith("wrong arguments for paint; the tool was not run:")
    assert said in text
    assert "expected: colour (Colour, required), points (array of Point, required), how ('thin' | 'thick')" in text
    assert len(text) < 1000


def _unannotated(path: str) -> str:
    return path


del _unannotated.__annotations__["path"]  # as if nobody had written it


def _any_keyword(**options: str) -> str:
    return str(options)


def _any_positional(*paths: str) -> str:
    return str(paths)


def _positional_only(path: str, /) -> str:
    return path


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (_unannotated, "'path' has no annotation"),
        (_any_keyword, "'options' collects any keyword"),
        (_any_positional, "'paths' collects positional arguments"),
        (_positional_only, "'path' is positional-only"),
        (42, "42 is not callable"),
    ],
)
def test_undescribable_signature_is_refused(handler: Any, why: str) -> None:
    """A signature of which no schema can be made is refused when the tool is registered, with the parameter's name."""
    dispatcher = ToolDispatcher()
    with pytest.raises(TypeError, match="tool 'broken'") as caught:
        dispatcher.register("broken", handler)
    assert why in str(caught.value)
    assert dispatcher.names == ()


def test_annotation_without_json_form_is_refused_when_frozen() -> None:
    """A type that pydantic cannot describe is a TypeError that names the tool, before any model call."""

    def broken(what: Callable[[], None] | ToolDispatcher) -> str:
        return str(what)

    dispatcher = ToolDispatcher([broken])
    with pytest.raises(TypeError, match="tool 'broken': an annotation of"):
        dispatcher.freeze()


def test_annotation_that_cannot_be_resolved_is_refused() -> None:
    """A forward reference to nothing is a TypeError at registration."""

    def broken(what: str) -> str:
        return what

    broken.__annotations__["what"] = "Nowhere"
    with pytest.raises(TypeError, match="an annotation cannot be resolved: name 'Nowhere'"):
        ToolDispatcher([broken])


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a/b", "a\n"])
def test_name_that_the_provider_refuses_is_refused(name: str) -> None:
    """A tool's name has 1 to 64 letters, digits, underscores and hyphens."""
    with pytest.raises(ValueError, match="cannot be a tool's name"):
        Tool(name, Greeter())


def test_effect_must_be_known() -> None:
    """A misspelt effect does not become a tool that escapes the gate."""
    with pytest.raises(ValueError, match="legal: 'reads', 'writes'"):
        Tool("x", Greeter(), effect="read")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def test_callable_objects_and_partials_are_handlers() -> None:
    """An object with an async call and a partial are described by what they call."""

    def add(left: int, right: int) -> int:
        """Add two numbers."""
        return left + right

    dispatcher = ToolDispatcher()
    greeter = dispatcher.register("greet", Greeter())
    dispatcher.register("add_two", functools.partial(add, right=2))
    assert greeter.description == "Greet somebody."
    assert greeter.input_schema["properties"]["who"]["description"] == "the one to greet"
    assert await dispatcher.dispatch("greet", who="ann") == "hello ann"
    assert await dispatcher.dispatch("add_two", left=1) == "3"


async def test_given_schema_is_shown_and_its_names_are_checked() -> None:
    """A schema that the author wrote is advertised as it is, admits a handler of any keyword, and its plain rules hold."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": ["string", "null"]}, "c": {}},
        "required": ["a"],
        "additionalProperties": False,
    }

    async def anything(**options: object) -> str:
        await trio.lowlevel.checkpoint()
        return repr(sorted(options.items()))

    dispatcher = ToolDispatcher()
    dispatcher.register("anything", anything, "Whatever.", schema)
    assert await dispatcher.dispatch("anything", a=1, b=None, c=[]) == "[('a', 1), ('b', None), ('c', [])]"
    assert "a: required, but missing" in await dispatcher.dispatch("anything")
    assert "a: must be integer, got True" in await dispatcher.dispatch("anything", a=True)
    assert "b: must be string or null, got 5" in await dispatcher.dispatch("anything", a=1, b=5)
    assert "d: the tool has no such argument" in await dispatcher.dispatch("anything", a=1, d=5)
    assert dispatcher.get_tool_definitions() == [{"name": "anything", "description": "Whatever.", "input_schema": schema}]


def test_docstring_is_split() -> None:
    """The first paragraph is the summary, and parameters are read under Args alone."""
    summary, described = read_docstring("Do it\nwell.\n\nArgs:\n    a: one\n        more: of it\n    b (int): two\n\nRaises:\n    c: no\n")
    assert summary == "Do it well."
    assert described == {"a": "one more: of it", "b": "two"}


def test_decorated_function_can_still_be_called() -> None:
    """A tool made by the decorator calls its function, so that its author can test it."""

    @tool(effect="reads", name="twice", description="Double.")
    def double(value: int) -> int:
        return 2 * value

    assert double(21) == 42
    assert (double.name, double.description, double.effect) == ("twice", "Double.", "reads")
    assert describe_arguments(double.input_schema) == "value (integer, required)"
