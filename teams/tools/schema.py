"""The input of a tool: its JSON schema and its validation, both made from the handler's signature.

- What the model is shown and what is enforced come from the same annotations, so they cannot disagree.
- A signature that cannot be described is refused when the tool is made, never in the middle of a run.
- Wrong arguments are text for the model (`InvalidArguments`), not a fault of the program.
"""

import contextlib
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")  # the provider's rule for tool names
_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Checkpoints|Owner|Source|Examples?|Notes?):\s*\Z")
_ARGUMENT = re.compile(r"(\w+)\s*(?:\([^)]*\))?:\s*(.*)\Z")
_REFUSED: Mapping[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "collects positional arguments (*)",
    inspect.Parameter.VAR_KEYWORD: "collects any keyword (**)",
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only",
}
_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "array": (list, tuple), "object": (dict,), "null": (type(None),),
}  # fmt: skip
_SHOWN_CHARS = 80  # of a wrong value: enough to recognise it, not enough to flood the context
_SHOWN_ERRORS = 8

Validator = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class InvalidArguments(Exception):
    """The input of a call does not fit the tool; the text tells the model which field, what is wrong, and what is expected."""


def check_tool_name(name: str) -> None:
    """Refuse a name that the provider would refuse.

    Raises:
        ValueError: not 1 to 64 letters, digits, `_` and `-`.
    """
    if not _TOOL_NAME.match(name):
        raise ValueError(f"{name!r} cannot be a tool's name; legal: letters, digits, '_' and '-', 1 to 64 of them")


class HandlerSignature:
    """One handler's parameters and documentation, and (on first use) its schema and validator.

    Args:
        context_type: a parameter annotated with it receives the call's context and is no part of the schema.
        input_schema: advertised instead of a derived one. The handler may then take `**kwargs` and unannotated parameters,
            and of its top-level properties the names and plain types are checked.
    """

    __slots__ = ("_built", "_context_type", "_given", "_hints", "_target", "name", "parameters", "summary", "wants_context")

    def __init__(self, name: str, handler: Callable[..., Any], *, context_type: type, input_schema: Mapping[str, Any] | None) -> None:
        if not callable(handler):
            raise TypeError(f"tool {name!r}: {handler!r} is not callable")
        self.name, self._context_type, self._given = name, context_type, input_schema
        self._target = _documented(handler)
        self._built: tuple[Mapping[str, Any], Validator] | None = None
        self._hints: dict[str, Any] | None = None
        self.wants_context: str | None = None
        try:
            signature = inspect.signature(handler)
        except ValueError as error:
            raise TypeError(f"tool {name!r}: the signature of {handler!r} cannot be read; wrap it in a function") from error
        self.parameters = dict(signature.parameters)
        if input_schema is None:
            self._refuse_undescribable()
        self.summary = read_docstring(inspect.getdoc(self._target) or "")[0]

    def _refuse_undescribable(self) -> None:
        for parameter in self.parameters.values():
            why = _REFUSED.get(parameter.kind)
            if why is None and parameter.annotation is inspect.Parameter.empty:
                why = "has no annotation"
            if why is not None:
                raise TypeError(
                    f"tool {self.name!r}: parameter {parameter.name!r} {why}, so no schema can be made of it; "
                    "annotate named parameters, or give an input_schema"
                )

    def resolve(self) -> dict[str, Any]:
        """Evaluate the annotations; without the context's parameter, which is noted in `wants_context`.

        Raises:
            TypeError: an annotation names something that cannot be found.
        """
        if self._hints is None:
            try:
                hints = typing.get_type_hints(self._target, include_extras=True)
            except NameError as error:
                raise TypeError(f"tool {self.name!r}: an annotation cannot be resolved: {error}") from error
            self.wants_context = next((name for name in self.parameters if hints.get(name) is self._context_type), None)
            self._hints = {name: hints[name] for name in self.parameters if name in hints and name != self.wants_context}
        return self._hints

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The JSON schema of the input: an object without additional properties."""
        return self.build()[0]

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check and convert the input of a call to the handler's keyword arguments; what is left out keeps the handler's default.

        Raises:
            InvalidArguments: with the text for the model.
        """
        return dict((self._built or self.build())[1](arguments))

    def build(self) -> tuple[Mapping[str, Any], Validator]:
        """Make schema and validator, once.

        Raises:
            TypeError: pydantic cannot describe an annotation in JSON.
        """
        if self._built is None:
            hints = self.resolve()
            if self._given is None:
                self._built = _build(self.name, hints, self.parameters, read_docstring(inspect.getdoc(self._target) or "")[1])
            else:
                self._built = (self._given, functools.partial(_check_shallow, self.name, self._given))
        return self._built


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its first paragraph, on one line, and the parameters described under `Args:`."""
    lines = text.splitlines()
    summary = " ".join(line.strip() for line in _first_paragraph(lines))
    described: dict[str, str] = {}
    inside, indent, current = False, -1, ""
    for line in lines:
        bare = line.strip()
        if section := _SECTION.match(bare):
            inside, indent = section[1] in {"Args", "Arguments", "Parameters"}, -1
        elif inside and bare:
            depth = len(line) - len(line.lstrip())
            indent = depth if indent < 0 else indent
            found = _ARGUMENT.match(bare)
            if depth <= indent and found:
                current = found[1]
                described[current] = found[2]
            elif current:
                described[current] = f"{described[current]} {bare}".strip()
    return summary, described


def _first_paragraph(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if not line.strip() or _SECTION.match(line.strip()):
            return
        yield line


def _documented(handler: Callable[..., Any]) -> Any:
    """Find what carries the docstring and the annotations: a partial's function, an object's `__call__`."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if inspect.isroutine(handler) or inspect.isclass(handler):
        return handler
    return type(handler).__call__


def is_async(handler: Callable[..., Any]) -> bool:
    """Tell whether calling the handler makes a coroutine: async functions, partials of them, objects with an async `__call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(_documented(handler))


def _build(
    name: str, hints: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter], described: Mapping[str, str]
) -> tuple[Mapping[str, Any], Validator]:
    # pydantic costs 0.1 s at import, which `import teams` does not have; the first definition or call pays it.
    import pydantic
    import pydantic_core
    import typing_extensions

    # A TypedDict and not a model: any parameter name is possible, the result is the keyword arguments, and what the call leaves out
    # keeps the handler's own default, also one that has no JSON form.
    make: Any = typing_extensions.TypedDict
    required = {key for key in hints if parameters[key].default is inspect.Parameter.empty}
    fields = {key: hint if key in required else typing_extensions.NotRequired[hint] for key, hint in hints.items()}
    shape = make("Arguments", fields)
    shape.__pydantic_config__ = pydantic.ConfigDict(extra="forbid")
    try:
        adapter: pydantic.TypeAdapter[Mapping[str, Any]] = pydantic.TypeAdapter(shape)
        made = adapter.json_schema()
    except pydantic.errors.PydanticUserError as error:
        reason = str(error).splitlines()[0]
        raise TypeError(f"tool {name!r}: an annotation of {sorted(hints)} has no JSON form: {reason}") from error
    schema: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    for key in hints:
        entry = {word: value for word, value in made["properties"][key].items() if word != "title"}
        if key in described:
            entry.setdefault("description", described[key])
        if key not in required:
            with contextlib.suppress(
                pydantic_core.PydanticSerializationError
            ):  # a default without a JSON form is the handler's own business
                entry["default"] = pydantic_core.to_jsonable_python(parameters[key].default)
        schema["properties"][key] = entry
    schema |= {word: made[word] for word in ("required", "$defs") if word in made}
    validate = adapter.validator.validate_python

    def check(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return cast("Mapping[str, Any]", validate(arguments))
        except pydantic.ValidationError as error:
            raise InvalidArguments(_explain(name, schema, error.errors(include_url=False, include_context=False))) from error

    return schema, check


def _explain(name: str, schema: Mapping[str, Any], errors: Iterable[Mapping[str, Any]]) -> str:
    lines: list[str] = []
    for error in errors:
        where = ".".join(str(part) for part in error["loc"])
        if error["type"] == "missing":
            lines.append(f"- {where}: required, but missing")
        elif error["type"] == "extra_forbidden":
            lines.append(f"- {where}: the tool has no such argument")
        elif not where:
            lines.append(f"- the input must be an object, got {_shown(error['input'])}")
        else:
            lines.append(f"- {where}: {error['msg'][:1].lower()}{error['msg'][1:]}, got {_shown(error['input'])}")
    if len(lines) > _SHOWN_ERRORS:
        lines[_SHOWN_ERRORS:] = [f"- and {len(lines) - _SHOWN_ERRORS} more"]
    return "\n".join([f"wrong arguments for {name}; the tool was not run:", *lines, f"expected: {describe_arguments(schema)}"])


def _shown(value: object) -> str:
    text = repr(value[: _SHOWN_CHARS + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def describe_arguments(schema: Mapping[str, Any]) -> str:
    """Name the arguments that a schema takes, with their types, on one line."""
    required = schema.get("required", ())
    named = [f"{key} ({_type_name(entry)}{', required' if key in required else ''})" for key, entry in schema.get("properties", {}).items()]
    return ", ".join(named) or "no arguments"


def _type_name(entry: Mapping[str, Any]) -> str:
    if "enum" in entry:
        return " | ".join(repr(value) for value in entry["enum"])
    if "const" in entry:
        return repr(entry["const"])
    if "anyOf" in entry:
        return " | ".join(_type_name(option) for option in entry["anyOf"])
    if "$ref" in entry:
        return str(entry["$ref"]).rpartition("/")[2]
    kind = entry.get("type", "any")
    if kind == "array" and "items" in entry:
        return f"array of {_type_name(entry['items'])}"
    return " | ".join(cast("list[str]", kind)) if isinstance(kind, list) else str(kind)


def _check_shallow(name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check names and plain types by a schema that was given; deeper rules are the handler's, who chose to write the schema."""
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # a model wrote it
        raise InvalidArguments(f"wrong arguments for {name}; the input must be an object, got {_shown(arguments)}")
    properties: Mapping[str, Any] = schema.get("properties", {})
    lines = [f"- {key}: required, but missing" for key in schema.get("required", ()) if key not in arguments]
    for key, value in arguments.items():
        if key not in properties:
            if schema.get("additionalProperties", True) is False:
                lines.append(f"- {key}: the tool has no such argument")
            continue
        kinds: Any = properties[key].get("type", ())
        allowed = [kinds] if isinstance(kinds, str) else list(kinds)
        if allowed and not any(_is_json_type(value, kind) for kind in allowed):
            lines.append(f"- {key}: must be {' or '.join(allowed)}, got {_shown(value)}")
    if lines:
        raise InvalidArguments(
            "\n".join([f"wrong arguments for {name}; the tool was not run:", *lines, f"expected: {describe_arguments(schema)}"])
        )
    return arguments


def _is_json_type(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"  # Python's bool is an int, JSON's is not
    return isinstance(value, _JSON_TYPES.get(kind, (object,)))
