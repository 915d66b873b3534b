"""What Alertmanager and Grafana post to a webhook, read tolerantly into alerts. Pure.

Alertmanager sends version 4 (checked against 0.25); Grafana adds ``orgId`` and keys of its own, and both are met with
keys missing: a start that is not told is the time of receipt, and said to be.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from alerts.values import FiringAlert, fingerprint

Source = Literal["prometheus", "grafana", "goodwatch"]

MOST_ALERTS: Final = 1_000
_MOST_LABELS, _MOST_NAME, _MOST_TEXT = 100, 200, 4_096
#: earlier is no time of an alert: the year 1 is "not yet" (Go's zero time), 1970 is a zero of somebody else
_FIRST_S: Final = 86_400.0
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
#: Grafana's keys beside labels and annotations → the annotation that they become
_GRAFANA_KEYS: Final = {"dashboardURL": "dashboard_url", "panelURL": "panel_url", "valueString": "value"}


@dataclass(frozen=True, slots=True)
class Seen:
    """One alert as a sender told it. ``start_told`` and ``end_told`` say whether its times are the sender's own."""

    source: Source
    alert: FiringAlert
    start_told: bool
    end_told: bool
    receiver: str = ""


@dataclass(frozen=True, slots=True)
class Webhook:
    """One body: what can be used of it, and place and fault of what cannot. ``truncated`` alerts were left out there."""

    source: Source
    seen: tuple[Seen, ...]
    refused: tuple[tuple[int, str], ...]
    truncated: int


def read_webhook(body: object, now_s: float) -> Webhook:
    """The alerts of a webhook's JSON; ``now_s`` (Unix seconds) is when it came.

    Raises ``ValueError`` with a sentence for what is no webhook of the two.
    """
    if not isinstance(body, Mapping):
        raise ValueError("the body is no JSON object; send Alertmanager's webhook (version 4) or Grafana's")
    alerts = body.get("alerts")
    if not isinstance(alerts, list):
        raise ValueError("alerts: is no list; send Alertmanager's webhook (version 4) or Grafana's")
    if len(alerts) > MOST_ALERTS:
        raise ValueError(f"alerts: {len(alerts)} at once; set max_alerts to at most {MOST_ALERTS} at the sender")
    source: Source = "grafana" if "orgId" in body else "prometheus"
    seen, refused = [], []
    for place, alert in enumerate(alerts):
        try:
            seen.append(_seen(alert, body, source, now_s))
        except ValueError as error:
            refused.append((place, str(error)))
    truncated = body.get("truncatedAlerts")
    counted = truncated if isinstance(truncated, int) and not isinstance(truncated, bool) and truncated > 0 else 0
    return Webhook(source, tuple(seen), tuple(refused), counted)


def _seen(alert: object, body: Mapping[str, Any], source: Source, now_s: float) -> Seen:
    if not isinstance(alert, Mapping):
        raise ValueError("is no object; each alert has labels, annotations and a status")
    labels = _texts(alert.get("labels"), "labels")
    name = labels.pop("alertname", "") or str(labels.get("rulename", "")) or "unnamed"
    annotations = _texts(alert.get("annotations"), "annotations")
    if source == "grafana":
        extra = {to: alert[key] for key, to in _GRAFANA_KEYS.items() if isinstance(alert.get(key), str) and alert[key]}
        annotations = {**{to: value[:_MOST_TEXT] for to, value in extra.items()}, **annotations}
    status = alert.get("status") or body.get("status") or "firing"
    if status not in ("firing", "resolved"):
        raise ValueError("status: is neither firing nor resolved")
    start_s, end_s = _instant_s(alert.get("startsAt"), "startsAt"), _instant_s(alert.get("endsAt"), "endsAt")
    starts_at_s = now_s if start_s is None else start_s
    if end_s is not None and end_s < starts_at_s:
        end_s = None  # an end before the start is no end
    over = status == "resolved"
    made = FiringAlert(
        name, labels, annotations, starts_at_s, (now_s if end_s is None else end_s) if over else None,
        _fingerprint(alert, name, labels), labels.get("severity", ""), _text(alert.get("generatorURL")),
    )  # fmt: skip
    return Seen(source, made, start_s is not None, over and end_s is not None, _text(body.get("receiver")))


def _fingerprint(alert: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> str:
    told = alert.get("fingerprint")
    usable = isinstance(told, str) and 0 < len(told) <= 64 and told.isascii() and told.isalnum()
    return str(told) if usable else fingerprint(name, labels)


def _texts(found: object, where: str) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{where}: is no object")
    if len(found) > _MOST_LABELS:
        raise ValueError(f"{where}: {len(found)} of them; at most {_MOST_LABELS} are taken")
    if any(len(name) > _MOST_NAME for name in found):
        raise ValueError(f"{where}: a name is longer than {_MOST_NAME} characters")
    return {_text(name): _text(value) for name, value in found.items()}


def _text(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else f"{value}"
    # A lone surrogate is JSON and no text that a database or a page can hold.
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"


def _instant_s(value: object, where: str) -> float | None:
    """Unix seconds of RFC 3339 text with any offset; None for nothing and for "not yet" (the year 1)."""
    if value is None or value == "":
        return None
    found = _STAMP.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{where}: is no time; write it as 2026-03-04T03:12:00Z")
    if found[1].startswith("0001-"):
        return None
    try:
        at = datetime.fromisoformat(f"{found[1].upper().replace(' ', 'T')}{found[3].upper().replace('Z', '+00:00')}")
        at_s = at.astimezone(UTC).timestamp() + float(found[2] or 0)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where}: is no such day or time") from error
    return at_s if math.isfinite(at_s) and at_s >= _FIRST_S else None


def service_of(
    labels: Mapping[str, str], label: str, mapped: Mapping[str, str], known: Collection[str]
) -> tuple[str | None, str]:
    """The service of ours that an alert is about, or None and a sentence that says why none is known.

    A label may bear any value: only one that is a service here, or that ``mapped`` leads to one, counts.
    """
    value = labels.get(label, "")
    service = mapped.get(value, value)
    if value and service in known:
        return service, ""
    if not value:
        return None, f"no inference mapping: it has no label {label}, so it is not known which service it is about"
    if service != value:
        return None, f"no inference mapping: {value[:80]!r} is mapped to {service[:80]!r}, which is no service here"
    return None, (
        f"no inference mapping: {label}={value[:80]!r} is no service here; "
        "map it under alerting.incoming.services if it is one of ours"
    )
