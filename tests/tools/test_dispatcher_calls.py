"""A call comes to exactly one result, whatever the model asked for and whatever the handler does."""

import dataclasses
import datetime as dt
import enum
import pathlib
import threading
from typing import Any

import pydantic
import pytest
import trio

from teams.errors import RegistryFrozen
from teams.tools import ToolCall, ToolContext, ToolDispatcher, ToolError, ToolLimits, ToolResult, tool


@tool(effect="reads")
async def echo(text: str) -> str:
    """Say it again."""
    await trio.lowlevel.checkpoint()
    return text


def _returning(value: object, **options: Any) -> ToolDispatcher:
    async def give() -> object:
        await trio.lowlevel.checkpoint()
        return value

    return ToolDispatcher([give], **options)


def _raising(error: BaseException, **options: Any) -> ToolDispatcher:
    async def fail() -> str:
        await trio.lowlevel.checkpoint()
        raise error

    return ToolDispatcher([fail], **options)


def _call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall("call_1", name, arguments)


@pytest.mark.parametrize("name", ["Echo", "ecko", "echo ", "functions.echo"])
async def test_unknown_tool_lists_near_names_and_all(name: str) -> None:
    """A name that is not exactly a tool's is answered with the names that are."""
    text = await ToolDispatcher([echo]).dispatch(name, text="hi")
    assert text == f"there is no tool named {name!r}; did you mean echo? Available tools: echo"


@pytest.mark.parametrize("name", [None, 5, ["echo"], {}, "\ud800", "x" * 100_000])
async def test_name_of_any_kind_is_answered(name: Any) -> None:
    """A name that is no text, cannot be sent back or is endless comes to a short error result."""
    result = await ToolDispatcher([echo]).call(ToolCall("1", name, {}), ToolContext())
    assert result.is_error
    assert result.text.startswith("there is no tool named")
    assert len(result.text.encode()) < 300


async def test_wrong_arguments_are_an_error_result() -> None:
    """Arguments that do not fit are explained to the model and the handler is not run."""
    result = await ToolDispatcher([echo]).call(_call("echo", txt="hi"), ToolContext())
    assert result.is_error
    assert "text: required, but missing" in result.text
    assert "txt: the tool has no such argument" in result.text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such day"), "ValueError: no such day"),
        (KeyError(), "KeyError"),
        (ToolError("the door is closed"), "the door is closed"),
        (SystemExit(3), "SystemExit: 3"),
        (ExceptionGroup("two", [ValueError("a"), ExceptionGroup("in", [OSError("b")])]), "ValueError: a; OSError: b"),
        (RuntimeError("x" * 1_000_000), "characters left out"),
        (RuntimeError("\ud800"), "RuntimeError: ?"),
    ],
)
async def test_exception_becomes_an_error_result(error: BaseException, said: str) -> None:
    """What a handler raises is text for the model, is told to the owner with its cause, and ends nothing."""
    told: list[tuple[ToolCall, BaseException]] = []

    def tell(call: ToolCall, error: BaseException) -> None:
        told.append((call, error))

    call = _call("fail")
    result = await _raising(error, on_error=tell).call(call, ToolContext())
    assert result.is_error
    assert said in result.text
    assert len(result.text) <= 4_000
    assert told == [(call, error)]


async def test_exception_without_a_text_becomes_an_error_result() -> None:
    """An exception whose own text cannot be made is still reported."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert await _raising(Mute()).dispatch("fail") == "Mute: (its text could not be made)"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), trio.Cancelled])
async def test_interrupts_pass_through(error: Any) -> None:
    """What ends the program or the task is never turned into a result."""
    if error is trio.Cancelled:
        dispatcher = ToolDispatcher()

        async def wait() -> None:
            scope.cancel()
            await trio.sleep_forever()

        dispatcher.register("wait", wait)
        with trio.CancelScope() as scope:
            await dispatcher.dispatch("wait")
        assert scope.cancelled_caught
    else:
        with pytest.raises(KeyboardInterrupt):
            await _raising(error).dispatch("fail")


async def test_hanging_handler_is_stopped_at_the_limit(autojump_clock: trio.testing.MockClock) -> None:
    """A handler that never ends is cancelled after exactly the limit, and the model is told so."""

    async def hang() -> None:
        await trio.sleep_forever()

    dispatcher = ToolDispatcher([hang], limits=ToolLimits(time_seconds=7))
    result = await dispatcher.call(_call("hang"), ToolContext())
    assert trio.current_time() == 7
    assert result.is_error
    assert not result.interrupted
    assert result.text == "hang was stopped: it did not finish within its limit of 7 seconds"


async def test_handler_that_bounds_itself_is_not_stopped(autojump_clock: trio.testing.MockClock) -> None:
    """A tool made with time_limited=False may take longer than the dispatcher's limit."""

    @tool(effect="reads", time_limited=False)
    async def wait() -> str:
        await trio.sleep(1_000)
        return "done"

    assert await ToolDispatcher([wait]).dispatch("wait") == "done"


async def test_hanging_plain_function_is_abandoned_at_the_limit() -> None:
    """A plain function that blocks its thread holds up nobody after the limit."""
    release = threading.Event()

    def block() -> str:
        release.wait()
        return ""

    dispatcher = ToolDispatcher([block], limits=ToolLimits(time_seconds=0.05))
    text = await dispatcher.dispatch("block")
    release.set()
    assert text == "block was stopped: it did not finish within its limit of 0.05 seconds"


async def test_plain_function_runs_outside_of_the_loop() -> None:
    """A plain handler runs in another thread, so that it may block."""

    def where() -> int:
        return threading.get_ident()

    assert await ToolDispatcher([where]).dispatch("where") != str(threading.get_ident())


class _Kind(enum.Enum):
    A = "a"


class _Model(pydantic.BaseModel):
    when: dt.date


@dataclasses.dataclass
class _Record:
    size: int
    where: pathlib.PurePosixPath


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "(no output)"),
        (" \n", "(no output)"),
        (None, "(no output)"),
        (3, "3"),
        (2.5, "2.5"),
        (False, "False"),
        (_Kind.A, "a"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (bytearray(b"x"), "x"),
        ({"a": [1, None, "é"]}, '{"a": [1, null, "é"]}'),
        ((1, 2), "[1, 2]"),
        ({3, 1}, "[1, 3]"),
        (_Model(when=dt.date(2026, 1, 2)), '{"when": "2026-01-02"}'),
        ([_Record(1, pathlib.PurePosixPath("x"))], '[{"size": 1, "where": "x"}]'),
        ("bad \udcff name", "bad ? name"),
    ],
)
async def test_returned_value_becomes_text(value: object, text: str) -> None:
    """Simple values, bytes and structures have a textual form, and it can be sent as UTF-8."""
    result = await _returning(value).call(_call("give"), ToolContext())
    assert (result.content, result.is_error) == (text, False)
    assert result.block() == {"type": "tool_result", "tool_use_id": "call_1", "content": text}


class _Odd:
    pass


@pytest.mark.parametrize(
    ("value", "named"), [(_Odd(), "_Odd"), ([object()], "object"), ({1: {2: open}}, "builtin_function_or_method"), (_Odd, "type")]
)
async def test_value_without_a_text_is_an_error_that_names_its_type(value: object, named: str) -> None:
    """A return value that is no text, also deep inside a structure, is reported with its type."""
    result = await _returning(value).call(_call("give"), ToolContext())
    assert result.is_error
    assert named in result.text


async def test_value_that_contains_itself_is_an_error() -> None:
    """A structure without an end does not take the process with it."""
    endless: list[object] = []
    endless.append(endless)
    result = await _returning(endless).call(_call("give"), ToolContext())
    assert result.is_error
    assert "has no JSON form" in result.text


async def test_content_blocks_are_kept() -> None:
    """A tuple of content blocks goes to the model as it is, with its texts bounded."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    result = await _returning(({"type": "text", "text": "x" * 500}, image), limits=ToolLimits(output_chars=100)).call(
        _call("give"), ToolContext()
    )
    assert isinstance(result.content, tuple)
    assert result.content[1] == image
    assert len(result.text) == 100


async def test_handler_can_report_a_failure_with_its_own_result() -> None:
    """A ToolResult that a handler returns keeps its error mark and gets the call's id."""
    result = await _returning(ToolResult("other", "half done", is_error=True)).call(_call("give"), ToolContext())
    assert result == ToolResult("call_1", "half done", is_error=True)
    assert result.block()["is_error"] is True


@pytest.mark.parametrize("size", [50_001, 50_000_000])
async def test_large_output_keeps_head_and_tail_within_the_limit(size: int) -> None:
    """An output of any size enters the context with at most the limit's characters, both ends in it."""
    text = await _returning(f"first {'é' * size} last").dispatch("give")
    assert len(text) <= 50_000
    assert text.startswith("first ")
    assert text.endswith(" last")
    assert "characters left out" in text


@pytest.mark.parametrize("size", [60_000, 2_000_000])
async def test_large_output_can_be_kept_elsewhere(size: int) -> None:
    """An overflow gets the whole text, and the marker says where it is."""
    kept: list[str] = []

    def keep(text: str) -> str:
        kept.append(text)
        return "artifact-7"

    text = await _returning("x" * size, overflow=keep).dispatch("give")
    assert kept == ["x" * size]
    assert len(text) <= 50_000
    assert "the full text is at artifact-7" in text


async def test_cap_of_the_owner_is_used_over_the_limit_only() -> None:
    """An arrival cap sees the outputs over the limit and none below it."""
    dispatcher = ToolDispatcher([echo], limits=ToolLimits(output_chars=10), cap=lambda text: f"cap {len(text)}")
    assert await dispatcher.dispatch("echo", text="x" * 10) == "x" * 10
    assert await dispatcher.dispatch("echo", text="x" * 11) == "cap 11"


async def test_context_reaches_the_handler_that_asks() -> None:
    """A parameter annotated with ToolContext gets the call's context, and progress is told to whoever watches."""
    told: list[str] = []

    async def who(context: ToolContext) -> str:
        await trio.lowlevel.checkpoint()
        context.report("half")
        return f"{context.agent} {context.call_id} {context.workdir}"

    context = ToolContext("ann", pathlib.Path("w"), "c7", told.append)
    result = await ToolDispatcher([who]).call(_call("who"), context)
    assert result.text == "ann c7 w"
    assert told == ["half"]


async def test_parameter_may_be_called_name_or_self() -> None:
    """The verb's own parameters leave every name free for the tool's."""

    def say(**options: object) -> str:
        return str(options)

    dispatcher = ToolDispatcher()
    dispatcher.register("say", say, "x", {"type": "object", "properties": {"name": {}, "self": {}}})
    assert await dispatcher.dispatch("say", name="ann", self=1) == "{'name': 'ann', 'self': 1}"


def test_definitions_freeze_the_set() -> None:
    """After the definitions were read nothing can be registered, by any door, and the definitions stay the same."""
    dispatcher = ToolDispatcher([echo])
    before, first, after = dispatcher.frozen, dispatcher.get_tool_definitions(), dispatcher.frozen
    assert (before, after) == (False, True)
    for register in (
        lambda: dispatcher.register("more", lambda: ""),
        lambda: dispatcher.register_many({"more": lambda: ""}),
        lambda: dispatcher.add(echo),
    ):
        with pytest.raises(RegistryFrozen, match="set of tools is fixed"):
            register()
    first.clear()
    assert [entry["name"] for entry in dispatcher.get_tool_definitions()] == ["echo"]


def test_register_many_is_all_or_nothing() -> None:
    """When one of several cannot be registered, none is."""

    def good() -> str:
        return ""

    dispatcher = ToolDispatcher([echo])
    for bad in ({"good": good, "a b": good}, [good, echo], [good, good]):
        with pytest.raises(ValueError, match="name"):
            dispatcher.register_many(bad)  # type: ignore[arg-type]
        assert dispatcher.names == ("echo",)
    dispatcher.register_many({"one": good, "two": good})
    assert dispatcher.names == ("echo", "one", "two")


@pytest.mark.parametrize("options", [{"time_seconds": 0}, {"output_chars": -1}, {"threads": 0}])
def test_limits_are_checked(options: dict[str, Any]) -> None:
    """No limit is None, never 0."""
    with pytest.raises(ValueError, match="must be positive, or None"):
        ToolLimits(**options)
