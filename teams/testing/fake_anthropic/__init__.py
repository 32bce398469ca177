"""A strict Messages endpoint for tests, over real HTTP on the loopback."""

from teams.testing.fake_anthropic.faults import (
    Fault,
    cut_stream,
    error_event,
    overflow,
    overloaded,
    quota_exhausted,
    rate_limited,
    server_error,
    slow_stream,
)
from teams.testing.fake_anthropic.server import FakeAnthropic, Recorded, open_fake_anthropic

__all__ = [
    "FakeAnthropic",
    "Fault",
    "Recorded",
    "cut_stream",
    "error_event",
    "open_fake_anthropic",
    "overflow",
    "overloaded",
    "quota_exhausted",
    "rate_limited",
    "server_error",
    "slow_stream",
]
