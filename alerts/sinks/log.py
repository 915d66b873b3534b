"""goodwatch's own log: one line an alert, for those who gather logs anyway, and to try things out."""

import logging
from typing import Final

from alerts.grouping import Message, level_of
from alerts.sinks._port import SinkKind, SinkOptions
from alerts.sinks._text import title

log = logging.getLogger(__name__)


class Log:
    """Writes; never fails."""

    def __init__(self, options: SinkOptions) -> None:
        self._name = options.name

    async def deliver(self, message: Message) -> None:
        """A line for the message and one for each alert."""
        log.warning("alerts", extra={"sink": self._name, "title": title(message), "cause": message.cause})
        for state, alerts in (("firing", message.firing), ("ended", message.ended)):
            for one in alerts:
                log.warning(
                    "alert",
                    extra={
                        "alert": one.name, "state": state, "level": level_of(one.severity),
                        "service": one.labels.get("service", ""), "summary": one.annotations.get("summary", ""),
                    },
                )  # fmt: skip

    async def close(self) -> None:
        """Nothing is held."""


SINK: Final = SinkKind("log", Log, needs_url=False)
