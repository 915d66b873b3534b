"""OpenSLO v1 (openslo.com) in and out. What has no meaning here is refused by name, never guessed.

An indicator of goodwatch's own travels as a metric source of the type ``goodwatch``; everything else is a ratio of two
queries to Prometheus.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from alerts.queries import counted
from alerts.spec import CALENDAR_DAYS, SloFile, indicator
from goodwatch.core.duration import duration_s, duration_text
from goodwatch.core.errors import ConfigError
from goodwatch.core.slo import DAY_S, Custom, Indicator, Period, Slo

VERSION: Final = "openslo/v1"
_OURS: Final = "goodwatch"
_ANNOTATION: Final = "goodwatch.dev/engines"
#: OpenSLO's units of calendar durations; M is a month there and a minute is m
_UNITS: Final = {"d": "day", "w": "week", "M": "month", "Q": "quarter", "Y": "year"}
_DAYS: Final = {"d": 1.0, "w": 7.0, "M": 30.0, "Q": 91.0, "Y": 365.0}


def read(documents: Iterable[object], where: str) -> tuple[Slo, ...]:
    """SLOs of OpenSLO documents (lists of them too); SLIs that they refer to are looked up among them.

    An SLO with several objectives becomes several. Raises ``ConfigError`` naming what cannot be read.
    """
    found = [d for document in documents for d in (document if isinstance(document, list) else [document])]
    objects = [d for d in found if isinstance(d, dict)]
    if not objects or any(d.get("apiVersion") != VERSION for d in objects):
        raise ConfigError(f"{where}: is not {VERSION}; convert other versions first")
    slis = {_name(d): d for d in objects if d.get("kind") == "SLI"}
    slos = [d for d in objects if d.get("kind") == "SLO"]
    if not slos:
        raise ConfigError(f"{where}: holds no object of kind SLO")
    return tuple(slo for document in slos for slo in _slos(document, slis, where))


def _name(document: Mapping[str, Any]) -> str:
    return str(_mapping(document.get("metadata")).get("name", ""))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _slos(document: Mapping[str, Any], slis: Mapping[str, Mapping[str, Any]], where: str) -> Iterable[Slo]:
    name, spec, meta = _name(document), _mapping(document.get("spec")), _mapping(document.get("metadata"))
    at = f"{where}: slo '{name}'"
    objectives = spec.get("objectives")
    if not isinstance(objectives, list) or not objectives:
        raise ConfigError(f"{at}: has no objectives; write at least one")
    sli = spec.get("indicator") or slis.get(str(spec.get("indicatorRef", "")))
    if sli is None:
        raise ConfigError(f"{at}: has no indicator, and no SLI is called '{spec.get('indicatorRef', '')}'")
    engines = str(_mapping(meta.get("annotations")).get(_ANNOTATION, ""))
    for index, objective in enumerate(map(_mapping, objectives)):
        yield Slo(
            name=name if len(objectives) == 1 else f"{name}-{index + 1}",
            service=str(spec.get("service", "")),
            objective=_objective(objective, at),
            indicator=_indicator(_mapping(_mapping(sli).get("spec")), spec, objective, at),
            period=_period(spec.get("timeWindow"), at),
            description=str(spec.get("description", "")),
            engines=tuple(engines.split(",")) if engines else (),
            labels={
                key: ",".join(map(str, v)) if isinstance(v, list) else str(v)
                for key, v in _mapping(meta.get("labels")).items()
            },
        )


def _objective(objective: Mapping[str, Any], at: str) -> float:
    target = objective.get("target")
    if target is None and "targetPercent" in objective:
        target = float(f"{float(objective['targetPercent']) / 100:.12g}")
    if not isinstance(target, int | float) or not 0 < target < 1:
        raise ConfigError(f"{at}: target {target!r} is not between 0 and 1; write target: 0.99 or targetPercent: 99")
    return float(target)


def _indicator(sli: Mapping[str, Any], spec: Mapping[str, Any], objective: Mapping[str, Any], at: str) -> Indicator:
    ratio = _mapping(sli.get("ratioMetric"))
    if not ratio:
        raise ConfigError(f"{at}: a thresholdMetric has no counts of events; write a ratioMetric")
    if "raw" in ratio:
        raise ConfigError(f"{at}: a raw ratio has no counts of events; write good (or bad) and total")
    sides = {
        side: _mapping(_mapping(ratio.get(side)).get("metricSource"))
        for side in ("good", "bad", "total")
        if ratio.get(side)
    }
    if (ours := next((s for s in sides.values() if s.get("type") == _OURS), None)) is not None:
        return _own(_mapping(ours.get("spec")), at)
    if "total" not in sides or len(sides) != 2:
        raise ConfigError(f"{at}: needs total, and one of good and bad")
    queries = {
        side: _query(source, f"{at}: {side}", counter=ratio.get("counter") is not False)
        for side, source in sides.items()
    }
    method = spec.get("budgetingMethod", "Occurrences")
    if method == "Occurrences":
        return Custom(queries["total"], queries.get("good", ""), queries.get("bad", ""))
    if method == "Timeslices":
        return Custom(queries["total"], queries.get("good", ""), queries.get("bad", ""), *_slice(objective, at))
    raise ConfigError(f"{at}: budgetingMethod {method!r} is not known here; write Occurrences or Timeslices")


def _own(entry: Mapping[str, Any], at: str) -> Indicator:
    try:
        made = SloFile.model_validate(
            {"slos": [{"name": "x", "service": "x", "objective": 0.5, **entry}]}, by_alias=True
        )
    except ValueError as error:
        raise ConfigError(f"{at}: the metric source of goodwatch cannot be read: {error}") from None
    return made.slos[0].slo().indicator


def _query(source: Mapping[str, Any], at: str, *, counter: bool) -> str:
    kind = str(source.get("type", "")).lower()
    if kind not in ("prometheus", ""):
        raise ConfigError(f"{at}: the metric source {source.get('type')!r} is not Prometheus; rules can ask only that")
    query = _mapping(source.get("spec")).get("query")
    if not isinstance(query, str) or not query.strip():
        raise ConfigError(f"{at}: the metric source has no query")
    if not counter:
        raise ConfigError(f"{at}: counter: false gives levels, not counts; query a counter")
    return counted(query, at)


def _slice(objective: Mapping[str, Any], at: str) -> tuple[float, float]:
    window, target = objective.get("timeSliceWindow"), objective.get("timeSliceTarget")
    if window is None or not isinstance(target, int | float):
        raise ConfigError(f"{at}: Timeslices needs timeSliceWindow and timeSliceTarget in the objective")
    try:
        return duration_s(f"{window}m" if isinstance(window, int) else window), float(target)
    except ValueError as error:
        raise ConfigError(f"{at}: timeSliceWindow {window!r} {error}") from None


def _period(window: object, at: str) -> Period:
    first = _mapping(window[0]) if isinstance(window, list) and window else {}
    match = re.fullmatch(r"(\d+)([mhdwMQY])", str(first.get("duration", "")))
    if match is None:
        raise ConfigError(f"{at}: timeWindow has no duration like 28d, 4w or 1M")
    count, unit = int(match[1]), match[2]
    if first.get("isRolling", True):
        return Period(duration_s(match[0]) if unit in "mh" else count * _DAYS[unit] * DAY_S)
    if count != 1 or unit not in _UNITS:
        raise ConfigError(f"{at}: a calendar window of {match[0]} is not known here; write 1d, 1w, 1M, 1Q or 1Y")
    calendar = _mapping(first.get("calendar"))
    starts = str(calendar.get("startTime", ""))
    return Period(CALENDAR_DAYS[_UNITS[unit]] * DAY_S, _UNITS[unit], starts, str(calendar.get("timeZone", "")))  # type: ignore[arg-type]


# --- and out ----------------------------------------------------------------------------------------------------------


def written(slo: Slo) -> dict[str, Any]:
    """One SLO as an OpenSLO object."""
    kind = slo.indicator
    sliced = isinstance(kind, Custom) and kind.slice_s is not None
    objective: dict[str, Any] = {"target": slo.objective}
    if isinstance(kind, Custom) and kind.slice_s is not None:
        objective |= {"timeSliceTarget": kind.slice_target, "timeSliceWindow": duration_text(kind.slice_s)}
    meta: dict[str, Any] = {"name": slo.name}
    if slo.labels:
        meta["labels"] = {key: text.split(",") if "," in text else text for key, text in slo.labels.items()}
    if slo.engines:
        meta["annotations"] = {_ANNOTATION: ",".join(slo.engines)}
    return {
        "apiVersion": VERSION,
        "kind": "SLO",
        "metadata": meta,
        "spec": {
            **({"description": slo.description} if slo.description else {}),
            "service": slo.service,
            "indicator": {"metadata": {"name": f"{slo.name}-indicator"}, "spec": {"ratioMetric": _ratio(kind)}},
            "timeWindow": [_window(slo.period)],
            "budgetingMethod": "Timeslices" if sliced else "Occurrences",
            "objectives": [objective],
        },
    }


def _ratio(kind: Indicator) -> dict[str, Any]:
    if not isinstance(kind, Custom):
        source = {"metricSource": {"type": _OURS, "spec": indicator(kind)}}
        return {"counter": True, "good": source, "total": source}
    side, query = ("bad", kind.bad) if kind.bad else ("good", kind.good)
    return {"counter": True, side: _source(query), "total": _source(kind.total)}


def _source(query: str) -> dict[str, Any]:
    return {"metricSource": {"type": "Prometheus", "spec": {"query": query}}}


def _window(period: Period) -> dict[str, Any]:
    if not period.calendar:
        days = period.length_s / DAY_S
        return {"duration": f"{days:.0f}d" if days == int(days) else f"{period.length_s / 60:.0f}m", "isRolling": True}
    unit = next(unit for unit, name in _UNITS.items() if name == period.calendar)
    begins = {"startTime": period.starts or "2024-01-01 00:00:00", "timeZone": period.zone or "UTC"}
    return {"duration": f"1{unit}", "isRolling": False, "calendar": begins}
