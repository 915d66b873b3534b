"""Time as a value that is handed in, so that tests and replays decide what time it is."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for stamps, monotonic time for intervals."""

    def now_s(self) -> float:
        """Unix seconds, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never run backwards."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_s(self) -> float:
        """Unix seconds, UTC."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()


def within(then_s: float | None, now_s: float, length_s: float) -> bool:
    """Whether something happened less than so long ago.

    No for what never did, and for what a clock that was set back puts into the future.

    Examples
    --------
    >>> within(90.0, 100.0, 60.0), within(None, 100.0, 60.0), within(500.0, 100.0, 60.0)
    (True, False, False)
    """
    return then_s is not None and 0 <= now_s - then_s < length_s
