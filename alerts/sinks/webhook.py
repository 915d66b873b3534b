"""A JSON webhook in the shape of Alertmanager's (version 4), so receivers that exist already work.

With a secret each body is signed: ``X-Goodwatch-Signature: v1=HEX`` is the HMAC-SHA256 of ``TIMESTAMP.BODY``, and
``X-Goodwatch-Timestamp`` holds the timestamp (Unix seconds), so that a receiver can refuse what is old.
"""

import hashlib
import hmac
import json
from typing import Final

from alerts.grouping import Message
from alerts.silences import labels_of
from alerts.sinks._http import Poster
from alerts.sinks._port import SinkKind, SinkOptions
from alerts.sinks._text import common, rfc3339
from alerts.values import FiringAlert

#: alerts in one body; the others are counted in truncatedAlerts, as Alertmanager's max_alerts does
MOST_ALERTS: Final = 200


class Webhook:
    """One receiver."""

    def __init__(self, options: SinkOptions) -> None:
        self._name = options.name
        self._secret = options.secret.encode()
        self._poster = Poster(options.name, options.url, options.headers, options.timeout_s)

    async def deliver(self, message: Message) -> None:
        """Post one message."""
        body = json.dumps(payload(message, self._name), ensure_ascii=False).encode()
        await self._poster.post(body, signature(self._secret, body, int(message.at_s)) if self._secret else None)

    async def close(self) -> None:
        """Close the connection."""
        await self._poster.close()


def payload(message: Message, receiver: str) -> dict[str, object]:
    """Alertmanager's webhook body, version 4 (checked against Alertmanager 0.25)."""
    alerts = message.alerts
    return {
        "version": "4",
        "groupKey": f"{{goodwatch}}:{message.key}",
        "truncatedAlerts": max(0, len(alerts) - MOST_ALERTS),
        "status": "resolved" if message.resolved else "firing",
        "receiver": receiver,
        "groupLabels": dict(message.labels),
        "commonLabels": common(alerts, "labels"),
        "commonAnnotations": common(alerts, "annotations"),
        "externalURL": message.external_url,
        "alerts": [_alert(one, message) for one in alerts[:MOST_ALERTS]],
    }


def _alert(alert: FiringAlert, message: Message) -> dict[str, object]:
    over = alert in message.ended
    ends_at_s = (message.at_s if alert.ends_at_s is None else alert.ends_at_s) if over else None
    return {
        "status": "resolved" if over else "firing",
        "labels": dict(labels_of(alert)),
        "annotations": dict(alert.annotations),
        "startsAt": rfc3339(alert.starts_at_s),
        "endsAt": rfc3339(ends_at_s),
        "generatorURL": alert.generator_url,
        "fingerprint": alert.fingerprint,
    }


def signature(secret: bytes, body: bytes, at_s: int) -> dict[str, str]:
    """Headers that prove who sent a body, and when."""
    seal = hmac.new(secret, f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Goodwatch-Timestamp": str(at_s), "X-Goodwatch-Signature": f"v1={seal}"}


SINK: Final = SinkKind("webhook", Webhook)
