"""What the members of the bug-fix team do when no real model is at hand: scripts that read what they are sent.

Laws: every decision follows from the transcript: which tests failed, what they told, what stands in the source, what a command
printed, what the feedback on a plan says; nothing about this project's faults is written here. A developer whose repairs do not help says
so and fails the task.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from teams.cli.bugfix_findings import Failure, Fault, Place, read_fault, read_test_run
from teams.cli.bugfix_repairs import Repair, find_repairs
from teams.cli.bugfix_replay import Hand, Mail, replay
from teams.models.scripted import ScriptFunction

MAX_REVISIONS = 4
MAX_CHANGED_LINES = 12
"""A change that is larger is not reviewed as the mending of one fault."""

_TASK = re.compile(r"task (\d+)")
_PLAN = re.compile(r"plan (\S+) \(revision (\d+)\)")
_SCOPE = re.compile(r"[Oo]nly (?:touch )?(\S+/)")


def developer(hand: Hand) -> str:
    """Mend each fault that comes as a task, and run all tests when that is the task."""
    lessons: list[str] = []
    for mail in hand.mail:
        if mail.type == "task_assignment":
            fault = read_fault(mail.content)
            if fault is not None:
                _mend(hand, _number(mail), fault, lessons)
            else:
                _run_all(hand, _number(mail))
    return "I have nothing to do."


def reviewer(hand: Hand) -> str:
    """Say what is broken, answer each request for a review, and look at the whole change in the end."""
    verdicts: dict[str, bool] = {}
    for mail in hand.mail:
        asked = re.search(r"review (\S+) \(task", mail.content)
        if mail.type == "message" and asked is not None:
            verdicts[asked[1]] = _review(hand, mail, asked[1])
        elif mail.type == "task_assignment" and not verdicts:
            _diagnose(hand, _number(mail))
        elif mail.type == "task_assignment":
            _review_all(hand, _number(mail), verdicts)
    return "I have nothing to do."


# -- what a developer does ----------------------------------------------------------------


def _mend(hand: Hand, task: int, fault: Fault, lessons: list[str]) -> None:
    path = fault.place.path
    source = hand.do("read_file", f"Task {task}: the tests point to {fault.place.function} in {path}.", path=path).text
    repairs = find_repairs(fault, source)
    if not repairs:
        hand.do("task_fail", task_id=task, reason=f"I know no repair for this: {fault.tests} {fault.told}")
        return
    steps: list[str] = []
    if "submit_plan" in hand.system:
        refusal, steps = _get_approval(hand, fault, repairs, lessons)
        if refusal:
            hand.do("task_fail", task_id=task, reason=refusal)
            return
    for number, repair in enumerate(repairs, 1):
        if _try_step(hand, fault, repair, number if steps else None):
            if len(steps) > len(repairs) and steps[-1].startswith("Run "):
                _say_step(hand, len(steps), "in_progress", note="" if number == len(repairs) else "the repair has helped")
                _say_step(hand, len(steps), "done", output="they pass, as the repair showed")
            _hand_over(hand, task, fault, repair)
            return
    tried = "; ".join(repair.why for repair in repairs)
    reason = f"no repair that I know helps {fault.tests}, which {fault.told}; tried and taken back: {tried}"
    hand.do("task_fail", task_id=task, reason=reason)


def _try_step(hand: Hand, fault: Fault, repair: Repair, number: int | None) -> bool:
    """Try a repair, and say of the step that it is in the plan how it stands; None: there is no plan."""
    if number is None:
        return _try(hand, fault, repair)
    _say_step(hand, number, "in_progress")
    helped = _try(hand, fault, repair)
    if helped:
        _say_step(hand, number, "done", output=repair.why)
    else:
        _say_step(hand, number, "failed", note="the tests still fail; it is taken back")
    return helped


def _say_step(hand: Hand, number: int, status: str, **words: str) -> None:
    hand.do("plan_step", step=number, status=status, **{key: value for key, value in words.items() if value})


def _try(hand: Hand, fault: Fault, repair: Repair) -> bool:
    """Make the edit and run the failing tests; take it back when they still fail."""
    path = fault.place.path
    edit = hand.do("edit_file", f"I try this: {repair.why}.", path=path, old=repair.old, new=repair.new)
    if edit.is_error:  # somebody else changed the file since I read it: look again, once
        hand.do("read_file", path=path)
        edit = hand.do("edit_file", path=path, old=repair.old, new=repair.new)
    if edit.is_error:
        return False
    if hand.do("bash", command=f"{_test_command(hand)} {fault.tests}").succeeded:
        return True
    hand.do("edit_file", "That did not help: I take it back.", path=path, old=repair.new, new=repair.old)
    return False


def _hand_over(hand: Hand, task: int, fault: Fault, repair: Repair) -> None:
    path, line = fault.place.path, repair.line
    change = f"-{repair.old}\n+{repair.new}"
    content = f"Please review {path} (task {task}), line {line}: {repair.why}.\n{change}\nThese tests pass now: {fault.tests}"
    hand.do("send_message", to=_said(hand, r"ask (\w+) for a review"), content=content)
    hand.do("task_complete", task_id=task, result=f"{path}, line {line}: {repair.why}; passing now: {_count(fault.failures)}")


def _get_approval(hand: Hand, fault: Fault, repairs: Sequence[Repair], lessons: list[str]) -> tuple[str, list[str]]:
    """Submit a plan, revise it by the feedback, and return no reason and its steps once it is approved; otherwise the reason why not.

    `lessons` is the feedback on all plans so far: no plan repeats what was wrong with an earlier one.
    """
    path, tests = fault.place.path, _file_of(fault.failures[0])
    attempts = [f"{path}, line {repair.line}: {repair.why}" for repair in repairs]
    plan: dict[str, Any] = {
        "summary": f"Mend {fault.place.function} in {path}: {fault.failures[0].test} {fault.told}.",
        "steps": [*attempts, f"Should {tests} still disagree, change what it expects"],
        "files": [path, tests],
        "commands": [f"{_test_command(hand)} *"],
        "risk": f"other callers of {fault.place.function} may count on what it does now",
    }
    for lesson in lessons:
        plan = _revise(plan, lesson, fault)
    for _ in range(MAX_REVISIONS):
        submitted = hand.do("submit_plan", **plan)
        found = _PLAN.search(submitted.text)
        if submitted.is_error or found is None:
            return f"my plan could not be submitted: {submitted.text}", []
        request, revision = found[1], f"(revision {found[2]})"

        def decides(mail: Mail, request: str = request, revision: str = revision) -> bool:
            return mail.type == "plan_approval_response" and mail.request_id == request and revision in mail.content

        decision = hand.wait(decides, f"I wait for the decision on plan {request} {revision}.")
        if decision.approved:
            return "", list(plan["steps"])
        lessons.append(decision.content)
        revised = _revise(plan, decision.content, fault)
        if revised == plan:
            break
        plan = revised
    return f"my plan was rejected, and I cannot make it better: {' '.join(lessons[-1:])}", []


def _revise(plan: Mapping[str, Any], feedback: str, fault: Fault) -> dict[str, Any]:
    """Follow the feedback as far as it is understood: keep to a folder, run the tests."""
    files, steps = list(plan["files"]), list(plan["steps"])
    scope = _SCOPE.search(feedback)
    if scope is not None:
        dropped = [file for file in files if not file.startswith(scope[1])]
        files = [file for file in files if file not in dropped]
        steps = [step for step in steps if not any(file in step for file in dropped)]
    check = f"Run {fault.tests}: no step is done before they pass"
    if re.search(r"\brun", feedback) and check not in steps:
        steps.append(check)
    return {**plan, "files": files, "steps": steps}


def _run_all(hand: Hand, task: int) -> None:
    run = hand.do("bash", f"Task {task}: all tests once more.", command=_test_command(hand))
    findings = read_test_run(run.text, ())
    if run.succeeded:
        hand.do("task_complete", task_id=task, result=f"all {findings.total} tests pass")
    else:
        failed = ", ".join(failure.test for failure in findings.failures) or "the run itself"
        hand.do("task_fail", task_id=task, reason=f"still failing: {failed}")


# -- what a reviewer does -----------------------------------------------------------------


def _diagnose(hand: Hand, task: int) -> None:
    """Run the tests, find the places to which the failures point, and make a task of each, with a review and a last run behind them."""
    files = hand.do("glob", "First I look at what is there.", pattern="**/*.py").text.splitlines()
    run = read_test_run(hand.do("bash", command=_test_command(hand)).text, files)
    faults, following = _split(hand, _group(hand, run.failures))
    if not faults:
        hand.do("task_complete", task_id=task, result=f"nothing to mend: {run.total} tests ran, {len(run.failures)} failed")
        return
    developers = _said(hand, r"developers? ((?:\w+, )*\w+ and \w+|\w+)").replace(" and ", ", ").split(", ")
    fixes: list[int] = []
    for index, fault in enumerate(faults):
        words = f"{len(run.failures)} of {run.total} tests fail, for {len(faults)} reasons." if not index else ""
        subject, owner = f"Mend {fault.place.function} in {fault.place.path}", developers[index % len(developers)]
        fixes.append(_create(hand, words, subject=subject, description=fault.describe(), blocked_by=[task], assignee=owner))
    myself = _said(hand, r"You are (\w+)", system=True)
    review = _create(hand, subject="Review the whole change", description="After the fixes.", blocked_by=fixes, assignee=myself)
    _create(hand, subject="Run all tests", description="The last word.", blocked_by=[review], assignee=developers[-1])
    result = f"{len(run.failures)} of {run.total} tests fail, in {', '.join(fault.place.function for fault in faults)}"
    if following:
        result += f"; likely to follow from these: {', '.join(failure.test for fault in following for failure in fault.failures)}"
    hand.do("task_complete", task_id=task, result=result)


def _group(hand: Hand, failures: Sequence[Failure]) -> list[Fault]:
    """Put failures together that point to one function, in the order of the files."""
    places: dict[tuple[str, str], tuple[Place, list[Failure]]] = {}
    for failure in failures:
        place = failure.place or _definition(hand, failure)
        if place is not None:
            places.setdefault((place.path, place.function), (place, []))[1].append(failure)
    return [Fault(place, tuple(found)) for _, (place, found) in sorted(places.items())]


def _definition(hand: Hand, failure: Failure) -> Place | None:
    """Find the function that the failing line of a test calls."""
    for function in failure.calls:
        found = hand.do("grep", f"Where does {failure.test} lead?", pattern=f"def {function}", include="**/*.py").text
        for path, line in re.findall(rf"^(\S+):(\d+):\s+def {function}\(", found, re.MULTILINE):
            if "test" not in path:
                return Place(path, function, int(line))
    return None


def _split(hand: Hand, faults: Sequence[Fault]) -> tuple[list[Fault], list[Fault]]:
    """Part the faults from what may only follow from them: wrong values of a module that uses a module at fault."""
    first: list[Fault] = []
    following: list[Fault] = []
    for fault in faults:
        others = [other.place.path.removesuffix(".py").replace("/", ".") for other in faults if other.place.path != fault.place.path]
        source = hand.do("read_file", path=fault.place.path).text
        uses = any(re.search(rf"^(?:from|import) {re.escape(other)}\b", source, re.MULTILINE) for other in others)
        (following if uses and all(failure.kind == "FAIL" for failure in fault.failures) else first).append(fault)
    return first, following


def _review(hand: Hand, mail: Mail, path: str) -> bool:
    """Look at the diff, run the tests that are said to pass, and answer the request."""
    diff = hand.do("bash", f"{mail.sender} asks for a review of {path}.", command=f"git diff -- {path}").text
    changed = [line for line in diff.splitlines() if re.match(r"[+-](?![+-]{2} )", line)]
    tests = re.search(r"These tests pass now: (.+)", mail.content)
    problems: list[str] = []
    if not changed:
        problems.append(f"git knows of no change in {path}")
    if len(changed) > MAX_CHANGED_LINES:
        problems.append(f"{len(changed)} changed lines are too many for one fault")
    if tests is None or not hand.do("bash", command=f"{_test_command(hand)} {tests[1]}").succeeded:
        problems.append("the tests that you name do not pass here")
    verdict = f"Please change this: {'; '.join(problems)}." if problems else f"Approved: {_lines(changed)}, and the tests pass here too."
    hand.do("send_message", to=mail.sender, content=verdict, request_id=mail.id)
    return not problems


def _review_all(hand: Hand, task: int, verdicts: Mapping[str, bool]) -> None:
    status = hand.do("bash", f"Task {task}: is there anything that nobody asked me about?", command="git status --porcelain").text
    changed = re.findall(r"^.. (\S+)$", status, re.MULTILINE)
    unseen = [path for path in changed if not verdicts.get(path)]
    if unseen or not changed:
        hand.do("task_fail", task_id=task, reason=f"not approved: {', '.join(unseen) or 'there is no change at all'}")
    else:
        hand.do("task_complete", task_id=task, result=f"approved: {', '.join(changed)}; nothing else is changed")


# -- what both do -------------------------------------------------------------------------


def _create(hand: Hand, words: str = "", **fields: Any) -> int:
    return int(_TASK.findall(hand.do("task_create", words, **fields).text)[0])


def _number(mail: Mail) -> int:
    return int(_TASK.findall(mail.content)[0])


def _test_command(hand: Hand) -> str:
    return _said(hand, r"Run the tests with `([^`]+)`", system=True)


def _said(hand: Hand, pattern: str, *, system: bool = False) -> str:
    """Find what the member was told: in its system prompt, or in its first mail."""
    found = re.search(pattern, hand.system if system else hand.mail[0].content)
    return found[1] if found else ""


def _file_of(failure: Failure) -> str:
    return "/".join(failure.test.split(".")[:-2]) + ".py"


def _count(failures: Sequence[Failure]) -> str:
    return f"{len(failures)} test{'s' if len(failures) != 1 else ''}"


def _lines(changed: Sequence[str]) -> str:
    added = sum(line.startswith("+") for line in changed)
    return f"{added} line{'s' if added != 1 else ''} added, {len(changed) - added} removed"


SCRIPTS: Mapping[str, ScriptFunction] = {"ann": replay(developer), "ben": replay(developer), "cora": replay(reviewer)}
"""By member."""
