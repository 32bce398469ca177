"""A plan is bounded, holds nothing blank, and tells truly where its files lie."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import protocols.plan_approval
from protocols import Plan

INSIDE = ["src/a.py", "src", "./src/a.py", "src//b/./c.py", "src/.hidden", "src/...", "  src/padded.py  ", "src/a b.py", "src/*.py"]
OUTSIDE = [
    *(
        "src2/a.py",
        "srcs",
        "Src/a.py",
        "a/src/b.py",
        "/src/a.py",
        "//src/a.py",
        "/",
        "..",
        "../src/a.py",
        "src/../etc",
        "src/..",
        ".",
        "./",
    ),
    *("src/a/../../b", "./../src/a.py", "~/src/a.py", "~root/src", "C:/src/a.py", "c:src/a.py", "src\\..\\..\\etc", "src\\a.py"),
    *("src/\x00", "src/a\n/etc"),
]


def plan(*files: str) -> Plan:
    """Make a plan that means to touch these files."""
    return Plan(summary="s", steps=("one",), files=files)


@pytest.mark.parametrize("file", INSIDE)
def test_plan_touches_what_lies_inside(file: str) -> None:
    """A file under the prefix counts as inside, however the path is written."""
    assert plan(file).touches_only("src/")
    assert plan(file).touches_only("docs", "./src")
    assert plan(file).touches_only(".")


@pytest.mark.parametrize("file", OUTSIDE)
def test_plan_touches_nothing_that_lies_outside(file: str) -> None:
    """A file beside the prefix, an absolute one, a climbing one and an unreadable one are outside; one of them spoils the whole plan."""
    assert not plan(file).touches_only("src/")
    assert not plan("src/good.py", file).touches_only("src/")


def test_plan_without_files_promises_nothing() -> None:
    """A plan that names no file is not one that stays inside, and with no prefix nothing is allowed."""
    assert not plan().touches_only("src/")
    assert not plan().touches_only(".")
    assert not plan("src/a.py").touches_only()


@pytest.mark.parametrize("prefix", ["", "/src", "..", "src/../..", "~", "C:", "a\\b"])
def test_plan_refuses_a_prefix_that_is_no_plain_path(prefix: str) -> None:
    """A prefix that could never hold anything is the caller's mistake and is said so."""
    with pytest.raises(ValueError, match="cannot be a prefix"):
        plan("src/a.py").touches_only("src", prefix)


@given(st.lists(st.sampled_from(["src", "src2", "a", ".", "..", ""]), min_size=1, max_size=6).map("/".join).filter(str.strip))
def test_plan_agrees_with_pathlib(file: str) -> None:
    """For all small paths the answer is that of the standard library's reading of them."""
    path = PurePosixPath(file)
    inside = not path.is_absolute() and ".." not in path.parts and path.parts[:1] == ("src",)
    assert plan(file).touches_only("src/") == inside


@pytest.mark.parametrize(
    "fields",
    [
        {"summary": " \n", "steps": ["a"]},
        {"summary": "s", "steps": []},
        {"summary": "s", "steps": ["a", "  "]},
        {"summary": "s", "steps": ["a"], "files": [""]},
        {"summary": "s" * 4001, "steps": ["a"]},
        {"summary": "s", "steps": ["a"] * 101},
        {"summary": "s", "steps": ["a" * 2001]},
        {"summary": "s", "steps": ["a"], "files": ["f"] * 501},
        {"summary": "s", "steps": ["a"], "approved": True},
        {"summary": "s", "steps": "abc"},
    ],
)
def test_plan_refuses_what_is_blank_or_endless(fields: dict[str, object]) -> None:
    """Blank, missing, unbounded and unknown parts are refused."""
    with pytest.raises(ValidationError):
        Plan.model_validate(fields)


def test_plan_is_frozen_and_round_trips() -> None:
    """A plan survives JSON, cannot be changed, and is the same class from both of its doors."""
    original = Plan(summary=" Fix it ", steps=("read", "write"), files=("src/a.py",))
    assert Plan.model_validate_json(original.model_dump_json()) == original
    assert original.summary == "Fix it"
    with pytest.raises(ValidationError):
        original.summary = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue] -- the refusal is tested
    assert protocols.plan_approval.Plan is Plan
    with pytest.raises(AttributeError, match="nonsense"):
        getattr(protocols.plan_approval, "nonsense")  # noqa: B009 -- type checkers would refuse the plain attribute


def test_plan_renders_all_that_is_to_be_judged() -> None:
    """The text holds the summary, the numbered steps and the files."""
    assert Plan(summary="Fix it", steps=("read", "write"), files=("a.py",)).render() == (
        "Summary: Fix it\n\nSteps:\n1. read\n2. write\n\nFiles:\n- a.py"
    )
    assert plan().render().endswith("Files:\n- none named")
