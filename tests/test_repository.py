"""What holds for the repository as a whole: nothing of one machine in it, and no page that promises what is not there."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
TEXT_ENDINGS = {".cfg", ".ini", ".json", ".jsonl", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml", ""}

# Each is written with a class of one letter, so that this file does not name what it forbids.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:[w]ork|[r]oot|[h]ome/\w+|[U]sers/\w+|[o]pt/wheels)/")
REGISTRY_HOSTS = re.compile(r"[p]ypi\.org|[p]ythonhosted\.org|[r]egistry\.npmjs\.org|[d]eb\.debian\.org|[p]roxy\.golang\.org")

LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)#\s]+)")
NAMED_FILE = re.compile(r"`((?:benchmarks|compaction|docs|examples|protocols|teams|tests|tools|\.ci)/[\w./-]*[\w/-])`")
MAKE_COMMAND = re.compile(r"^\s*(?:\$ )?make ((?:[a-z-]+ ?)+)|`make ([a-z-]+)`", re.MULTILINE)


def _files() -> list[Path]:
    """List what is, or is about to be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    return [path for name in listed.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def _makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_no_file_names_a_machine_or_a_registry() -> None:
    """No file holds a path of somebody's machine, or the host of a package registry."""
    found: list[str] = []
    for path in _files():
        if path.suffix not in TEXT_ENDINGS:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found += [
                f"{path.relative_to(ROOT)}:{number}: {hit[0]}"
                for pattern in (MACHINE_PATHS, REGISTRY_HOSTS)
                for hit in pattern.finditer(line)
            ]
    assert found == []


def test_version_is_the_newest_in_the_changelog() -> None:
    """The version of the distribution is the one that the changelog tells of first."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    headings = re.findall(r"^## \[?([\d.]+\w*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == version


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_names_only_what_exists(page: Path) -> None:
    """Every relative link, every file of the project and every make target that a page names exists."""
    text = page.read_text(encoding="utf-8")
    missing = [target for target in LINK.findall(text) if not (page.parent / target).exists()]
    missing += [name for name in NAMED_FILE.findall(text) if not (ROOT / name).exists()]
    commands = {word for pair in MAKE_COMMAND.findall(text) for word in " ".join(pair).split()}
    missing += [f"make {command}" for command in sorted(commands - _makefile_targets())]
    assert missing == []


def test_makefile_targets_are_phony_and_few() -> None:
    """The targets that people type are the documented ones, and no file of such a name could hide one."""
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == _makefile_targets() == {"bench", "check", "clean", "demo", "format", "install", "test", "test-real"}
