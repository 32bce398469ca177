"""What holds for every test: a limit of wall time, no network beyond this machine, an order and examples that can be repeated.

- A test has 30 s, or what its `limit` marker says. An async test over it is cancelled and fails where it stood, whatever clock it runs on:
  SIGALRM counts real seconds, while `trio.fail_after` would count those of an autojump clock. Whatever ignores the cancellation, or is not
  async, ends the whole run a little later, with the stack of every thread.
- Connections leave for loopback and unix sockets alone.
- Hypothesis draws the same examples each time; HYPOTHESIS_PROFILE=explore draws other and more ones.
"""

import faulthandler
import functools
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Generator
from types import FrameType
from typing import Any

import hypothesis
import pytest
import trio

LIMIT_SECONDS = 30.0
GRACE_SECONDS = 15.0  # between the cancellation and the end of the run

_HEALTH = (hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow)  # clocks are safe to share; machines are slow
hypothesis.settings.register_profile("ci", max_examples=50, derandomize=True, database=None, deadline=None, suppress_health_check=_HEALTH)
hypothesis.settings.register_profile("explore", max_examples=2000, deadline=None, suppress_health_check=_HEALTH, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

AsyncTest = Callable[..., Awaitable[None]]


class _Limit:
    """The wall time of one test, which may be many runs of its body (hypothesis)."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._expired = False
        self._running: tuple[trio.lowlevel.TrioToken, trio.CancelScope] | None = None

    def expire(self, _signum: int, _frame: FrameType | None) -> None:
        """Cancel the body that runs now, and every later one."""
        self._expired = True
        if self._running is not None:
            token, scope = self._running
            token.run_sync_soon(scope.cancel)

    def wrap(self, body: AsyncTest) -> AsyncTest:
        """Return the body of a test, made cancellable by `expire`."""

        @functools.wraps(body)
        async def limited(*args: object, **kwargs: object) -> None:
            cause: BaseException | None = None
            with trio.CancelScope() as scope:
                self._running = trio.lowlevel.current_trio_token(), scope
                if self._expired:
                    scope.cancel()
                try:
                    await body(*args, **kwargs)
                except BaseException as error:
                    cause = error
                    raise
                finally:
                    self._running = None
            if scope.cancelled_caught:
                raise trio.TooSlowError(
                    f"the test took longer than {self.seconds:g} s of wall time; it was cancelled where the cause shows"
                ) from cause

        return limited


def _limit_of(item: pytest.Item) -> _Limit:
    marker = item.get_closest_marker("limit")
    return _Limit(float(marker.args[0]) if marker else LIMIT_SECONDS)


_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real stderr: pytest captures descriptor 2 while it imports and while a test runs, but not now."""
    config.stash[_STDERR] = os.dup(2)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Run a test under its limit; before pytest-trio, which then takes the wrapped body for the test."""
    limit = _limit_of(item)
    if isinstance(item, pytest.Function) and item.get_closest_marker("trio") is not None:
        handle = getattr(item.obj, "hypothesis", None)
        if handle is None:
            item.obj = limit.wrap(item.obj)
        else:
            # Parametrized tests share the handle: the body is kept aside, for pytest-trio does not wrap a wrapped one again.
            handle.plain_test = getattr(handle, "plain_test", handle.inner_test)
            handle.inner_test = limit.wrap(handle.plain_test)
    previous = signal.signal(signal.SIGALRM, limit.expire)
    signal.setitimer(signal.ITIMER_REAL, limit.seconds)
    faulthandler.dump_traceback_later(limit.seconds + GRACE_SECONDS, exit=True, file=item.config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _is_local(host: object) -> bool:
    if host in (None, "", b"", "localhost", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(host.decode() if isinstance(host, bytes) else str(host)).is_loopback
    except ValueError:
        return False


def _guard_network(event: str, args: tuple[Any, ...]) -> None:  # what an event brings is not typed
    """Fail the test that reaches beyond this machine: connections, datagrams and name look-ups."""
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        endpoint, address = args
        if address and endpoint.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0]):
            pytest.fail(f"a test tried to reach {address!r}; tests reach this machine alone")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname") and not _is_local(args[0]):
        pytest.fail(f"a test tried to look up {args[0]!r}; tests reach this machine alone")


# An audit hook sees every socket, also those that a library made by its own way, and changes no code under test.
sys.addaudithook(_guard_network)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how to repeat the order of this run, also in quiet mode."""
    seed = terminalreporter.config.getoption("randomly_seed", default=None)
    if seed is not None:
        terminalreporter.write_line(f"order: --randomly-seed={seed}")
