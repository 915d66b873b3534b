"""Sloth's prometheus/v1 form (and its Kubernetes object) in. Sloth's error ratios become counts of events."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from alerts.queries import counted
from goodwatch.core.errors import ConfigError
from goodwatch.core.slo import DAY_S, Custom, Period, Slo

VERSION: Final = "prometheus/v1"
_KUBERNETES: Final = "sloth.slok.dev/v1"


def read(document: object, where: str, *, period_days: float = 30) -> tuple[Slo, ...]:
    """SLOs of a document. Sloth takes the period from its command line: 30 days there and here.

    Raises ``ConfigError`` naming what cannot be read: a raw error ratio has no counts, plugins are programs.
    """
    data = document if isinstance(document, dict) else {}
    if data.get("apiVersion") == _KUBERNETES:
        data = {"version": VERSION, **data.get("spec", {})}
    if data.get("version") != VERSION:
        raise ConfigError(f"{where}: is not Sloth's {VERSION}; its first key is version: {VERSION}")
    slos = data.get("slos")
    if not isinstance(slos, list) or not slos:
        raise ConfigError(f"{where}: has no slos; write at least one")
    return tuple(_slos(data, slos, where, Period(period_days * DAY_S)))


def _slos(data: Mapping[str, Any], slos: list[Any], where: str, period: Period) -> Iterator[Slo]:
    service = str(data.get("service", ""))
    for index, entry in enumerate(slos):
        if not isinstance(entry, dict) or not entry.get("name"):
            raise ConfigError(f"{where}: slos[{index}]: has no name; write one")
        at = f"{where}: slo '{entry['name']}'"
        alerting = _mapping(entry.get("alerting"))
        yield Slo(
            name=f"{service}-{entry['name']}",  # unique over all services here, within one there
            service=service,
            objective=_objective(entry.get("objective"), at),
            indicator=_indicator(_mapping(entry.get("sli")), at),
            period=period,
            description=str(entry.get("description", "")),
            labels={key: str(text) for part in (data, entry) for key, text in _mapping(part.get("labels")).items()},
            pages=not _alert(alerting, "page").get("disable", False),
            tickets=not _alert(alerting, "ticket").get("disable", False),
        )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _alert(alerting: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return _mapping(alerting.get(f"{kind}_alert") or alerting.get(f"{kind}Alert"))


def _objective(percent: object, at: str) -> float:
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 < percent < 100:
        raise ConfigError(f"{at}: objective {percent!r} is not a percentage between 0 and 100; write for example 99.9")
    return float(f"{percent / 100:.12g}")


def _indicator(sli: Mapping[str, Any], at: str) -> Custom:
    events = _mapping(sli.get("events"))
    if events:
        bad = str(events.get("error_query") or events.get("errorQuery") or "")
        total = str(events.get("total_query") or events.get("totalQuery") or "")
        if not bad.strip() or not total.strip():
            raise ConfigError(f"{at}: sli.events needs error_query and total_query")
        return Custom(counted(total, f"{at}: total_query"), bad=counted(bad, f"{at}: error_query"))
    if "raw" in sli:
        raise ConfigError(f"{at}: sli.raw is a ratio without counts: windows cannot be added up; write sli.events")
    raise ConfigError(f"{at}: sli.{next(iter(sli), 'events')} cannot be read; write sli.events with two queries")
