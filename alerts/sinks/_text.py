"""The words of a message, for people: what, how bad, since when, and ways in. Plain text, short."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from alerts.grouping import Message, by_urgency, level_of
from alerts.silences import labels_of
from alerts.values import FiringAlert

#: WeCom's robot takes 4096 bytes of text (its documentation); the title goes on top
MOST_BYTES: Final = 3500
_MOST_ALERTS: Final = 10
_WORDS: Final = {"page": "PAGE", "ticket": "TICKET", "none": "INFO"}
_LINKS: Final = {"triage_url": "Triage", "runbook_url": "Runbook", "dashboard_url": "Dashboard"}
_REPEATED: Final = "still "


def title(message: Message) -> str:
    """One line: how urgent, where, what: ``[PAGE] chat: LlmErrorBudgetBurnFast and 2 more``."""
    alerts = by_urgency(message.firing or message.ended)
    names = list(dict.fromkeys(one.name for one in alerts))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    word = "RESOLVED" if message.resolved else _WORDS[message.level]
    still = _REPEATED if message.cause == "repeat" else ""
    services = sorted({one.labels.get("service", "") for one in alerts} - {""})
    where = f"{', '.join(services[:3])}: " if services else ""
    return f"[{word}] {where}{still}{names[0] if names else 'nothing'}{more}"[:200]


def text(message: Message, most_bytes: int = MOST_BYTES) -> str:
    """Paragraphs: what fires, most urgent first, then what is over; what does not fit is counted."""
    paragraphs = [_firing(one, message.at_s) for one in by_urgency(message.firing)]
    paragraphs += [_ended(one, message.at_s) for one in by_urgency(message.ended)]
    if message.firing and message.ended:
        place = len(message.firing)
        paragraphs[place] = f"Over:\n{paragraphs[place]}"
    return _fitted(paragraphs, most_bytes, message.external_url)


def _fitted(paragraphs: Sequence[str], most_bytes: int, url: str) -> str:
    tail = f"\n\n… and {len(paragraphs)} more alerts: {url}" if url else f"\n\n… and {len(paragraphs)} more alerts."
    room = most_bytes - len(tail.encode())
    held: list[str] = []
    for paragraph in paragraphs[:_MOST_ALERTS]:
        used = len("\n\n".join([*held, paragraph]).encode())
        if used > room:
            break
        held.append(paragraph)
    if not held and paragraphs:
        held = [cut(paragraphs[0], room)]
    left = len(paragraphs) - len(held)
    plural = "alert" if left == 1 else "alerts"
    where = f": {url}" if url else "."
    return "\n\n".join(held) + (f"\n\n… and {left} more {plural}{where}" if left else "")


def cut(words: str, most_bytes: int) -> str:
    """Text of at most so many bytes, an ellipsis where it was cut; no character is cut in two."""
    if len(words.encode()) <= most_bytes:
        return words
    return words.encode()[: max(0, most_bytes - 3)].decode("utf-8", "ignore") + "…"


def _firing(alert: FiringAlert, now_s: float) -> str:
    words = _WORDS[level_of(alert.severity)]
    since = f"Since {clock(alert.starts_at_s)} ({lasted(now_s - alert.starts_at_s)})."
    return "\n".join([f"{alert.name} ({words.lower()})", *_told(alert), since, *_links(alert)])


def _ended(alert: FiringAlert, now_s: float) -> str:
    ends_at_s = now_s if alert.ends_at_s is None else alert.ends_at_s
    took = lasted(ends_at_s - alert.starts_at_s)
    summary = alert.annotations.get("summary", "")
    heading = f"{alert.name}: over since {clock(ends_at_s)}, lasted {took}."
    return "\n".join([heading, *([f"It was: {summary}"] if summary else []), *_links(alert, ("triage_url",))])


def _told(alert: FiringAlert) -> Iterable[str]:
    said = alert.annotations.get("summary", "") or alert.annotations.get("description", "")
    if said:
        return [said]
    shown = ", ".join(f"{name}={value}" for name, value in sorted(alert.labels.items()) if name != "severity")
    return [shown] if shown else []


def _links(alert: FiringAlert, names: Iterable[str] = tuple(_LINKS)) -> list[str]:
    return [f"{_LINKS[name]}: {alert.annotations[name]}" for name in names if alert.annotations.get(name)]


def clock(at_s: float) -> str:
    """A time for people: ``03:12 UTC on 4 March``."""
    at = datetime.fromtimestamp(at_s, UTC)
    return f"{at:%H:%M} UTC on {at.day} {at:%B}"


def lasted(seconds: float) -> str:
    """A length of time in its two largest units: ``1 h 5 min``.

    Examples
    --------
    >>> lasted(59.0), lasted(3900.0), lasted(200_000.0)
    ('59 s', '1 h 5 min', '2 d 7 h')
    """
    left = max(0, int(seconds))
    for big, small, size, unit in (("d", "h", 86_400, 3_600), ("h", "min", 3_600, 60)):
        if left >= size:
            rest = left % size // unit
            return f"{left // size} {big} {rest} {small}" if rest else f"{left // size} {big}"
    return f"{left // 60} min" if left >= 60 else f"{left} s"


def common(alerts: Sequence[FiringAlert], of: str) -> dict[str, str]:
    """Labels (with ``alertname``) or annotations that all alerts share."""
    maps: list[Mapping[str, str]] = [labels_of(one) if of == "labels" else one.annotations for one in alerts]
    if not maps:
        return {}
    return {name: value for name, value in maps[0].items() if all(one.get(name) == value for one in maps[1:])}


def rfc3339(at_s: float | None) -> str:
    """Milliseconds, UTC; the year 1 for "not yet", as Alertmanager and Go write it."""
    if at_s is None:
        return "0001-01-01T00:00:00Z"
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
