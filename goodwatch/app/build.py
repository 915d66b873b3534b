"""One service's view from what its targets said. Pure: values in, values out, so that it can run in a thread."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from collector.neighbours import is_only_router
from collector.pipeline import Understood
from goodwatch.app.config import Service
from goodwatch.app.fleet import DESTRUCTIVE
from goodwatch.app.view import ServiceView, TargetView
from goodwatch.app.wiring import Priced, limits_of
from goodwatch.core.engine import Engine
from goodwatch.core.model import Deployment, Scrape, Target
from goodwatch.signals.cost import Price
from goodwatch.signals.derive import Derived, derive
from goodwatch.signals.energy import NO_EXPORTER, without_devices
from goodwatch.signals.increments import fold, rows_frame
from goodwatch.signals.layers import LAYERS, Leg, Place, explained, layered
from goodwatch.signals.saturation import binding_limits, stalls
from goodwatch.signals.verdict import Reach, verdict
from goodwatch.signals.windows import TargetWindow, target_windows

#: Reasons of failed scrapes in which something answered: a fault of telemetry, no proof that the engine is down.
_ANSWERED: Final = frozenset(
    {"http_status", "redirect", "body_limit", "sample_limit", "decode", "not_metrics", DESTRUCTIVE}
)

_LEGS: Final[tuple[Leg, ...]] = ("prefill", "decode")
#: Dynamo's worker passes its engine's series through with its own labels.
_LEG_LABELS: Final = ("dynamo_component",)


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What is known of one target now."""

    target: Target
    last: Scrape | None
    understood: Understood | None
    deployment: Deployment | None
    priced: Priced | None


@dataclass(frozen=True, slots=True)
class ServiceInputs:
    """Everything that a service's view is made of; ``rows`` and ``before`` are rows of ``frames.MINUTES``.

    ``rows`` are the steps of the window; where it is long, only those of minutes that are not folded yet, beside
    ``minutes``, the folded ones, and ``minutes_before``, those ahead of the window. ``recent`` are each target's last
    steps, for what only scrapes one by one can tell.
    """

    name: str
    service: Service | None
    targets: tuple[TargetFacts, ...]
    rows: list[dict[str, Any]]
    before: list[dict[str, Any]]
    start_s: float
    end_s: float
    minutes: pl.DataFrame | None = None
    minutes_before: pl.DataFrame | None = None
    recent: list[dict[str, Any]] | None = None
    no_devices: Mapping[str, str] = field(default_factory=dict)  # target → why it has none

    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows of the window, and those ahead of it."""
        rows, before = rows_frame(self.rows), rows_frame(self.before)
        if self.minutes is None or self.minutes_before is None:
            return rows, before
        return pl.concat([self.minutes, fold(rows)]), pl.concat([self.minutes_before, before])


def service_view(inputs: ServiceInputs, engines: Mapping[str, Engine]) -> ServiceView:
    """Derive a service, its models and its targets over one window, and judge it."""
    service, limits = inputs.service, limits_of(inputs.service)
    objective = service.slo.objective if service and service.slo else None
    rows, before = inputs.frames()
    windows = target_windows(rows, before, inputs.start_s, inputs.end_s)
    one_by_one = rows if inputs.recent is None else rows_frame(inputs.recent)
    prices = {f.target.name: f.priced.price if f.priced else Price(None, None) for f in inputs.targets}

    def of(some: Sequence[TargetWindow]) -> Derived:
        why = why_none(inputs.no_devices, some)
        return derive(some, engines, limits, prices, start_s=inputs.start_s, end_s=inputs.end_s, no_devices=why)

    places = {f.target.name: p for f in inputs.targets if (p := place_of(f.target, f.understood)) is not None}
    layers = layered(windows, engines, places, prices=prices)
    prices = layers.prices(prices)
    whole = explained(of(layers.windows), layers)
    models = sorted({w.model for w in layers.windows if w.model})
    by_model = {m: explained(of(of_model(layers.windows, m)), layers) for m in models}
    # What stands around an engine counts at a request's end: a long generation is no stall there.
    around = [e.name for e in engines.values() if e.role != "engine"]
    standing, binding = stalls(one_by_one.filter(~pl.col("engine").is_in(around))), binding_limits(layers.windows)
    judged = verdict(whole, limits, objective, _reach(inputs.targets), stalls=standing, saturations=binding)
    targets = tuple(target_view(f, of([w for w in windows if w.target == f.target.name])) for f in inputs.targets)
    return ServiceView(
        inputs.name, service.description if service else "", judged.state, judged.headline, limits, objective, whole,
        by_model, targets, tuple(binding), tuple(standing),
    )  # fmt: skip


def of_model(windows: Sequence[TargetWindow], model: str) -> list[TargetWindow]:
    """The windows of one model; without devices where they serve others too."""
    serving = Counter(w.target for w in windows if w.model)
    return [w if serving[w.target] < 2 else without_devices(w) for w in windows if w.model == model]


def why_none(reasons: Mapping[str, str], windows: Iterable[TargetWindow]) -> str:
    """Why these windows have no devices, when none of them has."""
    found = dict.fromkeys(reasons[w.target] for w in windows if w.target in reasons)
    return "; ".join([*found][:2]) or NO_EXPORTER


def place_of(target: Target, understood: Understood | None) -> Place | None:
    """Where a target stands, when more is known than its engine's role; None when that is all.

    The operator's label ``role`` wins (engine, worker, router, gateway, prefill, decode); then what the page says: a
    router's families under an engine's names, or labels that name one leg of a disaggregated deployment.
    """
    said = target.labels.get("role", "")
    for role in LAYERS:
        if said == role:
            return Place(role)
    for leg in _LEGS:
        if said == leg:
            return Place(leg=leg)
    if understood is None or understood.engine is None:
        return None
    if is_only_router(understood.families):
        return Place("router")
    labels = _LEG_LABELS if understood.engine.role_label is None else (understood.engine.role_label, *_LEG_LABELS)
    said_by_series = {
        s.labels[label] for f in understood.families for s in f.series for label in labels if label in s.labels
    }
    legs = [leg for leg in _LEGS if leg in said_by_series]
    return Place(understood.engine.role, legs[0]) if len(legs) == 1 else None


def target_view(facts: TargetFacts, derived: Derived | None) -> TargetView:
    """One target as it is shown; its capability report is added where it is asked for."""
    target, last, understood = facts.target, facts.last, facts.understood
    return TargetView(
        target.name,
        target.url,
        target.service,
        up=None if last is None else last.up,
        last_scrape_s=None if last is None else last.ts,
        duration_s=None if last is None else last.duration_s,
        error="" if last is None else last.error,
        engine=understood.engine.name if understood and understood.engine else target.engine or "",
        engine_version=understood.version.text if understood else target.engine_version or "",
        models=understood.reading.models if understood and understood.reading else (),
        derived=derived,
        capability=None,
        deployment=facts.deployment,
        labels=dict(target.labels),
        price_note=_price_text(facts.priced),
        kind=target.kind,
    )


def _price_text(priced: Priced | None) -> str:
    """What a target costs and where the price is from; "" when it is not configured."""
    if priced is None or priced.price.usd_per_hour is None:
        return ""
    price = priced.price
    text = f"{price.gpus:g} × {price.gpu_hour_usd:g} USD/h"
    return "; ".join(t for t in (text, price.source, priced.doubt) if t)


def _reach(targets: Sequence[TargetFacts]) -> Reach:
    scraped = [f.last for f in targets if f.last is not None]
    failed = [s for s in scraped if not s.up]
    blind = bool(failed) and all(s.reason in _ANSWERED for s in failed)
    error = failed[0].error if failed else ""
    return Reach(len(targets), len(scraped) - len(failed), len(targets) - len(scraped), error, blind)
