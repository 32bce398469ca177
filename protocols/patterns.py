"""Patterns of paths and of commands, in which plans and rules say what they mean.

Laws: what cannot be read with certainty matches no promise: a path that is not plainly relative, a command in which the shell would do more
than run programs one after the other. A pattern that forbids is read loosely (without case), one that allows to the letter.

A path pattern is matched component by component: `*`, `?` and `[...]` within one, `**` for any number of them. One that ends without a
wildcard, such as `src` or `src/`, holds that path and everything below it.
A command pattern is matched word by word and to the letter; `*` as its last word stands for any further words, also none.
"""

import re
import shlex
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

    Programs joined by `&&`, `||`, `;` and `|` are told apart. Substitutions, redirections, subshells, escapes, several lines and jobs in
    the background are more.
    """
    if _SHELL_WORK.search(command):
        return None
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";|&")
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:  # an open quote
        return None
    programs: list[list[str]] = [[]]
    for token in tokens:
        if token in _SEPARATORS:
            programs.append([])
        elif token and not token.strip(";|&"):
            return None
        else:
            programs[-1].append(token)
    if tokens and tokens[-1] == ";":
        programs.pop()
    return programs if all(programs) else None


def command_matches(pattern: str, words: Sequence[str], *, loosely: bool = False) -> bool:
    """Tell whether one program with its arguments lies in a pattern. `loosely` disregards case and the directory of the program."""
    try:
        wanted = shlex.split(pattern)
    except ValueError:
        return False
    if loosely:
        wanted, words = [word.casefold() for word in wanted], [word.casefold() for word in words]
        words = [words[0].rpartition("/")[2], *words[1:]] if wanted and "/" not in wanted[0] else words
    any_more = len(wanted) > 1 and wanted[-1] == "*"
    if any_more:
        wanted.pop()
    if not wanted or len(words) < len(wanted) or (len(words) > len(wanted) and not any_more):
        return False
    return list(words[: len(wanted)]) == wanted
