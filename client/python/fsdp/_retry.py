"""When to try again, as a decision apart from the waiting; the clock is an argument."""

from __future__ import annotations

import random
from collections.abc import Callable

from fsdp.errors import FsdpError, UnavailableError, may_pass

Clock = Callable[[], float]


def backoff(failed_tries: int, jitter: Callable[[], float] = random.random) -> float:
    """Seconds before the next try: 50 ms doubled each time up to 1 s, times 0.5 to 1."""
    longest: float = min(1.0, 0.05 * 2 ** min(failed_tries, 6))
    return longest * (0.5 + 0.5 * jitter())


class StreamWindow:
    """How long a lost stream is taken up again.

    A connection that delivered starts a new window; one that only opens and closes does not.
    """

    def __init__(self, clock: Clock, retry_window: float, reconnect_window: float) -> None:
        self._clock = clock
        self._reconnect = reconnect_window
        self._until = clock() + retry_window
        self._failures = 0
        self._delivered_ever = False
        self._delivered = False

    def delivered(self) -> None:
        self._delivered = self._delivered_ever = True

    def after(self, error: FsdpError, server: str) -> float:
        """Seconds to wait before the next try; raises when there is none."""
        if not may_pass(error):
            raise error
        if self._delivered:
            self._failures = 0
            self._until = self._clock() + self._reconnect
        self._delivered = False
        wait = backoff(self._failures)
        self._failures += 1
        if self._clock() + wait <= self._until:
            return wait
        if not self._delivered_ever:
            raise error
        raise UnavailableError(f"the coordinator at {server} is gone and did not come back within "
                               f"{self._reconnect:g} s; its jobs are kept: start it again")


class CallWindow:
    """Whether and when a unary call is repeated."""

    def __init__(self, clock: Clock, call_timeout: float, retry_window: float) -> None:
        self._clock = clock
        self._deadline = clock() + call_timeout
        self._until = min(self._deadline, clock() + retry_window)
        self._failures = 0

    def remaining(self) -> float:
        """Seconds left for the next try."""
        return max(0.001, self._deadline - self._clock())

    def after(self, error: FsdpError, repeatable: bool) -> float:
        if not repeatable or not may_pass(error):
            raise error
        wait = backoff(self._failures)
        self._failures += 1
        if self._clock() + wait > self._until:
            raise error
        return wait
