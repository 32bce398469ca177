"""One HTTP/1.1 connection of the fake endpoint: h11 over a trio stream.

Laws: requests are answered one after the other; while an answer is under way the connection is also read, so that a client
which goes away is noticed at once and the answer is cancelled.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import h11
import trio

Headers: TypeAlias = Mapping[str, str]
_READ_BYTES = 65_536
MAX_BODY_BYTES = 32_000_000


class Request(NamedTuple):
    """A whole request; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Disconnected(Exception):
    """The client went away in the middle of an answer."""


class HangUp(Exception):
    """This side closes the connection where it is."""


class Connection:
    """One client's connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)

    async def next_request(self) -> Request | None:
        """Read one request; None when the client closed the connection, or spoke no HTTP."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None
        body = bytearray()
        try:
            head = await self._next_event()
            if not isinstance(head, h11.Request):
                return None
            while isinstance(event := await self._next_event(), h11.Data):
                if len(body) <= MAX_BODY_BYTES:  # the rest is read and forgotten: the request is refused, not the connection
                    body += event.data
        except (h11.RemoteProtocolError, trio.BrokenResourceError):
            return None
        if not isinstance(event, h11.EndOfMessage):
            return None
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        return Request(head.method.decode(), head.target.decode(), headers, bytes(body))

    async def answering_while_connected(self, answer: Callable[[], Awaitable[None]]) -> None:
        """Run an answer to its end.

        Raises:
            Disconnected: the client went away first; the answer is cancelled.
            HangUp: the answer raised it.
        """
        gone, hang_up = False, False
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal gone
                try:
                    data = await self._stream.receive_some(_READ_BYTES)
                except trio.BrokenResourceError:
                    data = b""
                if not data:
                    gone = True
                    nursery.cancel_scope.cancel()
                else:  # the next request came early: it waits its turn
                    self._http.receive_data(bytes(data))

            nursery.start_soon(watch)
            try:
                await answer()
            except trio.BrokenResourceError:
                gone = True
            except HangUp:
                hang_up = True
            nursery.cancel_scope.cancel()
        if hang_up:
            raise HangUp
        if gone:
            raise Disconnected

    async def send_json(self, status: int, value: Any, headers: Headers) -> None:
        """Send a whole answer."""
        body = json.dumps(value).encode()
        await self.send_head(status, {**headers, "content-type": "application/json", "content-length": str(len(body))})
        await self.send(body)
        await self.end()

    async def send_head(self, status: int, headers: Headers) -> None:
        """Begin an answer."""
        await self._emit([h11.Response(status_code=status, headers=list(headers.items()), reason=b"")])

    async def send(self, data: bytes) -> None:
        """Send a piece of the body."""
        await self._emit([h11.Data(data=data)])

    async def end(self) -> None:
        """End the answer."""
        await self._emit([h11.EndOfMessage()])

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(bytes(await self._stream.receive_some(_READ_BYTES)))
        return event

    async def _emit(self, events: Iterable[h11.Event]) -> None:
        for event in events:
            data = self._http.send(event)
            if data:
                await self._stream.send_all(data)
