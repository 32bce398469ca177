"""What can go wrong at an endpoint, as values: a plan of faults is a list of these, one for each request.

An HTTP fault has a `status`; the others happen inside a stream, after a number of its events.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import trio

from teams.errors import AuthenticationFailed, ContextOverflow, InvalidRequest, Overloaded, QuotaExhausted, RateLimited, UnknownModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault; see the functions of this module."""

    status: int = 0
    kind: str = ""
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    after_events: int = 0
    cut: bool = False
    hold: trio.Event | None = None
    entered: trio.Event | None = None


def rate_limited(retry_after: float | None = None, **headers: str) -> Fault:
    """Refuse with 429; keyword arguments become headers, their underscores hyphens."""
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    if retry_after is not None:
        extra["retry-after"] = f"{retry_after:g}"
    message = "This request would exceed your organization's rate limit of 50 requests per minute."
    return Fault(status=429, kind="rate_limit_error", message=message, headers=extra)


def overloaded() -> Fault:
    """Refuse with 529."""
    return Fault(status=529, kind="overloaded_error", message="Overloaded")


def server_error() -> Fault:
    """Fail with 500."""
    return Fault(status=500, kind="api_error", message="Internal server error")


def overflow(tokens: int = 205_000, limit: int = 200_000) -> Fault:
    """Refuse a prompt that is too long."""
    return Fault(status=400, kind="invalid_request_error", message=f"prompt is too long: {tokens} tokens > {limit} maximum")


def quota_exhausted() -> Fault:
    """Refuse since the account has no credit."""
    message = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."
    return Fault(status=400, kind="invalid_request_error", message=message)


def cut_stream(after_events: int) -> Fault:
    """Close the connection in mid-stream."""
    return Fault(after_events=after_events, cut=True)


def slow_stream(hold: trio.Event, *, after_events: int = 0, entered: trio.Event | None = None) -> Fault:
    """Stop in mid-stream until `hold` is set; `entered` is set when the stream stands still."""
    return Fault(after_events=after_events, hold=hold, entered=entered)


def error_event(after_events: int, *, kind: str = "overloaded_error", message: str = "Overloaded") -> Fault:
    """Send an error event in mid-stream, under HTTP status 200."""
    return Fault(after_events=after_events, kind=kind, message=message)


def fault_of(error: BaseException) -> Fault | None:
    """Return the HTTP fault that makes a client raise this error, None where there is none."""
    match error:
        case RateLimited():
            return rate_limited(error.retry_after_seconds)
        case Overloaded():
            return overloaded()
        case ContextOverflow():
            return overflow()
        case QuotaExhausted():
            return quota_exhausted()
        case AuthenticationFailed():
            return Fault(status=401, kind="authentication_error", message=str(error))
        case UnknownModel():
            return Fault(status=404, kind="not_found_error", message=str(error))
        case InvalidRequest():
            return Fault(status=400, kind="invalid_request_error", message=str(error))
        case _:
            return None
