"""Bodies that are too large for a context or a message, each in a file of its own that is never changed.

Law: an artifact is durable before anything that names it; its id is the hash of its text, so the same text is stored once.
"""

import hashlib
import os
from pathlib import Path

import trio

from teams.errors import UsageError
from teams.state.roster import check_name

ID_CHARS = 16


class ArtifactStore:
    """The artifacts of a team, by owner, in `artifacts/<owner>/<id>`; in memory when there is no directory."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._kept: dict[tuple[str, str], str] = {}

    def name(self, text: str) -> str:
        """Return the id that the text has or would have."""
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:ID_CHARS]

    async def save(self, owner: str, text: str) -> str:
        """Store a text and return its id; durable when this returns.

        Checkpoints: always; when Cancelled, it may be stored, and nothing names it.
        """
        artifact_id = self.name(text)
        if self._directory is None:
            self._kept[owner, artifact_id] = text
            await trio.lowlevel.checkpoint()
            return artifact_id
        await trio.to_thread.run_sync(_write_once, self._path(owner, artifact_id), text)
        return artifact_id

    def save_now(self, owner: str, text: str) -> str:
        """Store a text from a worker thread or a short callback, and return its id."""
        artifact_id = self.name(text)
        if self._directory is None:
            self._kept[owner, artifact_id] = text
        else:
            _write_once(self._path(owner, artifact_id), text)
        return artifact_id

    async def load(self, owner: str, artifact_id: str) -> str:
        """Return the text of an artifact; raise UsageError when there is none.

        Checkpoints: always.
        """
        if self._directory is None:
            await trio.lowlevel.checkpoint()
            text = self._kept.get((owner, artifact_id))
        else:
            text = await trio.to_thread.run_sync(_read, self._path(owner, artifact_id))
        if text is None:
            raise UsageError(f"cannot load artifact {artifact_id!r} of {owner!r}: there is none of that id")
        return text

    async def find(self, artifact_id: str) -> str | None:
        """Return the text of an artifact, whoever owns it; None when there is none. Whoever knows an id was shown it.

        Checkpoints: always.
        """
        check_name(artifact_id)
        if self._directory is None:
            await trio.lowlevel.checkpoint()
            return next((text for (_, known), text in self._kept.items() if known == artifact_id), None)
        return await trio.to_thread.run_sync(_find, self._directory, artifact_id)

    def _path(self, owner: str, artifact_id: str) -> Path:
        assert self._directory is not None
        return self._directory / check_name(owner) / check_name(artifact_id)


def _write_once(path: Path, text: str) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _find(directory: Path, artifact_id: str) -> str | None:
    found = (_read(owner / artifact_id) for owner in directory.iterdir()) if directory.is_dir() else ()
    return next((text for text in found if text is not None), None)


def _read(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="surrogatepass", newline="") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
