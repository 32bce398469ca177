"""The provider's errors as `teams.errors`: the one place that translates them.

Laws: the kind decides (the `error.type` of the body, then the HTTP status), never a number found in a text; an error that
arrives inside a stream has status 200, so its kind alone counts; every error keeps the provider's words and request id.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, cast

from teams.errors import (
    AuthenticationFailed,
    ContextOverflow,
    InvalidRequest,
    ModelConnectionError,
    ModelError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    UnknownModel,
)

# A request that does not fit, in the words of the first-party API, of older models, of Bedrock and of servers that speak the dialect.
_OVERFLOW = re.compile(
    r"(?:prompt|input) is too long|input length and `?max_tokens`? exceed context limit"
    r"|exceeds? (?:the )?(?:available |maximum |model's )?context|maximum context length",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"credit balance is too low|reached your specified (?:\w+ )*usage limits|spend(?:ing)? limit|insufficient (?:credit|quota|funds)",
    re.IGNORECASE,
)
_REGAIN = re.compile(r"regain access on (\d{4}-\d{2}-\d{2}) at (\d{2}:\d{2}) UTC")
_KIND_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "",  # without the provider's own body this is a wrong address, not a wrong model
    408: "request_timeout",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class ProviderError(NamedTuple):
    """What an error answer says, read out of its body."""

    kind: str
    message: str
    code: str = ""


def read_error_body(body: object) -> ProviderError:
    """Read kind, message and code out of a decoded error body, whatever its shape; what is absent is empty."""
    if not isinstance(body, Mapping):
        return ProviderError("", str(body or "")[:500])
    fields = cast("Mapping[str, Any]", body)
    error = fields.get("error")
    if not isinstance(error, Mapping):
        return ProviderError("", str(error or fields.get("message") or dict(fields))[:500])
    inner = cast("Mapping[str, Any]", error)
    details = inner.get("details")
    code = cast("Mapping[str, Any]", details).get("error_code") if isinstance(details, Mapping) else ""
    return ProviderError(str(inner.get("type") or ""), str(inner.get("message") or ""), str(code or ""))


def translate(
    body: object, *, status: int, headers: Mapping[str, str] | None = None, request_id: str | None = None, now: datetime | None = None
) -> ModelError:
    """Return the error that an error answer, or an error event of a stream, stands for.

    Args:
        body: the decoded JSON, or the raw text where it was none.
        status: the HTTP status; 200 for an event inside a stream.
        headers: the answer's headers, keys in lower case.
        now: against which reset times are read; the answer's own `date` header goes first, so clocks need not agree.
    """
    headers = headers or {}
    kind, message, code = read_error_body(body)
    known = kind or _KIND_OF_STATUS.get(status, "api_error" if status >= 500 else "")
    words = f"{message or known or 'no error text'} (HTTP {status}{', ' + known if known else ''})"
    now = _date_of(headers) or now or datetime.now(UTC)
    if (
        known == "billing_error"
        or "spend_limit" in code
        or (known in {"invalid_request_error", "rate_limit_error"} and _QUOTA.search(message))
    ):
        return QuotaExhausted(words, resets_in_seconds=_quota_reset(message, headers, now), request_id=request_id)
    if known in {"request_too_large", "exceed_context_size_error"} or (known == "invalid_request_error" and _OVERFLOW.search(message)):
        return ContextOverflow(words, request_id=request_id)
    match known:
        case "rate_limit_error":
            return RateLimited(words, retry_after_seconds=retry_after(headers, now), request_id=request_id)
        case "authentication_error" | "permission_error":
            return AuthenticationFailed(words, request_id=request_id)
        case "not_found_error":
            return UnknownModel(words, request_id=request_id)
        case "request_timeout":
            return ModelConnectionError(words, request_id=request_id)
        case "overloaded_error" | "api_error" | "timeout_error":
            return Overloaded(words, request_id=request_id)
        case _:
            pass  # a kind of a newer version: the status tells what it can
    if status >= 500 or status == 200:
        return Overloaded(words, request_id=request_id)
    if status == 404:
        words = f"nothing answers Messages requests at this address: {words}; check base_url"
    return InvalidRequest(words, request_id=request_id)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds to wait as the provider said, None when it did not.

    `retry-after-ms` and `retry-after` (seconds or a date) go first; then the latest reset among the limits of which
    nothing remains.
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return seconds
    if value and (moment := _http_date(value)) is not None:
        return max(0.0, (moment - now).total_seconds())
    waits = [
        wait
        for name, reset in headers.items()
        if name.startswith("anthropic-ratelimit-")
        and name.endswith("-reset")
        and _number(headers.get(f"{name.removesuffix('-reset')}-remaining")) == 0
        and (wait := _seconds_until(reset, now)) is not None
    ]
    return max(waits, default=None)


def _quota_reset(message: str, headers: Mapping[str, str], now: datetime) -> float | None:
    if found := _REGAIN.search(message):
        return _seconds_until(f"{found[1]}T{found[2]}:00+00:00", now)
    return retry_after(headers, now)


def _seconds_until(moment: str, now: datetime) -> float | None:
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return max(0.0, (parsed - now).total_seconds())


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < float("inf") else None


def _http_date(value: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _date_of(headers: Mapping[str, str]) -> datetime | None:
    value = headers.get("date")
    return _http_date(value) if value else None
