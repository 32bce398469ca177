"""Patterns of paths and of commands, in which plans and rules say what they mean.

Laws: what cannot be read with certainty matches no promise: a path that is not plainly relative, a command in which the shell would do more
than run programs one after the other. A pattern that forbids is read loosely (without case), one that allows to the letter.

A path pattern is matched component by component: `*`, `?` and `[...]` within one, `**` for any number of them. One that ends without a
wildcard, such as `src` or `src/`, holds that path and everything below it.
A command pattern is matched word by word and to the letter, and what is quoted in it must be quoted in the command; `*` as its last
word stands for any further words, also none.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final
from unicodedata import normalize

Parts = tuple[str, ...]
"""The components of a relative path."""

_NOT_RELATIVE: Final = re.compile(r"[/~]|[A-Za-z]:|.*[\\\x00-\x1f]", re.DOTALL)
_WILD: Final = re.compile(r"[*?\[]")
_SHELL_WORK: Final = re.compile(r"[$`\\\n\r\x00<>()]")
_SEPARATORS: Final = frozenset({"&&", "||", ";", "|"})
_EXPANDED: Final = frozenset("*?[{~#")
"""By these, the shell makes something else of an unquoted word."""
_MADE_UP: Final = re.compile(r"(?<!\\)[*?{~]|(?<!\\)\[.")
_RESERVED: Final = frozenset(
    "! { } [[ ]] case coproc do done elif else esac fi for function if in select then time until while".split()  # noqa: SIM905
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


def path_parts(path: str) -> Parts | None:
    """Split a relative path into its components, in one Unicode form; None when it is not plainly relative."""
    if _NOT_RELATIVE.match(path):
        return None
    parts = tuple(part for part in normalize("NFC", path).split("/") if part not in ("", "."))
    return None if ".." in parts else parts


def fixed_parts(pattern: str) -> Parts | None:
    """Return the components before the first wildcard: everything that the pattern matches lies under them."""
    parts = path_parts(pattern)
    if parts is None:
        return None
    wild = next((at for at, part in enumerate(parts) if _WILD.search(part)), len(parts))
    return parts[:wild]


def path_matches(pattern: str, parts: Parts, *, loosely: bool = False) -> bool:
    """Tell whether a path lies in a pattern. `loosely` disregards case, since some file systems do."""
    wanted = path_parts(pattern)
    if wanted is None:
        return False
    parts = tuple(normalize("NFC", part) for part in parts)
    if loosely:
        wanted, parts = tuple(part.casefold() for part in wanted), tuple(part.casefold() for part in parts)
    holds_all_below = not wanted or not _WILD.search(wanted[-1])
    at = {0} | _after_any(wanted, 0)  # how many components of the pattern can have been matched so far
    for part in parts:
        if holds_all_below and len(wanted) in at:
            return True
        steps: set[int] = set()
        for place in at:
            if place < len(wanted) and (wanted[place] == "**" or fnmatchcase(part, wanted[place])):
                stays = place if wanted[place] == "**" else place + 1
                steps |= {stays} | _after_any(wanted, stays)
        at = steps
    return len(wanted) in at


def reaches_below(pattern: str) -> bool:
    """Tell whether a pattern holds, with a path, everything below it."""
    wanted = path_parts(pattern)
    return wanted is not None and (not wanted or not _WILD.search(wanted[-1]) or wanted[-1] == "**" or wanted[-2:] == ("**", "*"))


def _after_any(wanted: Parts, place: int) -> set[int]:
    """Return where a pattern may stand when the `**` that begin at a place match nothing more."""
    reached: set[int] = set()
    while place < len(wanted) and wanted[place] == "**":
        place += 1
        reached.add(place)
    return reached


def exact_path(parts: Parts) -> str:
    """Return the pattern that holds this path alone, and what is below it."""
    return _WILD.sub(lambda found: f"[{found[0]}]", "/".join(parts)) or "."


def split_command(command: str) -> list[list[str]] | None:
    """Return the words of each program that a command line runs; None when the shell would do more than start them one by one.

    Programs joined by `&&`, `||`, `;` and `|` are told apart. Substitutions, redirections, subshells, escapes, several lines, jobs in
    the background, the shell's own words and programs whose name it would make up are more. Where quotes take its meaning from a
    character that the shell would expand, a backslash stands before it.
    """
    tokens = None if _SHELL_WORK.search(command) else _tokens(command)
    if tokens is None:
        return None
    programs: list[list[str]] = [[]]
    for word, is_operator in tokens:
        if not is_operator:
            programs[-1].append(word)
        elif word in _SEPARATORS:
            programs.append([])
        else:
            return None
    if tokens and tokens[-1] == (";", True):
        programs.pop()
    return programs if all(words and not _MADE_UP.search(words[0]) and words[0] not in _RESERVED for words in programs) else None


def _tokens(line: str) -> list[tuple[str, bool]] | None:
    """Split a line without escapes as a shell does, into words and operators (True); None for an open quote.

    What quotes make of a word is kept: `'a*'` is not `a*`, and `';'` is no operator.
    """
    tokens: list[tuple[str, bool]] = []
    word: str | None = None
    quote = before = ""
    for char in f"{line} ":
        if quote and char != quote:
            word = f"{word or ''}\\{char}" if char in _EXPANDED else f"{word or ''}{char}"
        elif char in "'\"":
            quote, word = "" if quote else char, word or ""
        elif char not in " \t;|&":
            word = f"{word or ''}{char}"
        elif word is not None:
            tokens.append((word, False))
            word = None
        if not quote and char in ";|&":
            if before in tuple(";|&"):
                tokens[-1] = (tokens[-1][0] + char, True)
            else:
                tokens.append((char, True))
        before = "" if quote else char
    return None if quote else tokens


def is_one_command(command: str) -> bool:
    """Tell whether a command line, read as a pattern, holds just itself."""
    tokens = None if _SHELL_WORK.search(command) else _tokens(command)
    return tokens is None or len(tokens) < 2 or tokens[-1] != ("*", False) or any(is_operator for _, is_operator in tokens)


def command_matches(pattern: str, words: Sequence[str], *, loosely: bool = False) -> bool:
    """Tell whether one program with its arguments lies in a pattern, both as `split_command` reads them.

    `loosely` disregards case, the directory of the program, and variables that are set for it.
    """
    tokens = None if _SHELL_WORK.search(pattern) else _tokens(pattern)
    if tokens is None or any(is_operator for _, is_operator in tokens):
        return False
    wanted = [word for word, _ in tokens]
    if loosely:
        wanted, words = [word.casefold() for word in wanted], [word.casefold() for word in words]
        while words and _ASSIGNMENT.match(words[0]):
            words = words[1:]
        words = [words[0].rpartition("/")[2], *words[1:]] if words and wanted and "/" not in wanted[0] else words
    any_more = len(wanted) > 1 and wanted[-1] == "*"
    if any_more:
        wanted.pop()
    if not wanted or len(words) < len(wanted) or (len(words) > len(wanted) and not any_more):
        return False
    return list(words[: len(wanted)]) == wanted


def commands_overlap(pattern: str, words: Sequence[str]) -> bool:
    """Tell whether a program that a plan names may be one that a pattern forbids; `*` as its last word stands for any."""
    forbidden = split_command(pattern)
    if forbidden is None or len(forbidden) != 1:
        return True
    wanted = [word.casefold() for word in forbidden[0]]
    given = [word.casefold() for word in words]
    any_more = len(given) > 1 and given[-1] == "*"
    if not any_more:
        return command_matches(pattern, words, loosely=True)
    given = [given[0].rpartition("/")[2] if "/" not in wanted[0] else given[0], *given[1:-1]]
    if len(wanted) > 1 and wanted[-1] == "*":
        wanted.pop()
    shorter = min(len(wanted), len(given))
    return wanted[:shorter] == given[:shorter]
