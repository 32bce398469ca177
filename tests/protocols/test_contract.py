"""Patterns of paths and commands, and what plans and rules make of them, against oracles that share no code with them.

For paths the oracle is a small tree and a matcher that tries everything; for commands it is the shells themselves, in a directory where
everything that is started leaves a mark.
"""

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.contract import Reach, Rule, RuleAction, judge, judge_plan, outside, rule_for
from protocols.patterns import command_matches, fixed_parts, path_matches, path_parts, reaches_below, split_command
from tests.state.driving import Choices, walk_settings

ALLOW, DENY, ASK = RuleAction.allow, RuleAction.deny, RuleAction.ask

# -- paths ----------------------------------------------------------------------------

COMPONENTS: dict[str, Callable[[str], bool]] = {
    "a": lambda name: name == "a",
    "B": lambda name: name == "B",
    "*": lambda name: True,
    "?": lambda name: len(name) == 1,
    "a*": lambda name: name.startswith("a"),
    "*b": lambda name: name.endswith("b"),
    "[ab]": lambda name: name in ("a", "b"),
    "[!a]": lambda name: len(name) == 1 and name != "a",
    "[*]": lambda name: name == "*",
    "\u00e9": lambda name: name == "\u00e9",
}
NAMES = ["a", "b", "A", "B", "ab", ".a", "*", "**", "\u00e9", "\uff41"]
TREE = [parts for depth in range(4) for parts in itertools.product(NAMES, repeat=depth)]
path_patterns = st.lists(st.sampled_from([*COMPONENTS, "**", "**"]), max_size=4)


def matches_naively(wanted: Sequence[str], parts: Sequence[str]) -> bool:
    """Try every way to spread the `**` over the components."""
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(matches_naively(wanted[1:], parts[skipped:]) for skipped in range(len(parts) + 1))
    return bool(parts) and COMPONENTS[wanted[0]](parts[0]) and matches_naively(wanted[1:], parts[1:])


def lies_in(wanted: Sequence[str], parts: Sequence[str]) -> bool:
    """Tell what the prose says: the pattern matches the path, or, where it does not end with a wildcard, one of the paths above it."""
    if matches_naively(wanted, parts):
        return True
    holds_below = not wanted or wanted[-1] in ("a", "B", "\u00e9")
    return holds_below and any(matches_naively(wanted, parts[:length]) for length in range(len(parts)))


@walk_settings(max_examples=150)
@given(path_patterns)
def test_path_pattern_holds_what_a_naive_matcher_finds(wanted: list[str]) -> None:
    """Over a whole small tree, a pattern matches exactly the paths that trying everything finds."""
    pattern = "/".join(wanted)
    for parts in TREE:
        assert path_matches(pattern, parts) is lies_in(wanted, parts), (pattern, parts)


@walk_settings(max_examples=150)
@given(path_patterns)
def test_fixed_parts_and_reach_below_are_true_of_the_whole_tree(wanted: list[str]) -> None:
    """Everything that a pattern matches lies under its fixed components; one that reaches below holds all that is under what it holds."""
    pattern = "/".join(wanted)
    fixed = fixed_parts(pattern)
    held = {parts for parts in TREE if path_matches(pattern, parts)}
    assert fixed is not None
    assert all(parts[: len(fixed)] == fixed for parts in held)
    if reaches_below(pattern):
        assert all(parts in held for parts in TREE if any(parts[:length] in held for length in range(len(parts))))
    elif held and max(map(len, held)) < 3:
        assert any(parts not in held for parts in TREE if any(parts[:length] in held for length in range(len(parts))))


@walk_settings(max_examples=100)
@given(path_patterns)
def test_pattern_that_forbids_disregards_case(wanted: list[str]) -> None:
    """What a pattern matches to the letter it also matches loosely, in any case."""
    pattern = "/".join(wanted)
    for parts in TREE:
        if path_matches(pattern, parts):
            for other in (parts, tuple(part.upper() for part in parts), tuple(part.lower() for part in parts)):
                assert "[!a]" in wanted or path_matches(pattern, other, loosely=True), (pattern, other)


NOT_RELATIVE = ["/a", "~", "~/a", "~a", "C:/a", "c:a", "a\\b", "a/../b", "..", "a/..", "a\0b", "a\nb", "a\tb", "a\x1bb", "\\\\host\\a"]
LOOKS_LIKE_SRC = [
    "SRC/a",
    "\uff53rc/a",
    "src\u2215a",
    "src\uff0fa",
    "src\u200b/a",
    "\u0455rc/a",
    "src /a",
    " src/a",
    "src./a",
    ".src/a",
    "src%2fa",
]


@pytest.mark.parametrize("path", NOT_RELATIVE)
def test_path_that_is_not_plainly_relative_lies_nowhere(path: str) -> None:
    """It is in no pattern, and as a pattern it holds nothing."""
    assert path_parts(path) is None
    assert not any(path_matches(path, parts) for parts in TREE)
    assert outside(Reach("write", (path_parts(path),)), {"files": ["**"]}) == ("a path that cannot be read",)
    with pytest.raises(ValueError, match="cannot be the path of a rule"):
        Rule(ALLOW, path=path)


@pytest.mark.parametrize("path", LOOKS_LIKE_SRC)
def test_path_that_looks_like_another_is_another(path: str) -> None:
    """Case, full width, other slashes, other alphabets and what is invisible make another path."""
    assert not path_matches("src/**", path_parts(path) or ())
    assert not path_matches(path, ("src", "a"))


FORMS: Final[tuple[Literal["NFC", "NFD"], ...]] = ("NFC", "NFD")


@pytest.mark.parametrize("loosely", [False, True])
def test_one_name_in_two_unicode_forms_is_one_name(loosely: bool) -> None:
    """A composed and a decomposed name are the same, whether a path was written by somebody or comes from the disk."""
    for written, met in itertools.product(FORMS, repeat=2):
        assert path_matches(normalize(written, "caf\u00e9/**"), (normalize(met, "caf\u00e9"), "x"), loosely=loosely)


# -- commands ---------------------------------------------------------------------------

PIECES = [
    *(
        "echo",
        "true",
        "echo a",
        "true",
        "x",
        "touch m",
        "a",
        "b=1",
        "c/d",
        "-n",
        " ",
        " ",
        " ",
        "\t",
        "; ",
        ";",
        " && ",
        "&&",
        " || ",
        "|",
        "&",
    ),
    *(
        "'",
        '"',
        "$(x)",
        "`x`",
        "$(",
        ")",
        "(",
        "`",
        "<",
        ">",
        "\n",
        "\r",
        "\\",
        "#",
        " #",
        "{",
        "}",
        "{ ",
        "!",
        "! ",
        "=",
        "*",
        "?",
        "[",
        "]",
        "~",
        ",",
        "^",
        "%",
    ),
    *(
        "\u00a0",
        "\u2003",
        "\u3000",
        "\x0b",
        "\x0c",
        "\u2028",
        "'a b'",
        '";"',
        "'&&'",
        "'|'",
        "if ",
        "then ",
        "fi",
        "do ",
        "time ",
        "eval ",
        "exec ",
    ),
]
STARTS = ["echo a", "echo", "true", "true ", "echo a ", "echo 'a' "]
choices = st.binary(min_size=800, max_size=800)


def lines_of(data: bytes, starts: Sequence[str], pieces: Sequence[str]) -> list[str]:
    """Make command lines of bytes: a start that may be read, and up to seven pieces."""
    drawn, made = Choices(data), list[str]()
    while drawn.left:
        made.append(drawn.pick(starts) + "".join(drawn.pick(pieces) for _ in range(drawn.pick(range(8)))))
    return made


shells = [path for path in (shutil.which("bash"), shutil.which("dash")) if path is not None]


class Trap:
    """A directory in which a shell runs; every program that it starts leaves its name and arguments, every file that it writes stays."""

    def __init__(self, root: Path, programs: Sequence[str]) -> None:
        self.bin, self.cwd, self.marks = root / "bin", root / "cwd", root / "marks"
        self.bin.mkdir()
        self.cwd.mkdir()
        for name in programs:
            script = self.bin / name
            script.write_text(f"#!/bin/sh\nprintf '%s\\0' \"${{0##*/}}\" \"$@\" '' >>'{self.marks}'\n")
            script.chmod(0o700)

    def run(self, shell: str, line: str) -> list[list[str]]:
        """Run a line and return what it started; fail when it wrote a file."""
        self.marks.write_bytes(b"")
        options = ("--noprofile", "--norc") if shell.endswith("bash") else ()
        variables = {"PATH": str(self.bin), "HOME": str(self.cwd), "LC_ALL": "C.UTF-8"}
        subprocess.run(
            [shell, *options, "-c", line],
            cwd=self.cwd,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
        )
        assert not os.listdir(self.cwd), f"{line!r} wrote {os.listdir(self.cwd)}"
        marks = self.marks.read_bytes().decode()
        return [list(group) for group in _grouped(marks.split("\0")[:-1])]


def _grouped(words: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for word in words:
        if word:
            groups[-1].append(word)
        else:
            groups.append([])
    return [group for group in groups if group]


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Trap:
    """Return a place where any program but the two harmless ones leaves a mark."""
    return Trap(tmp_path_factory.mktemp("trap"), ["x", "touch", "a", "m", "c", "-n", "b", "{", "}", "!", "[", "#"])


@pytest.mark.slow
@pytest.mark.limit(120)
@walk_settings(max_examples=12)
@given(choices)
def test_line_of_harmless_programs_starts_and_writes_nothing_else(trap: Trap, data: bytes) -> None:
    """Where every program is said to be `echo` or `true`, real shells start nothing else and write no file."""
    for line in lines_of(data, STARTS, PIECES):
        programs = split_command(line)
        if programs is None or not all(command_matches("echo *", words) or command_matches("true *", words) for words in programs):
            continue
        for shell in shells:
            assert not trap.run(shell, line), f"{line!r} in {shell}, read as {programs}"


ARGUMENTS = [
    *("p", "q", "p a", "q b", "a", "b c", " ", " ", ";", " ; ", "&&", "||", "|", "&", "'", '"'),
    *("';'", '"&&"', "'|'", "'a b'", "#", "'#'", "-x"),
]


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Trap:
    """Return a place with two programs that leave their arguments."""
    return Trap(tmp_path_factory.mktemp("recorder"), ["p", "q"])


@pytest.mark.slow
@pytest.mark.limit(120)
@walk_settings(max_examples=12)
@given(choices)
def test_programs_get_the_arguments_that_were_read(recorder: Trap, data: bytes) -> None:
    """What a shell starts is one of the programs that were read, with these arguments; after a `#` it may be less."""
    for line in lines_of(data, ["p ", "p a ", "q", "q b"], ARGUMENTS):
        programs = split_command(line)
        if programs is None or not {words[0] for words in programs} <= {"p", "q"} or "''" in line or '""' in line:
            continue
        read = [[word.replace("\\", "") for word in words] for words in programs]
        for shell in shells:
            for started in recorder.run(shell, line):
                assert started in read or ("#" in line and any(started == words[: len(started)] for words in read)), (line, started, read)


MORE_THAN_PROGRAMS = [
    *(
        "echo $(x)",
        "echo `x`",
        "echo a > m",
        "echo < a",
        "echo a & x",
        "echo a\nx",
        "echo a\rx",
        "echo \\\nx",
        "(x)",
        "{ x; }",
        "! x",
        "time x",
    ),
    *(
        "if true; then x; fi",
        "x |& a",
        "echo a;; x",
        "echo 'a",
        'echo "a',
        "",
        " ",
        ";",
        "; x",
        "x &&",
        "{x,-r,a}",
        "/bin/r[m] a",
        "r? a",
        "~/x",
        "$x",
    ),
    *("coproc x", "while true; do x; done", "function f { x; }", "echo a &&& x", "echo \0x", "case a in a) x;; esac"),
]


@pytest.mark.parametrize("line", MORE_THAN_PROGRAMS)
def test_line_in_which_the_shell_does_more_is_not_read(line: str) -> None:
    """It is in no pattern, it is asked about where a rule forbids commands, and a plan that names it is for somebody else to approve."""
    assert split_command(line) is None
    assert outside(Reach("bash", (), line), {"commands": ["echo *", "true *", "* *"]})
    rule = judge([Rule(DENY, command="rm *")], Reach("bash", (), line), "ann")
    assert rule is not None
    assert rule.action is ASK
    assert (
        judge_plan([Rule(ALLOW, command=word) for word in ("echo *", "x *", "! *", "time *", "if *")], {"commands": [line]}, "ann") is None
    )


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("rm a", 'rm a ";" echo b'),
        ("rm a", "rm a '&&' echo b"),
        ("rm '~'", "rm ~"),
        ("rm 'a*'", "rm a*"),
        ("rm '{a,b}'", "rm {a,b}"),
        ("rm a b", "rm 'a b'"),
        ("rm 'a b'", "rm a b"),
        ("rm '*'", "rm a b"),
        ("make *", "maker"),
        ("make *", "Make all"),
        ("make *", "/tmp/make all"),
        ("make *", "make\u00a0all"),
        ("make *", "\uff4dake all"),
        ("make *", "m\u0430ke all"),
        ("make *", "A=1 make all"),
        ("*", "make"),
        ("* all", "make all"),
        ("make; rm *", "rm a"),
        ("make\nrm *", "make rm a"),
        ("'make", "make"),
    ],
)
def test_command_pattern_holds_no_more_than_it_says(pattern: str, line: str) -> None:
    """Another command than the one that a pattern names is outside of it."""
    assert outside(Reach("bash", (), line), {"commands": [pattern, "echo *"]})


@pytest.mark.parametrize(
    "line", ["rm a", "/bin/rm a", "RM a", "r'm' a", "true; rm a", "true | rm", "A=1 rm a", "A=1 B=2 /bin/rm a", "echo a&&rm a"]
)
def test_denied_command_is_found_behind_what_hides_it(line: str) -> None:
    """Directory, case, quotes, variables and the programs before it do not hide a program from a rule that forbids it."""
    rule = judge([Rule(ALLOW), Rule(DENY, command="rm *")], Reach("bash", (), line), "ann")
    assert rule is not None
    assert rule.action is DENY


# -- plans and rules ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "plan", "verdict"),
    [
        ([Rule(ALLOW, path="src/**")], {"files": ["src/**"]}, ALLOW),
        ([Rule(ALLOW, path="src")], {"files": ["src/a.py", "./src//b"]}, ALLOW),
        ([Rule(ALLOW, path="src/**/*")], {"files": ["src/a"]}, ALLOW),
        ([Rule(ALLOW, command="make *")], {"commands": ["make *", "make a && make b"]}, ALLOW),
        ([Rule(ALLOW, path="src/**"), Rule(ASK)], {"files": ["src/a"]}, ALLOW),
        ([Rule(DENY, path="src/secret")], {"files": ["SRC/Secret/a"]}, DENY),
        ([Rule(ALLOW, command="make *"), Rule(DENY, command="rm *")], {"commands": ["make a; rm b"]}, DENY),
        # what nobody promised
        ([Rule(ALLOW, path="src/**")], {}, None),
        ([Rule(ALLOW, path="src/**")], {"files": ["**"]}, None),
        ([Rule(ALLOW, path="src/**")], {"files": ["src/../**"]}, None),
        ([Rule(ALLOW, path="src/**")], {"files": ["[s]rc/a"]}, None),
        ([Rule(ALLOW, path="src/*")], {"files": ["src/*"]}, None),
        ([Rule(ALLOW, path="**/[a-z]*")], {"files": ["src/**"]}, None),
        ([Rule(ALLOW, path="**/????????")], {"files": ["src/12345678/**"]}, None),
        ([Rule(ALLOW, "read_*", path="**")], {"files": ["src/**"]}, None),
        ([Rule(ALLOW, path="src/**", command="make *")], {"files": ["src/a"], "commands": ["make a"]}, None),
        ([Rule(ASK, path="src/secret"), Rule(ALLOW, path="src/**")], {"files": ["src/**"]}, None),
        ([Rule(DENY, path="**/.env"), Rule(ALLOW, path="src/**")], {"files": ["src/**"]}, None),
        ([Rule(DENY, "delete"), Rule(ALLOW, path="src/**")], {"files": ["src/**"]}, None),
        ([Rule(ALLOW, command="echo *")], {"commands": ["echo a; rm -rf b"]}, None),
        ([Rule(ALLOW, command="echo *")], {"commands": ["echo a\nrm -rf b"]}, None),
        ([Rule(ALLOW, command="echo *")], {"commands": ["echo $(rm -rf b)"]}, None),
        ([Rule(ALLOW, command="echo *")], {"commands": ["echo a", "*"]}, None),
        ([Rule(ALLOW, command="git *"), Rule(DENY, command="git push *")], {"commands": ["git *"]}, None),
        ([Rule(ALLOW, command="git *"), Rule(DENY, command="git push --force")], {"commands": ["git push *"]}, None),
        ([Rule(ASK, command="git push *"), Rule(ALLOW, command="git *")], {"commands": ["git *"]}, None),
        ([Rule(ALLOW, path="src/**", member="ben")], {"files": ["src/a"]}, None),
    ],
)
def test_rule_list_approves_a_plan_only_with_all_that_it_opens(
    rules: list[Rule], plan: dict[str, list[str]], verdict: RuleAction | None
) -> None:
    """A plan is approved by rules when every call that it would let pass is allowed by them, and none is forbidden or asked about."""
    assert judge_plan(rules, plan, "ann") is verdict


CALLS = [
    *(Reach("write", (parts,)) for parts in TREE if 0 < len(parts) < 3),
    *(
        Reach("bash", (), line)
        for line in ("rm a", "rm b", "rm a b", "rm *", "rm '*'", "rm a*", "rm ab", "rm", "rm a; rm b", "rm `a`", "rm\na")
    ),
    *(Reach("write", (("a",), ("b",))), Reach("write", (None,)), Reach("deploy"), Reach("bash", (("a",),), "rm a")),
]


def test_rule_for_a_call_allows_that_call_and_no_other() -> None:
    """What `always` adds fits the call it was made of, and of others only those below its path; where that cannot be, there is no rule."""
    refused: list[Reach] = []
    for reach in CALLS:
        try:
            rule = Rule.from_json(rule_for(reach, "ann").to_json())
        except ValueError:
            refused.append(reach)
            continue
        assert rule.fits(reach)
        for other in CALLS:
            below = bool(reach.paths) and bool(other.paths) and (other.paths[0] or ())[: len(reach.paths[0] or ())] == reach.paths[0]
            same_words = reach.command is not None and split_command(reach.command) == split_command(other.command or "") is not None
            assert not rule.fits(other) or other.tool == reach.tool, (str(rule), other)
            assert not rule.fits(other) or other == reach or below or same_words, (str(rule), other)
        assert judge([rule], reach, "ben") is None
    assert [reach.describe() for reach in refused] == ["bash `rm *`", "write a, b", "write a path that cannot be read", "deploy"]


@pytest.mark.parametrize("reach", CALLS[-20:])
def test_denial_counts_before_everything_else(reach: Reach) -> None:
    """In any place of the list, a rule that forbids is stronger than one that allows."""
    for rules in itertools.permutations([Rule(ALLOW), Rule(ASK), Rule(DENY, reach.tool)]):
        rule = judge(rules, reach, "ann")
        assert rule is not None
        assert rule.action is DENY
