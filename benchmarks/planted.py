"""Seeded sessions with planted facts: what a context must still know after it was compacted, where each fact stands, and what it became.

A session is a long piece of tool work in which things are said, decided, tried, corrected and taken back. What was planted is kept beside
it, so that a score needs no model.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from compaction.state import StateDigest
from compaction.transcript import Block, ModelMessage

KINDS = ("constraint", "decision", "path", "identifier", "error", "attempt", "artifact", "statement")
FILLER = "the module reads its input and hands the values on to the next stage of the work, where they are kept until somebody asks. "


class Fact(NamedTuple):
    """Something that was planted: the words that must be there, and for what ended, the words that took its place."""

    kind: str
    words: str
    also: str = ""  # a reason, a state, an error: part of the fact
    ended_by: str = ""


@dataclass(slots=True)
class Planted:
    """A session, what it plants, and what its surroundings know."""

    messages: list[ModelMessage] = field(default_factory=list[ModelMessage])
    facts: list[Fact] = field(default_factory=list[Fact])
    never_said: list[str] = field(default_factory=list[str])
    guesses: list[str] = field(default_factory=list[str])
    artifacts: dict[str, str] = field(default_factory=dict[str, str])
    state: StateDigest = field(default_factory=StateDigest)


class _Writer:
    """Writes a session, a round after the other."""

    def __init__(self, seed: int, result_chars: int) -> None:
        self.rng = random.Random(seed)
        self.made = Planted()
        self._number = 0
        self._chars = result_chars

    def user(self, text: str) -> None:
        self.made.messages.append(ModelMessage("user", text))

    def says(self, text: str) -> None:
        self.made.messages.append(ModelMessage("assistant", text))

    def calls(self, name: str, result: str, *, failed: bool = False, **inputs: Any) -> None:
        self._number += 1
        call: Block = {"type": "tool_use", "id": f"toolu_{self._number:05}", "name": name, "input": inputs}
        answer: Block = {"type": "tool_result", "tool_use_id": call["id"], "content": result}
        self.made.messages.append(ModelMessage("assistant", [{"type": "text", "text": f"Step {self._number}."}, call]))
        self.made.messages.append(ModelMessage("user", [{**answer, "is_error": True} if failed else answer]))

    def word(self) -> str:
        return "".join(self.rng.choice("bcdfghjklmnprstvwz") + self.rng.choice("aeiou") for _ in range(4))

    def noise(self) -> None:
        path = f"lib/{self.word()}.py"
        length = self.rng.randrange(self._chars // 2, self._chars * 2)
        text = f"{path}\n" + (FILLER * (length // len(FILLER) + 1))[:length]
        self.calls("read_file", text, path=path)
        self.made.artifacts[path] = "read"


def planted(seed: int, *, rounds: int = 240, per_kind: int = 10, result_chars: int = 1_500) -> Planted:
    """Return a session of so many rounds, with so many facts of each kind spread over all of it."""
    writer = _Writer(seed, result_chars)
    writer.user("Build the importer for the archive, and keep to what I tell you on the way.")
    plan = [(kind, number) for kind in KINDS for number in range(per_kind)]
    writer.rng.shuffle(plan)
    gap = max(1, rounds // len(plan))
    for kind, number in plan:
        for _ in range(gap):
            writer.noise()
        _plant(writer, kind, number)
    for _ in range(6):
        writer.noise()
    made = writer.made
    made.never_said = [f"never-{writer.word()}-{writer.word()}" for _ in range(20)]
    made.state = _team(writer)
    return made


def _plant(writer: _Writer, kind: str, number: int) -> None:
    made, word, other = writer.made, writer.word(), writer.word()
    match kind:
        case "constraint":
            _plant_constraint(writer, number, word, other)
        case "decision":
            writer.says(f"Decision: use {word} for the {other} because {word[:4]} needs no server.")
            writer.user("Good, go on.")
            made.facts.append(Fact(kind, f"use {word} for the {other}", f"{word[:4]} needs no server"))
            made.guesses.append(f"perhaps {other}{word} would do")
            writer.says(f"It is only a guess: perhaps {other}{word} would do.")
            writer.user("We shall see.")
        case "path":
            path, line = f"src/{word}/{other}.py", writer.rng.randrange(10, 900)
            writer.calls("note", "noted", text=f"the fault is at {path}:{line}")
            made.facts.append(Fact(kind, f"{path}:{line}"))
        case "identifier":
            value = f"{other}-{writer.rng.randrange(1000, 9999)}"
            writer.calls("note", "noted", text=f"{word}_id={value}")
            made.facts.append(Fact(kind, f"{word}_id", value))
        case "error":
            writer.calls("bash", f"Traceback: {word.title()}Error: cannot open {other}\nmore", failed=True, command=f"run {word}")
            made.facts.append(Fact(kind, f"{word.title()}Error: cannot open {other}"))
        case "attempt":
            writer.calls("bash", f"no such target {other}", failed=True, command=f"make {word}")
            made.facts.append(Fact(kind, f"make {word}", f"no such target {other}"))
        case "artifact":
            _plant_artifact(writer, number, word, other)
        case _:
            writer.user(f"By the way, the customer of the {word} is {other.title()} & Sons.")
            writer.says("I will remember that.")
            made.facts.append(Fact(kind, f"the customer of the {word} is {other.title()} & Sons"))


def _plant_constraint(writer: _Writer, number: int, word: str, other: str) -> None:
    rule = f"Never change the {word} table of the {other} schema."
    writer.user(rule)
    writer.says("Understood.")
    if number % 4 == 2:
        end = f"Forget the rule about the {word} table of the {other} schema."
    elif number % 4 == 3:
        end = f"From now on the {word} table of the {other} schema must only be changed by a migration instead."
    else:
        writer.made.facts.append(Fact("constraint", rule))
        return
    for _ in range(3):
        writer.noise()
    writer.user(end)
    writer.says("Understood.")
    writer.made.facts.append(Fact("constraint", rule, ended_by=end))


def _plant_artifact(writer: _Writer, number: int, word: str, other: str) -> None:
    path = f"src/{word}/{other}.txt"
    states = writer.made.artifacts
    body = FILLER * 6
    match number % 5:
        case 0:
            writer.calls("write_file", "written", path=path, content=body)
            state = "created"
        case 1:
            writer.calls("read_file", body, path=path)
            writer.calls("edit_file", "edited", path=path, old=body[:200], new=body[:210])
            state = "modified"
        case 2:
            writer.calls("write_file", "written", path=path, content=body)
            writer.calls("bash", "", command=f"rm {path}")
            state = "deleted"
        case 3:
            writer.calls("edit_file", "edited", path=path, old="a", new="b")
            writer.calls("bash", "", command=f"git mv {path} {path}.old")
            states[f"{path}.old"] = "modified"
            state = "renamed"
        case _:
            writer.calls("write_file", "permission denied", failed=True, path=path, content=body)
            return
    states[path] = state
    writer.made.facts.append(Fact("artifact", path, state))


def _team(writer: _Writer) -> StateDigest:
    mates = [f"{writer.word()} (developer, idle)" for _ in range(4)]
    tasks = [f"[>] {number} Build the {writer.word()} (me)" for number in range(1, 4)]
    requests = [f"plan_approval r{number} (revision 1) of {writer.word()} waits for YOUR answer" for number in range(1, 4)]
    writer.made.facts += [Fact("teammate", mate) for mate in mates]
    writer.made.facts += [Fact("task", task) for task in tasks]
    writer.made.facts += [Fact("request", request) for request in requests]
    text = "\n".join(["<team_state>", f"Teammates: {', '.join(mates)}", f"Your open tasks: {'; '.join(tasks)}", *requests, "</team_state>"])
    return StateDigest(text=text, active_task=tasks[0], open_requests=tuple(requests), teammates=tuple(mates), tasks=tuple(tasks))


def segments(messages: list[ModelMessage], count: int) -> Iterator[list[ModelMessage]]:
    """Yield a session in so many parts, each of which ends where a model would be called."""
    size = len(messages) // count
    start = 0
    for number in range(count):
        stop = len(messages) if number == count - 1 else start + size
        while stop < len(messages) and messages[stop - 1].role != "user":
            stop += 1
        yield messages[start:stop]
        start = stop
