"""What makes a directory a team's: its marker file `team.json` and its folders.

Needs no trio, whose import is what somebody who only looks in would wait for.
"""

import json
import os
import secrets
from pathlib import Path

from teams.errors import NotATeam

AGENT_VARIABLE = "TEAMS_AGENT"
"""Set in the environment of every command that an agent runs: there, the command `teams` decides and sends nothing in a person's name."""

FORMAT_VERSION = 1


def read_team_name(root: Path) -> str:
    """Return the name in a team directory; raise NotATeam when it is none."""
    try:
        data = json.loads((root / "team.json").read_text(encoding="utf-8"))
        version, name = data["format"], data["name"]
    except FileNotFoundError:
        inside = root / ".team"
        reason = "it has no team.json; open_team or 'teams demo' makes one" if root.exists() else "there is no such directory"
        if (inside / "team.json").exists():
            reason = f"it has no team.json, but {str(inside)!r} has: name that one"
        raise NotATeam(root, reason=reason) from None
    except NotADirectoryError:
        raise NotATeam(root, reason="it is a file") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotATeam(root, reason=f"its team.json cannot be read: {error}") from error
    if version != FORMAT_VERSION:
        raise NotATeam(root, reason=f"its format is {version}; this version of teams reads {FORMAT_VERSION}")
    return str(name)


def prepare_directory(root: Path, name: str | None) -> Path:
    """Make a new or empty directory a team's, or check that it is one; raise NotATeam when it cannot be."""
    marker = root / "team.json"
    if root.exists() and not root.is_dir():
        raise NotATeam(root, reason="it is a file")
    if not marker.exists():
        if root.exists() and any(root.iterdir()):
            raise NotATeam(root, reason="it has other things in it and no team.json; choose an empty or a new directory")
        root.mkdir(parents=True, exist_ok=True)
        data = {"id": secrets.token_hex(8), "name": name or root.resolve().parent.name or "team", "format": FORMAT_VERSION}
        temporary = root / f".team.json.{os.getpid()}.tmp"
        temporary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        temporary.replace(marker)
    read_team_name(root)
    for folder in ("journal", "sessions", "artifacts", "hosts"):
        (root / folder).mkdir(exist_ok=True)
    return root
