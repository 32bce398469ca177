"""The translation of the provider's errors."""

from datetime import UTC, datetime, timedelta

import pytest

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
from teams.models.provider_errors import retry_after, translate

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)


def body(kind: str, message: str = "m", **details: str) -> object:
    """An error body as the provider writes it."""
    return {"type": "error", "error": {"type": kind, "message": message, "details": details or None}}


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 205000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens`",
        "Input is too long for requested model.",
        "the request exceeds the available context size, try increasing it",
        "This model's maximum context length is 8192 tokens",
    ],
)
def test_overflow_is_known_in_all_its_words(message: str) -> None:
    """Every wording of a request that does not fit is a ContextOverflow, in a stream too, and is never retried."""
    for status in (400, 200):
        error = translate(body("invalid_request_error", message), status=status)
        assert type(error) is ContextOverflow
        assert not error.retryable
        assert message in str(error)


@pytest.mark.parametrize(
    ("answer", "status", "kind"),
    [
        (body("invalid_request_error", "max_tokens: 500 > 429, at most 529"), 400, InvalidRequest),
        (body("invalid_request_error", "the tool said: prompt was long, 500 errors, 429"), 400, InvalidRequest),
        (body("overloaded_error"), 529, Overloaded),
        (body("overloaded_error"), 200, Overloaded),
        (body("api_error"), 500, Overloaded),
        (body("timeout_error"), 504, Overloaded),
        ("<html>502 Bad Gateway</html>", 502, Overloaded),
        (body("rate_limit_error"), 429, RateLimited),
        (None, 429, RateLimited),
        (body("rate_limit_error", "You have hit your monthly spend limit"), 429, QuotaExhausted),
        (body("rate_limit_error", "no", error_code="enforced_spend_limit_reached"), 429, QuotaExhausted),
        (body("billing_error"), 402, QuotaExhausted),
        (body("authentication_error"), 401, AuthenticationFailed),
        (body("permission_error"), 403, AuthenticationFailed),
        ({"error": "bad key"}, 401, AuthenticationFailed),
        (body("not_found_error", "model: x"), 404, UnknownModel),
        ("not here", 404, InvalidRequest),
        (body("request_too_large"), 413, ContextOverflow),
        (body("exceed_context_size_error"), 400, ContextOverflow),
        (body("strange_error"), 418, InvalidRequest),
        (body("strange_error"), 503, Overloaded),
        (body("strange_error"), 200, Overloaded),
        ({"message": "slow"}, 408, ModelConnectionError),
    ],
)
def test_kind_decides_and_no_number_in_a_text(answer: object, status: int, kind: type[ModelError]) -> None:
    """The type of the body counts, then the status; figures in a message mean nothing."""
    assert type(translate(answer, status=status, now=NOW)) is kind


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Sun, 01 Nov 2026 12:00:30 GMT"}, 30),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-3"}, None),
        ({"anthropic-ratelimit-requests-reset": "2026-11-01T12:00:20Z", "anthropic-ratelimit-requests-remaining": "0"}, 20),
        ({"anthropic-ratelimit-requests-reset": "2026-11-01T12:00:20Z", "anthropic-ratelimit-requests-remaining": "5"}, None),
        (
            {
                "anthropic-ratelimit-tokens-reset": "2026-11-01T12:01:00Z",
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-11-01T12:00:20Z",
                "anthropic-ratelimit-requests-remaining": "0",
            },
            60,
        ),
        ({"anthropic-ratelimit-tokens-reset": "later", "anthropic-ratelimit-tokens-remaining": "0"}, None),
    ],
)
def test_wait_is_read_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, milliseconds, dates and reset times; nonsense counts as nothing said."""
    assert retry_after(headers, NOW) == seconds


def test_provider_date_corrects_a_wrong_clock() -> None:
    """Reset times are read against the answer's own date."""
    headers = {
        "date": "Sun, 01 Nov 2026 12:00:00 GMT",
        "anthropic-ratelimit-requests-reset": "2026-11-01T12:00:20Z",
        "anthropic-ratelimit-requests-remaining": "0",
    }
    error = translate(body("rate_limit_error"), status=429, headers=headers, now=NOW - timedelta(hours=3))
    assert isinstance(error, RateLimited)
    assert error.retry_after_seconds == 20


def test_quota_names_its_reset() -> None:
    """The time at which access comes back is read out of the words."""
    message = "You have reached your specified API usage limits. You will regain access on 2026-11-02 at 00:00 UTC."
    error = translate(body("invalid_request_error", message), status=400, now=NOW, request_id="req_1")
    assert isinstance(error, QuotaExhausted)
    assert error.resets_in_seconds == 12 * 3600
    assert error.request_id == "req_1"
