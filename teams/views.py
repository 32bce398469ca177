"""What people and other tools read: files that show the team's state in keys that they know, written behind the commit.

Laws: the journal is the truth and no view is ever read back; a view is written whole, to a temporary file that takes the old one's name;
views are off the path of every command, and many changes between two passes cost one write.
"""

import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from teams.engine import Engine
from teams.journal.records import Record
from teams.state.mailboxes import Mail
from teams.state.shown import config_view, task_view


class ViewWriter:
    """Writes `config.json`, `tasks/task_<id>.json` and `inbox/<name>.jsonl`; `run` works until cancelled."""

    def __init__(
        self, engine: Engine, root: Path, *, team_name: str, interval_seconds: float, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self._engine, self._root, self._team_name = engine, root, team_name
        self._interval_seconds, self._report = interval_seconds, report
        self._config = True
        self._tasks: set[int] = set(engine.state.tasks.by_id)
        self._inboxes: set[str] = set(engine.state.mail.unread)
        self._shown: set[str] = {path.stem for path in (root / "inbox").glob("*.jsonl")}
        self._inboxes |= self._shown
        self._lot = trio.lowlevel.ParkingLot()
        engine.listen(self._note)

    async def run(self) -> None:
        """Write what has changed, pass after pass, until cancelled."""
        while True:
            if not (self._config or self._tasks or self._inboxes):
                await self._lot.park()
                continue
            try:
                await self.flush()
            except OSError as error:  # a view is no reason to end a team; the next pass makes up for it
                self._report(f"the views in {self._root} could not be written: {error}")
            await trio.sleep(self._interval_seconds)

    async def flush(self) -> None:
        """Write what has changed so far.

        Checkpoints: always; when Cancelled, every file is whole, and what was not written is written by the next pass of any process.
        """
        changed = self._config, self._tasks, self._inboxes
        files = self._collect()
        try:
            await trio.to_thread.run_sync(_write_all, self._root, files)
        except BaseException:  # cancelled before the thread began, or a disk that refused: the next pass makes up for it
            self._config = self._config or changed[0]
            self._tasks |= changed[1]
            self._inboxes |= changed[2]
            raise

    def _note(self, records: Sequence[Record]) -> None:
        for record in records:
            kind, fields = record.kind, record.fields
            if kind == "mail.sent":
                self._inboxes.update(fields["to"])
            elif kind == "mail.committed":
                self._inboxes.add(fields["member"])
            elif kind.startswith("task."):
                self._note_task(kind, fields)
            elif kind.startswith("member."):
                self._config = True
        self._lot.unpark()

    def _note_task(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "task.renewed":
            return
        task_id = fields["id"]
        tasks = self._engine.state.tasks
        self._tasks.add(task_id)
        if kind == "task.changed":
            self._tasks.update(tasks.dependents.get(task_id, ()))
        else:
            self._tasks.update(tasks.blockers.get(task_id, ()))

    def _collect(self) -> "list[_File]":
        state = self._engine.state
        files: list[_File] = []
        if self._config:
            files.append(("config.json", _json(config_view(state, self._team_name))))
        files += [(f"tasks/task_{task_id}.json", _json(task_view(state, state.tasks.by_id[task_id]))) for task_id in self._tasks]
        for name in self._inboxes:
            box = state.mail.unread.get(name)
            path = f"inbox/{name}.jsonl"
            if box:
                files.append((path, partial(_inbox_view, list(box.values()), name)))
                self._shown.add(name)
            elif name in self._shown:
                files.append((path, None))
                self._shown.discard(name)
        self._config, self._tasks, self._inboxes = False, set(), set()
        return files


_File = tuple[str, Callable[[], str] | str | None]
"""A name below the root, and its content: text, what makes the text in the worker thread, or None for no file."""


def _json(value: dict[str, Any], indent: int | None = 2) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent).encode(errors="replace").decode() + "\n"


def _inbox_view(mails: Sequence[Mail], name: str) -> str:
    return "".join(_json(mail.as_json(name), indent=None) for mail in mails)


def _write_all(root: Path, files: Sequence[_File]) -> None:
    for folder in ("tasks", "inbox"):
        (root / folder).mkdir(exist_ok=True)
    for name, content in files:
        path = root / name
        if content is None:
            path.unlink(missing_ok=True)
            continue
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_text(content if isinstance(content, str) else content(), encoding="utf-8")
        temporary.replace(path)
