"""The repairs that the scripted developers know: few, each chosen by what the failing test told, none tried without running the tests.

Pure: a fault and the text of its file in, candidates out, the likeliest first. A fault that none of them fits has no candidates.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from teams.cli.bugfix_findings import Fault, values

_EMPTY = re.compile(r"raised ValueError: (min|max)\(\) ")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ROUNDING = re.compile(r"ROUND_\w+")
_COMPARISON = re.compile(r" ([<>]=?) ")
_CONVERSION = re.compile(r"\b(Decimal|int|float)\((\w+)\)")


class Repair(NamedTuple):
    """One line to replace by another, and why that may help; `line` is its number."""

    why: str
    line: int
    old: str
    new: str


def find_repairs(fault: Fault, source: str) -> list[Repair]:
    """Return what could mend the function that is at fault, the likeliest first."""
    lines = _function_lines(source, fault.place.function)
    return [repair for look in (_empty_choice, _rounding, _boundary, _stray_blanks) for repair in look(fault, lines)]


def _function_lines(source: str, name: str) -> list[tuple[int, str]]:
    """Return the numbered lines of a function; only those that occur once in the file, for an edit must know its place."""
    lines = source.splitlines()
    start = next((index for index, line in enumerate(lines) if re.match(rf"\s*def {name}\(", line)), None)
    if start is None:
        return []
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent):
        end += 1
    return [(number, line) for number, line in enumerate(lines[start:end], start + 1) if source.count(line) == 1]


def _empty_choice(fault: Fault, lines: list[tuple[int, str]]) -> Iterator[Repair]:
    found = _EMPTY.match(fault.told)
    if found is None:
        return
    choice = re.compile(rf"\b{found[1]}\((.+ for .+ in .+)\)")
    for number, line in lines:
        new = choice.sub(rf"{found[1]}((\1), default=Decimal(0))", line)
        if new != line:
            yield Repair(f"give {found[1]}() a default for the case that nothing qualifies", number, line, new)


def _rounding(fault: Fault, lines: list[tuple[int, str]]) -> Iterator[Repair]:
    told = values(fault.told)
    numbers = [float(found[0]) for text in told or () if (found := _NUMBER.search(text))]
    if len(numbers) != 2 or numbers[0] == numbers[1]:  # one got, one expected
        return
    wanted = "ROUND_HALF_UP" if abs(numbers[1]) > abs(numbers[0]) else "ROUND_HALF_DOWN"
    for number, line in lines:
        new = _ROUNDING.sub(wanted, line)
        if new != line:
            yield Repair(f"round by {wanted} instead of {_ROUNDING.findall(line)[0]}", number, line, new)


def _boundary(fault: Fault, lines: list[tuple[int, str]]) -> Iterator[Repair]:
    if values(fault.told) is None:
        return
    swapped = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}
    for number, line in lines:
        for found in _COMPARISON.finditer(line):
            new = f"{line[: found.start(1)]}{swapped[found[1]]}{line[found.end(1) :]}"
            yield Repair(f"compare by {swapped[found[1]]} instead of {found[1]}", number, line, new)


def _stray_blanks(fault: Fault, lines: list[tuple[int, str]]) -> Iterator[Repair]:
    if "raised" not in fault.told:
        return
    for number, line in lines:
        new = _CONVERSION.sub(r"\1(\2.strip())", line)
        if new != line:
            yield Repair("strip blanks before the text is converted", number, line, new)
