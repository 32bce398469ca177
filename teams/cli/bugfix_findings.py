"""What a run of unittest says: how many tests ran, which failed, where, and with which values.

Pure: text in, values out. Every value comes from the text, so another fault of the project gives other findings.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_BLOCK = re.compile(r"^={20,}\n(FAIL|ERROR): (\w+) \(([\w.]+)\)\n(?:[^-\n].*\n)?-{20,}\n((?:.*\n)*?)(?=={20,}\n|-{20,}\n)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (\w+)\n    (.*)$', re.MULTILINE)
_UNEQUAL = re.compile(r"^AssertionError: (.+?) != (.+)$", re.MULTILINE)
_COUNT = re.compile(r"^Ran (\d+) tests? in", re.MULTILINE)
_CALLED = re.compile(r"(?<![\w.])([a-z_]\w*)\(")
_DESCRIBED = re.compile(r"^In (\S+), (\w+) \(line (\d+)\):$", re.MULTILINE)
_TOLD = re.compile(r"^(FAIL|ERROR) ([\w.]+): (.*)$", re.MULTILINE)
_VALUES = re.compile(r"got (.+), expected (.+)")


class Place(NamedTuple):
    """A function of the project, and a line in it."""

    path: str
    function: str
    line: int


class Failure(NamedTuple):
    """A test that failed, by its dotted name; `place` is where it raised, None when only a value was wrong."""

    test: str
    kind: str  # FAIL | ERROR
    told: str  # `got 1, expected 2`, or the exception
    place: Place | None = None
    calls: tuple[str, ...] = ()  # the functions that the failing line of the test calls


class Fault(NamedTuple):
    """One place to mend, and the failures that point to it."""

    place: Place
    failures: tuple[Failure, ...]

    @property
    def tests(self) -> str:
        """The names of the failing tests, for a command line."""
        return " ".join(failure.test for failure in self.failures)

    @property
    def told(self) -> str:
        """What the first failure says."""
        return self.failures[0].told

    def describe(self) -> str:
        """Write the fault as the description of a task; `read_fault` takes it back."""
        lines = [f"{failure.kind} {failure.test}: {failure.told}" for failure in self.failures]
        return "\n".join([f"In {self.place.path}, {self.place.function} (line {self.place.line}):", *lines])


class TestRun(NamedTuple):
    """One run of the tests."""

    total: int
    failures: tuple[Failure, ...]


def read_test_run(output: str, files: Sequence[str]) -> TestRun:
    """Read the output of a run; `files` are the project's files, by which its own frames are known."""
    counted = _COUNT.search(output)
    failures = [_failure(found, files) for found in _BLOCK.finditer(output)]
    return TestRun(int(counted[1]) if counted else 0, tuple(failures))


def read_fault(text: str) -> Fault | None:
    """Find the fault that a text describes, None when it describes none."""
    place = _DESCRIBED.search(text)
    failures = tuple(Failure(test, kind, told) for kind, test, told in _TOLD.findall(text))
    if place is None or not failures:
        return None
    return Fault(Place(place[1], place[2], int(place[3])), failures)


def values(told: str) -> tuple[str, str] | None:
    """Return what a test got and what it expected, when that is what it told."""
    found = _VALUES.fullmatch(told)
    return (found[1], found[2]) if found else None


def _failure(found: re.Match[str], files: Sequence[str]) -> Failure:
    kind, name, dotted, body = found[1], found[2], found[3], found[4]
    test = dotted if dotted.endswith(f".{name}") else f"{dotted}.{name}"
    frames = [(_own(path, files), int(line), function, code) for path, line, function, code in _FRAME.findall(body)]
    own = [frame for frame in frames if frame[0]]
    inside = [frame for frame in own if not _is_test(frame[0])]
    place = Place(inside[-1][0], inside[-1][2], inside[-1][1]) if inside else None
    unequal = _UNEQUAL.search(body)
    told = f"got {unequal[1]}, expected {unequal[2]}" if unequal else f"raised {_last_line(body)}"
    called = [] if inside or not own else _CALLED.findall(own[-1][3])
    return Failure(test, kind, told, place, tuple(dict.fromkeys(called)))


def _own(path: str, files: Sequence[str]) -> str:
    return next((file for file in files if path.endswith(f"/{file}")), "")


def _is_test(path: str) -> bool:
    return path.rpartition("/")[2].startswith("test_") or path.startswith("tests/")


def _last_line(body: str) -> str:
    return next((line for line in reversed(body.splitlines()) if line and not line.startswith(" ")), "something without a word")
