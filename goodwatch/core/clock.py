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
