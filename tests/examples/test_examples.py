"""Every example runs offline within its time, shows what its first lines promise, and says in one line that `--live` needs a key."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = sorted((REPOSITORY / "examples").glob("[0-9][0-9]_*.py"))
LIMIT_SECONDS = 25
MAX_LINES = 100


def run(name: str, *arguments: str, given: str = "", directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run an example as a person would, without any key; new temporary directories go under `directory`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    if directory is not None:
        environment["TMPDIR"] = str(directory)
    (example,) = (path for path in EXAMPLES if path.name.startswith(name))
    command = [sys.executable, str(example), *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment, check=False)


def output_of(name: str, *arguments: str, given: str = "", directory: Path | None = None) -> str:
    """Run an example that must succeed in silence on stderr, and return what it printed."""
    done = run(name, *arguments, given=given, directory=directory)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def assert_in_order(text: str, *patterns: str) -> None:
    """Find the patterns one after the other."""
    at = 0
    for pattern in patterns:
        found = re.compile(pattern, re.MULTILINE).search(text, at)
        assert found is not None, f"{pattern!r} is not after {text[:at]!r} in\n{text}"
        at = found.end()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_says_what_one_sees(example: Path) -> None:
    """An example has at most 100 lines, begins with its idea, and tells how it is run."""
    text = example.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert text.startswith('"""')
    assert f"python examples/{example.name}" in text
    assert "--live" in text


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_live_without_a_key_is_one_clear_line(example: Path) -> None:
    """Without a key, `--live` ends at once with exit code 1 and a line that names the variable to set; nothing is printed before."""
    done = run(example.name, "--live")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"cannot use model '[\w-]+': no key; set ANTHROPIC_API_KEY .*\n", done.stderr)


@pytest.fixture(scope="module")
def refusing() -> Generator[str]:
    """The address of an endpoint that refuses every key."""

    class Refuse(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b'{"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}'
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the base class names it
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


ENDING = [example for example in EXAMPLES if example.name[:2] in ("02", "05", "07", "10")]
"""One of each way to end: events until an error, a lead, a loop without a team, children of the script's own."""


@pytest.mark.slow
@pytest.mark.parametrize("example", ENDING, ids=lambda path: path.stem)
def test_refused_key_is_told_and_is_a_failure(example: Path, refusing: str) -> None:
    """With a key that the endpoint refuses, the example says so and ends with exit code 1, without a traceback."""
    environment = {**os.environ, "ANTHROPIC_API_KEY": "wrong", "ANTHROPIC_BASE_URL": refusing}
    command = [sys.executable, str(example), "--live"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment, check=False)
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert "401" in done.stdout + done.stderr or "x-api-key" in done.stdout + done.stderr


def test_hello_agent_uses_its_tool_and_remembers() -> None:
    """The agent answers by what its tool said, and its second turn knows the first."""
    assert_in_order(output_of("01"), r"^tool   7$", r"^agent  It has 7 words", r"^agent  You asked 2 things")


def test_two_teammates_question_answer_and_report() -> None:
    """The answer names the question's id, and the report holds the answer."""
    text = output_of("02")
    asked = re.search(r"^(m\d+)  ann -> ben: Which day", text, re.MULTILINE)
    assert asked is not None
    assert_in_order(text, rf"ben -> ann \(answers {asked[1]}\): On Thursday", r"ann -> lead: Ben says: On Thursday\.$")


def test_plan_is_rejected_then_approved_by_policy() -> None:
    """Only the plan inside the allowed folder is approved, and only then the file is written."""
    text = output_of("03")
    assert_in_order(
        text, r"revision 1: .*README\.md", "rejected", r"revision 2: .*: docs/hello\.md$", "approved", r"^written: docs/hello\.md$"
    )


@pytest.mark.parametrize(
    ("given", "patterns"), [("too much\n\n", ["revision 1", "revision 2", r"written: docs/hello\.md"]), ("\n", ["revision 1"])]
)
def test_person_decides_at_the_terminal(given: str, patterns: list[str]) -> None:
    """With --ask, what the person types is the feedback, and an empty line is a yes."""
    text = output_of("03", "--ask", given=given)
    assert_in_order(text, *patterns)
    assert ("revision 2" in text) == ("revision 2" in patterns)
    assert "written: docs/hello.md" in text


def test_diamond_runs_in_order_and_is_shared() -> None:
    """Design comes before both sides, release after both, and both developers take a part."""
    text = output_of("04")
    assert_in_order(text, r"\[1\] then \[2, 3\] then \[4\]", r"1 -> [23] -> 4", "takes 1 design", "1 design: .* done")
    for side in ("2 backend", "3 frontend"):
        assert_in_order(text, "1 design: ", f"takes {side}", f"{side}: ", "takes 4 release", "all done: True")
    assert {"ann", "ben"} == set(re.findall(r"^(\w+) takes", text, re.MULTILINE))


def test_lead_agent_leads_from_spawn_to_shutdown() -> None:
    """The lead spawns, rejects, approves and ends its teammate by tools of its own, and reports."""
    text = output_of("05")
    reviewed = (r'^boss  review_plan .*"approve": false', r"^dev   submit_plan", r'^boss  review_plan .*"approve": true')
    assert_in_order(text, "^boss  spawn_teammate", *reviewed, "^dev   write_file", "^boss  request_shutdown", "^boss says: It is written")
    assert text.count("write_file") == 1


@pytest.mark.slow
def test_bugfix_team_shows_its_tools_and_its_report(tmp_path: Path) -> None:
    """The example prints tool calls as they come, and the report ends with the two commands that explain the directory."""
    text = output_of("06", directory=tmp_path)
    for member, used in (("cora", "bash"), ("ann", "submit_plan"), ("ben", "edit_file")):
        assert_in_order(text, "17 tests, 4 fail", rf"^  {member} +{used} ", "^Done: 17 tests, all pass")
    assert_in_order(text, r"^    \S*teams status \S+\.team$", r"^    \S*teams log \S+\.team$")


def test_a_plain_loop_is_kept_in_its_window_and_recalls() -> None:
    """Without a team, 30 chapters are read in a window that holds a few, and what was cut is found."""
    text = output_of("07")
    assert_in_order(
        text,
        r"^compacted by size: elide; 1\d,\d+ -> \d,\d+ tokens",
        "I have read all 30 chapters",
        r"recall finds: Chapter 2\. Captain C-2",
    )


def test_plan_is_a_contract_and_its_steps_are_kept() -> None:
    """What the plan names runs unasked; the two commands that it does not name are asked for, one refused and one allowed."""
    text = output_of("08")
    assert_in_order(
        text,
        r"^plan of ann: files docs/\*\*; commands none",
        r"^ann asks to run bash `rm -rf docs`\n  outside of the approved plan: .* \(it names none\)\n  -> refused",
        r"^ann asks to run bash `ls docs`\n.*\n  -> allowed",
        r"^step 1 done: Write it \(docs/guide.md has two lines\)\nstep 2 done",
        r"^written: docs/guide\.md",
    )


def test_chain_decides_by_rules_then_by_a_quorum() -> None:
    """The rules decide the plans that they cover or forbid; two of three reviewers decide the third."""
    text = output_of("09")
    assert "plan of ann is approved by policy: by the rules" in text
    assert "plan of ben is rejected by policy: the rules forbid a part of it" in text
    assert re.search(r"^plan of cora is approved by (vera|victor): ", text, re.MULTILINE)
    assert len(re.findall(r"^  v\w+ approved: looks right", text, re.MULTILINE)) == 2


def test_steering_shows_what_mail_waits_behind_and_when_it_is_seen() -> None:
    """Mail of priority `tool` is seen once the tool has ended, `now` cuts it short, and `turn` comes last of all."""
    text = output_of("10")
    assert_in_order(
        text,
        r"turn  'Thank you\.' is stored; waits behind: measure, 1 s$",
        r"tool  'Measure B\.' is stored; waits behind: measure, 1 s$",
        r"measure A ends$",
        r"seen  'Measure B\.'$",
        r"measure B is cut short$",
        r"seen  'Stop: B is broken\.'$",
        r"seen  'Thank you\.'$",
    )
    assert "now   'Stop: B is broken.' is stored; waits behind: nothing" in text
    assert "measure B ends" not in text


def test_three_days_show_every_cause() -> None:
    """Each cause that has a figure, and those that are raised by name, are seen at work."""
    text = output_of("12")
    for cause in ("all_tools", "tool_calls", "step_boundary", "elapsed", "cold_cache", "size", "asked", "overflow"):
        assert re.search(rf"^ *[\d.]+  {cause} ", text, re.MULTILINE), cause
    assert "summary" in text
