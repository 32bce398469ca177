"""Law L6: while the gate refuses writes, no way of asking for one changes anything on disk."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from teams.tools import Tool, ToolBatch, ToolCall, ToolContext, ToolDispatcher, make_default_dispatcher, tool

REFUSAL = "no plan of yours is approved: submit one first; until then you may read"


def refuse_writes(tool: Tool, call: ToolCall) -> str | None:
    """The gate of an agent whose plan is not approved."""
    return None if tool.effect == "reads" else REFUSAL


def snapshot(root: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Everything under a directory: kinds, modes, contents, targets of links."""
    seen: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        if path.is_symlink():
            seen[str(path)] = mode, os.readlink(path)
        else:
            seen[str(path)] = mode, path.read_bytes() if path.is_file() else None
    return seen


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A work directory with a file, a link to it, and a file beside the directory."""
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_text("value = 1\n")
    (root / "link.py").symlink_to("src/app.py")
    (tmp_path / "outside.txt").write_text("outside\n")
    return root


WAYS: list[tuple[str, Mapping[str, Any]]] = [
    ("write_file", {"path": "new.py", "content": "x"}),
    ("write_file", {"path": "src/app.py", "content": "x"}),
    ("edit_file", {"path": "src/app.py", "old": "value", "new": "other"}),
    ("edit_file", {"path": "fresh.py", "old": "", "new": "made by an edit"}),
    ("edit_file", {"path": "link.py", "old": "1", "new": "2"}),
    ("bash", {"command": "echo x > src/app.py"}),
    ("bash", {"command": "cat > new.py <<'END'\nx\nEND"}),
    ("bash", {"command": "mkdir -p deep/er && touch deep/er/file && rm -rf src"}),
    ("bash", {"command": "echo x >> ../outside.txt"}),
    ("Write_File", {"path": "new.py", "content": "x"}),
    ("BASH", {"command": "touch new.py"}),
    (" bash", {"command": "touch new.py"}),
    ("write_file\n", {"path": "new.py", "content": "x"}),
    ("functions.bash", {"command": "touch new.py"}),
    ("write_file", {"path": "new.py", "content": "x", "approved": True}),
    ("write_file", {"file_path": "new.py", "text": "x"}),
    ("read_file", {"path": "new.py", "content": "x"}),
    ("read_file", {"path": "| touch new.py"}),
    ("glob", {"pattern": "$(touch new.py)"}),
    ("grep", {"pattern": "x; touch new.py"}),
    ("grep", {"pattern": "(x|y)+`touch new.py`", "include": "*$(touch new.py)"}),
    ("touch", {"path": "new.py"}),
]


@pytest.mark.parametrize(("name", "arguments"), WAYS, ids=[f"{index}-{name.strip()}" for index, (name, _) in enumerate(WAYS)])
async def test_no_way_to_write_passes_a_refusing_gate(project: Path, name: str, arguments: Mapping[str, Any]) -> None:
    """A model that tries to write before its plan is approved changes nothing, inside or beside the work directory."""
    dispatcher = make_default_dispatcher(project)
    context = ToolContext("ann", project, "c")
    before = snapshot(project.parent)
    for call in (ToolCall("r", "read_file", {"path": "src/app.py"}), ToolCall("w", name, arguments)):
        result = await dispatcher.call(call, context, gate=refuse_writes)
    assert snapshot(project.parent) == before
    tool = dispatcher.get(name)
    if tool is not None and tool.effect == "writes":
        assert (result.content, result.is_error) == (REFUSAL, True)
    else:
        assert result.is_error or "(no" in result.text


async def test_same_calls_write_when_the_gate_lets_them(project: Path) -> None:
    """The effects that the gate prevents are real: with an open gate the same calls change the directory."""
    dispatcher = make_default_dispatcher(project)
    context = ToolContext("ann", project, "c")
    await dispatcher.call(ToolCall("r", "read_file", {"path": "src/app.py"}), context)
    for name, arguments in (WAYS[0], WAYS[2], WAYS[7]):
        before = snapshot(project)
        assert not (await dispatcher.call(ToolCall("w", name, arguments), context, gate=lambda tool, call: None)).is_error
        assert snapshot(project) != before


async def test_gate_is_asked_before_any_code_of_the_tool() -> None:
    """A refused call runs neither the handler nor the validation, which may be the tool author's code."""
    ran: list[str] = []

    @tool(effect="writes")
    async def deploy(service: str) -> str:
        await trio.lowlevel.checkpoint()
        ran.append(service)
        return ""

    result = await ToolDispatcher([deploy]).call(ToolCall("1", "deploy", {"nonsense": 1}), ToolContext(), gate=refuse_writes)
    assert (result.content, ran) == (REFUSAL, [])


async def test_gate_is_asked_at_the_moment_of_the_call() -> None:
    """Within one reply, an approval counts for the calls after it and a withdrawal too."""
    approved = False

    @tool(effect="writes")
    async def write(text: str) -> str:
        await trio.lowlevel.checkpoint()
        return text

    @tool(effect="reads")
    async def decide(yes: bool) -> str:
        await trio.lowlevel.checkpoint()
        nonlocal approved
        approved = yes
        return "decided"

    calls = [
        ToolCall("1", "write", {"text": "a"}),
        ToolCall("2", "decide", {"yes": True}),
        ToolCall("3", "write", {"text": "b"}),
        ToolCall("4", "decide", {"yes": False}),
        ToolCall("5", "write", {"text": "c"}),
    ]
    batch = ToolBatch(
        ToolDispatcher([write, decide]),
        calls,
        lambda call: ToolContext(),
        lambda tool, call: None if approved or tool.effect == "reads" else "refused",
    )
    assert [result.text for result in await batch.run()] == ["refused", "decided", "b", "decided", "refused"]


async def test_gate_that_fails_refuses() -> None:
    """A gate that raises lets nothing through, and the owner is told."""
    ran: list[str] = []
    told: list[BaseException] = []

    @tool(effect="writes")
    async def write() -> str:
        await trio.lowlevel.checkpoint()
        ran.append("ran")
        return ""

    def broken(tool: Tool, call: ToolCall) -> str | None:
        raise LookupError("no such plan")

    dispatcher = ToolDispatcher([write], on_error=lambda call, error: told.append(error))
    result = await dispatcher.call(ToolCall("1", "write", {}), ToolContext(), gate=broken)
    assert (result.is_error, result.text, ran) == (True, "LookupError: no such plan", [])
    assert isinstance(told[0], LookupError)


async def test_empty_refusal_is_a_refusal() -> None:
    """A gate that answers an empty text refuses; only None lets a call pass."""

    @tool(effect="writes")
    async def write() -> str:
        await trio.lowlevel.checkpoint()
        return "written"

    result = await ToolDispatcher([write]).call(ToolCall("1", "write", {}), ToolContext(), gate=lambda tool, call: "")
    assert (result.is_error, result.text) == (True, "write was refused")


def test_undeclared_effect_is_writing() -> None:
    """A handler registered without an effect is taken for one that writes."""
    dispatcher = ToolDispatcher()
    assert dispatcher.register("x", lambda: "").effect == "writes"
    dispatcher.register_many({"y": lambda: ""})
    found = dispatcher.get("y")
    assert found is not None
    assert found.effect == "writes"


def test_default_tools_declare_their_effects(tmp_path: Path) -> None:
    """Of the default tools, those that can change something are marked so."""
    dispatcher = make_default_dispatcher(tmp_path)
    effects = {name: found.effect for name in dispatcher.names if (found := dispatcher.get(name)) is not None}
    assert effects == {
        "bash": "writes",
        "read_file": "reads",
        "write_file": "writes",
        "edit_file": "writes",
        "glob": "reads",
        "grep": "reads",
    }
