"""An Alertmanager's API v2: every alert again and again with the time at which it ends unless it comes again.

Alertmanager groups, inhibits and repeats by itself, so it gets everything. Each replica of a cluster is a sink of its
own: all must get all alerts (its documentation says so), and one that is away holds up no other.
"""

import json
from typing import Final

from alerts.grouping import Message, steady_pace
from alerts.silences import labels_of
from alerts.sinks._http import Poster
from alerts.sinks._port import SinkKind, SinkOptions
from alerts.sinks._text import rfc3339
from alerts.values import FiringAlert

#: Prometheus posts each minute and lets an alert end four times that after its last post (rules/alerting.go, notifier)
EVERY_S: Final = 60.0
ENDS_AFTER_S: Final = 4 * EVERY_S
_PATH: Final = "/api/v2/alerts"


class Alertmanager:
    """One replica; ``url`` is its root, with the path prefix where there is one."""

    def __init__(self, options: SinkOptions) -> None:
        root = options.url.rstrip("/")
        url = root if root.endswith(_PATH) else root + _PATH
        self._poster = Poster(options.name, url, options.headers, options.timeout_s)

    async def deliver(self, message: Message) -> None:
        """Post what fires, and what ended since the last post."""
        alerts = [_alert(one, message.at_s + ENDS_AFTER_S) for one in message.firing]
        alerts += [_alert(one, message.at_s if one.ends_at_s is None else one.ends_at_s) for one in message.ended]
        await self._poster.post(json.dumps(alerts, ensure_ascii=False).encode())

    async def close(self) -> None:
        """Close the connection."""
        await self._poster.close()


def _alert(alert: FiringAlert, ends_at_s: float) -> dict[str, object]:
    # Alertmanager drops labels that are empty and refuses an alert whose end is before its start.
    return {
        "labels": {name: value for name, value in labels_of(alert).items() if value},
        "annotations": dict(alert.annotations),
        "startsAt": rfc3339(alert.starts_at_s),
        "endsAt": rfc3339(max(ends_at_s, alert.starts_at_s)),
        "generatorURL": alert.generator_url,
    }


SINK: Final = SinkKind("alertmanager", Alertmanager, pace=steady_pace(EVERY_S))
