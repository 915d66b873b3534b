"""What dispatch asks of a sink, and what a kind of sink is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from alerts.grouping import Message, Pace
from goodwatch.core.errors import TransientError


class BusyError(TransientError):
    """The receiver asks to wait ``after_s`` before the next try."""

    def __init__(self, text: str, after_s: float) -> None:
        super().__init__(text)
        self.after_s = after_s


class Sink(Protocol):
    """Formats and sends; retries, pace and deduplication happen before it."""

    async def deliver(self, message: Message) -> None:
        """Send one message; when this returns the receiver has it.

        Raises ``TransientError`` when a later try may work, ``ConfigError`` when the receiver said no; both say what
        to do and hold no secret.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and threads; safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What the configuration says of one sink. ``url``, ``headers`` and ``secret`` may hold secrets: not in ``repr``."""

    name: str
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: str = field(default="", repr=False)
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A kind of sink. ``make`` raises ``ConfigError`` for options that it cannot use; it may block for a moment.

    ``pace`` is its own where it groups by itself; ``needs_url`` says whether it has somewhere to send to.
    """

    name: str
    make: Callable[[SinkOptions], Sink]
    pace: Pace | None = None
    needs_url: bool = True
