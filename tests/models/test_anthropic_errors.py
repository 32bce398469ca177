"""What the real client makes of the failures of a strict endpoint, over HTTP."""

import os
from typing import TYPE_CHECKING

import pytest
import trio

from compaction.transcript import ModelMessage
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
from teams.models import AnthropicExtra, AnthropicModel, Gateway, GatewayOptions, ModelRequest
from teams.testing.fake_anthropic import (
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

if TYPE_CHECKING:
    from tests.models.conftest import OpenEndpoint


def request(text: str = "go") -> ModelRequest:
    """A request of one agent."""
    return ModelRequest(agent="ann", messages=(ModelMessage("user", text),), max_tokens=200)


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        (rate_limited(7), RateLimited, "rate limit"),
        (overloaded(), Overloaded, "Overloaded"),
        (server_error(), Overloaded, "Internal server error"),
        (overflow(), ContextOverflow, "prompt is too long: 205000 tokens"),
        (quota_exhausted(), QuotaExhausted, "credit balance is too low"),
        (error_event(3), Overloaded, "Overloaded"),
        (error_event(0, kind="rate_limit_error", message="slow"), RateLimited, "slow"),
        (error_event(2, kind="invalid_request_error", message="prompt is too long"), ContextOverflow, "too long"),
        (cut_stream(4), ModelConnectionError, "cut"),
        (cut_stream(0), ModelConnectionError, "cut"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
async def test_failure_has_its_kind(open_endpoint: "OpenEndpoint", fault: Fault, kind: type[ModelError], text: str) -> None:
    """Every failure becomes one error of the tree, with the provider's words, and the next call works."""
    async with open_endpoint(lambda _body: "a text of several pieces") as (server, model):
        server.plan(fault)
        with pytest.raises(kind, match=text) as caught:
            await model.complete(request())
        assert type(caught.value) is kind
        assert caught.value.__cause__ is not None or not fault.status
        if isinstance(caught.value, RateLimited) and fault.status:
            assert caught.value.retry_after_seconds == 7
            assert caught.value.request_id == "req_000001"
        assert (await model.complete(request())).text == "a text of several pieces"


async def test_wrong_key_is_an_authentication_failure(open_endpoint: "OpenEndpoint") -> None:
    """The endpoint's refusal of a key is no retryable error."""
    async with open_endpoint(lambda _body: "hi", key="wrong") as (_server, model):
        with pytest.raises(AuthenticationFailed, match="invalid x-api-key"):
            await model.complete(request())


async def test_unknown_model_is_named(open_endpoint: "OpenEndpoint") -> None:
    """A model that the endpoint does not have is UnknownModel, for a call and for a count."""
    async with open_endpoint(lambda _body: "hi", name="gpt-nothing") as (_server, model):
        with pytest.raises(UnknownModel, match="model: gpt-nothing"):
            await model.complete(request())
        with pytest.raises(UnknownModel, match="model: gpt-nothing"):
            await model.count_tokens(request())


async def test_invalid_request_says_what_was_wrong(open_endpoint: "OpenEndpoint") -> None:
    """A rule that the request breaks comes back in the endpoint's words."""
    async with open_endpoint(lambda _body: "hi") as (server, model):
        with pytest.raises(InvalidRequest, match=r"messages\.0\.content\.0: text content blocks must contain non-whitespace"):
            await model.complete(request("   "))
        assert len(server.rejected) == 1


async def test_request_that_is_too_long_is_an_overflow(open_endpoint: "OpenEndpoint") -> None:
    """The endpoint's own window refuses what does not fit."""
    async with open_endpoint(lambda _body: "hi") as (_server, model):
        with pytest.raises(ContextOverflow, match=r"prompt is too long: \d+ tokens > 5000 maximum"):
            await model.complete(request("word " * 5_000))


async def test_wrong_address_is_not_an_unknown_model(open_endpoint: "OpenEndpoint") -> None:
    """Where nothing speaks the dialect, or nothing listens, the error says so."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]

        async def plain_web_server(stream: trio.SocketStream) -> None:
            await stream.receive_some(65_536)
            await stream.send_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\nconnection: close\r\n\r\nnot here!")

        nursery.start_soon(trio.serve_listeners, plain_web_server, listeners)
        model = AnthropicModel("claude-sonnet-4-5", api_key="k", base_url=f"http://127.0.0.1:{port}")
        with pytest.raises(InvalidRequest, match="check base_url"):
            await model.complete(request())
        await model.aclose()
        nursery.cancel_scope.cancel()
    model = AnthropicModel("claude-sonnet-4-5", api_key="k", base_url=f"http://127.0.0.1:{port}")
    with pytest.raises(ModelConnectionError, match="cannot reach the provider"):
        await model.complete(request())
    await model.aclose()


async def test_silent_provider_is_a_connection_error(open_endpoint: "OpenEndpoint") -> None:
    """A stream that stands still longer than the read limit ends in a retryable error."""
    async with open_endpoint(lambda _body: "hi", extra=AnthropicExtra(read_seconds=0.05)) as (server, model):
        server.plan(slow_stream(trio.Event(), after_events=2))
        with pytest.raises(ModelConnectionError, match="did not answer in time") as caught:
            await model.complete(request())
        assert caught.value.retryable


async def test_cancel_in_mid_stream_leaks_nothing(open_endpoint: "OpenEndpoint") -> None:
    """Twenty calls cancelled in mid-stream: no descriptor is left, the server saw each go, the client still works."""
    async with open_endpoint(lambda _body: "a text of several pieces") as (server, model):
        await model.complete(request())
        before = len(os.listdir("/proc/self/fd"))
        for number in range(20):
            entered = trio.Event()
            server.plan(slow_stream(trio.Event(), after_events=number % 6, entered=entered))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(model.complete, request())
                await entered.wait()
                nursery.cancel_scope.cancel()
        with trio.fail_after(10):
            await server.wait_until(lambda fake: fake.disconnects == 20)
        assert (await model.complete(request())).text == "a text of several pieces"
        assert len(os.listdir("/proc/self/fd")) <= before
        assert server.open_connections == 1


async def test_gateway_retries_the_real_client_until_it_is_answered(open_endpoint: "OpenEndpoint") -> None:
    """A 429, a 529, an error event and a cut stream are cured by the gateway; nothing invalid is sent meanwhile."""
    async with open_endpoint(lambda _body: "at last") as (server, model):
        server.plan(rate_limited(0.01), overloaded(), error_event(3), cut_stream(3))
        gateway = Gateway(model, GatewayOptions(backoff_seconds=0.001))
        reply = await gateway.call(request())
        assert reply.text == "at last"
        assert [recorded.status for recorded in server.requests] == [429, 529, 200, 200, 200]
        assert server.rejected == []
