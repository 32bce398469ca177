"""The parts of a team that its members in this process share."""

from dataclasses import dataclass, field

from teams.artifacts import ArtifactStore
from teams.bus import MessageBus
from teams.engine import Engine
from teams.events import EventHub
from teams.models.base import Model
from teams.models.gateway import Gateway
from teams.options import TeamOptions
from teams.readiness import Claimers
from teams.sessions import SessionStore
from teams.tasks import TaskManager
from teams.waits import WaitGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One of each; built by `open_team`, read by whoever lives in the team."""

    name: str
    host: str
    options: TeamOptions
    engine: Engine
    bus: MessageBus
    tasks: TaskManager
    waits: WaitGraph
    claimers: Claimers
    events: EventHub
    gateway: Gateway
    model: Model
    sessions: SessionStore
    artifacts: ArtifactStore
    system_base: str = ""
    models: dict[str, Model] = field(default_factory=dict[str, Model])
