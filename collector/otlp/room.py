"""How much is in work: bytes from the first one of a body until it is answered, and how long the oldest waits."""

from collections.abc import Iterator
from contextlib import contextmanager

from collector.otlp.answers import Code, RefusedError
from collector.otlp.seams import Limits
from goodwatch.core.clock import Clock


class Place:
    """What one body takes up."""

    def __init__(self, room: "Room") -> None:
        self._room = room
        self.bytes = 0

    def add(self, size_bytes: int) -> None:
        """Take more room. Raises ``RefusedError``, to be tried again, when there is none."""
        if self._room.held_bytes + size_bytes > self._room.limits.queue_bytes:
            raise self._room.full()
        self.hold(size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Take more room, for what is in memory already."""
        self._room.held_bytes += size_bytes
        self.bytes += size_bytes


class Room:
    """The places of all bodies; lives on the event loop."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self.held_bytes = 0
        self.open = True
        self._clock = clock
        self._waiting: dict[Place, float] = {}  # in order of arrival

    @property
    def held_bodies(self) -> int:
        """Bodies that came whole and wait for their answer."""
        return len(self._waiting)

    @property
    def oldest_s(self) -> float:
        """How long the oldest of them has waited."""
        first = next(iter(self._waiting.values()), None)
        return 0.0 if first is None else self._clock.monotonic_s() - first

    def check(self, size_bytes: int = 0) -> None:
        """Raises ``RefusedError``, to be tried again, when one more body is too much, or the receiver is closing.

        New bodies are refused a little before those that are being read: what was begun can be finished.
        """
        if not self.open:
            raise RefusedError(
                Code.UNAVAILABLE, "goodwatch is stopping; send it again", self.limits.store_retry_after_s
            )
        if self.held_bytes + size_bytes > self.limits.queue_bytes or 5 * self.held_bytes > 4 * self.limits.queue_bytes:
            raise self.full()
        if self.oldest_s > self.limits.queue_age_s:
            text = f"the oldest request has waited {self.oldest_s:.1f} s to be kept; send it again later"
            raise RefusedError(Code.OVERLOADED, text, self.limits.retry_after_s)

    def full(self) -> RefusedError:
        """The refusal when there is no more room."""
        text = f"{self.held_bytes} bytes are in work already (otlp.queue_limit_bytes); send it again later"
        return RefusedError(Code.OVERLOADED, text, self.limits.retry_after_s)

    @contextmanager
    def place(self) -> Iterator[Place]:
        """A place for one body, given back at the end."""
        place = Place(self)
        try:
            yield place
        finally:
            self.held_bytes -= place.bytes

    @contextmanager
    def waiting(self, place: Place) -> Iterator[None]:
        """While a body that came whole waits for its answer."""
        self._waiting[place] = self._clock.monotonic_s()
        try:
            yield
        finally:
            del self._waiting[place]
