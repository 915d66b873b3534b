"""Where the events of SLOs come from: engines' minutes, requests, scores and published costs, service by service.

All of it blocks and reads stores: it is called in a thread. Ranges are of whole minutes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import polars as pl

from alerts.evaluate_sources import countings, why_not
from alerts.rules.sli import indicators
from alerts.rules.values import Options
from goodwatch.app.request_watch import RequestLoop
from goodwatch.core.errors import ConfigError
from goodwatch.core.ports import SampleStore
from goodwatch.core.slo import Cost, JointGoodput, Quality, Slo
from goodwatch.signals.attainment_limits import LimitsTable
from goodwatch.signals.attainment_verdicts import judge
from goodwatch.signals.request_frames import FACTS
from goodwatch.signals.rollup import DAY_S, HOUR_S, MINUTE_S
from goodwatch.signals.slo_events import EVENTS, Counting, native_events, signals_of, summed
from goodwatch.signals.slo_events_counted import (
    COST_NAMES,
    MEAN_SIGNALS,
    PREFIX_SIGNALS,
    SPEND_NAMES,
    cost_events,
    fact_events,
    limits_counted,
    mean_events,
    prefix_events,
    rollup_events,
    score_events,
    spend_events,
)

#: a score may say that it was given so long before it came
_SCORED_EARLIER_S: Final = 7_200.0
#: columns that verdicts and scopes need; facts have four times as many
_JUDGED_BY: Final = (
    "trace_id", "ended_at", "service", "model", "target", "tenant", "route", "form", "input_tokens", "output_tokens", "stream",
    "choices", "status", "weight", "engine_ttft_s", "engine_tpot_s", "engine_e2e_s", "gateway_ttft_s", "gateway_e2e_s",
    "client_ttft_s", "client_e2e_s",
)  # fmt: skip


#: labels that an SLO can be split by, as requests call them
SPLITS: Final = ("model", "tenant", "route")


@dataclass(frozen=True, slots=True)
class Ledger:
    """Events of a service in a range: by SLO, and what its symptoms and trends look at (``beside``)."""

    slos: Mapping[str, pl.DataFrame]
    beside: pl.DataFrame


@dataclass(frozen=True, slots=True)
class SloSources:
    """The stores, and how each engine counts. ``requests`` is the loop over single requests; None without any."""

    samples: SampleStore
    options: Options
    requests: RequestLoop | None = None
    _counting: dict[str, dict[str, Counting]] = field(default_factory=dict)

    def why_none(self, slo: Slo) -> str:
        """Why an SLO cannot have numbers here, for a person; "" when it can."""
        why = why_not(slo)
        if why:
            return why
        try:
            indicators(slo, self.options)
            native = self._native(slo)
        except ConfigError as error:
            return str(error)
        odd = [name for name in slo.scope.by if name not in SPLITS]
        if odd:
            return f"it is split by {odd[0]}, which requests do not tell; they tell {', '.join(SPLITS)}"
        if isinstance(slo.indicator, Quality) or slo.scope.needs_facts:
            return "" if self.requests is not None else "it needs traces of requests; none are kept"
        return "" if native or isinstance(slo.indicator, Cost | JointGoodput) else "no engine counts it"

    def counts_alone(self, slo: Slo) -> bool:
        """Whether nobody but this module counts single events of an SLO: neither engines nor the series of requests."""
        if self.requests is None or self.why_none(slo):
            return False
        if isinstance(slo.indicator, JointGoodput) and not slo.scope.needs_facts:
            return not _is_judged_by(self.requests, slo)
        return isinstance(slo.indicator, Quality) or slo.scope.needs_facts

    def read(self, service: str, slos: Sequence[Slo], start_s: float, end_s: float) -> Ledger:
        """Events of a service in ``[start_s, end_s)``. Raises ``StoreError``."""
        told = [slo for slo in slos if not self.why_none(slo)]
        signals = {*PREFIX_SIGNALS, *MEAN_SIGNALS, *(signal for slo in told for signal in signals_of(slo))}
        minutes = self.samples.minutes(start_s, end_s, service=service, signals=sorted(signals))
        names = {COST_NAMES[slo.indicator.tokens] for slo in told if isinstance(slo.indicator, Cost)} | {*SPEND_NAMES}
        published = [self.samples.derived(start_s, end_s, service=service, name=name) for name in sorted(names)]
        derived = pl.concat(published)
        counted = self._counted(service, told, start_s, end_s)
        found = {
            slo.name: summed(
                [native_events(minutes, slo, self._native(slo)), cost_events(derived, slo), *counted.get(slo.name, ())]
            )
            for slo in told
        }
        return Ledger(found, summed([prefix_events(minutes), mean_events(minutes), spend_events(derived)]))

    def _native(self, slo: Slo) -> dict[str, Counting]:
        found = self._counting.get(slo.name)
        if found is None:
            found = self._counting[slo.name] = countings(slo, self.options)
        return found

    # -- single requests --------------------------------------------------------------------------------------------

    def _counted(
        self, service: str, slos: Iterable[Slo], start_s: float, end_s: float
    ) -> dict[str, tuple[pl.DataFrame, ...]]:
        loop = self.requests
        if loop is None:
            return {}
        found: dict[str, tuple[pl.DataFrame, ...]] = {}
        facts = cache(lambda: facts_to_judge(loop, service, start_s, end_s))
        rollups = cache(lambda: _rollups(loop, service, start_s, end_s))
        for slo in slos:
            kind = slo.indicator
            if isinstance(kind, Quality):
                found[slo.name] = (self._scored(loop, slo, start_s, end_s),)
            elif isinstance(kind, JointGoodput) and not slo.scope.needs_facts and _is_judged_by(loop, slo):
                found[slo.name] = tuple(rollup_events(rows, slo, tier) for tier, rows in rollups().items())
            elif slo.scope.needs_facts or isinstance(kind, JointGoodput):
                limits = limits_counted(slo)
                if limits is not None:
                    table = LimitsTable.of(limits, slo.name)
                    found[slo.name] = (fact_events(judge(facts(), table, vantage=loop.vantage(service)), slo),)
        return found

    @staticmethod
    def _scored(loop: RequestLoop, slo: Slo, start_s: float, end_s: float) -> pl.DataFrame:
        scores = loop.store.scores(start_s - _SCORED_EARLIER_S, end_s)
        came = scores.filter(pl.col("received_s") >= start_s, pl.col("received_s") < end_s)
        if came.is_empty():
            return pl.DataFrame(schema=EVENTS)
        ours = pl.col("service") == slo.service
        if not slo.scope.needs_facts and not came["service"].has_nulls():
            return score_events(came.filter(ours), slo)
        # A score that names no service belongs to that of its trace.
        columns = ("trace_id", "model", "tenant", "route", "input_tokens")
        facts = loop.store.facts(start_s - DAY_S, end_s, columns=columns, service=slo.service)
        if slo.scope.needs_facts:
            return score_events(came, slo, facts)
        named, bare = came.filter(ours), came.filter(pl.col("service").is_null())
        return summed([score_events(named, slo), score_events(bare, slo, facts)])


def facts_to_judge(loop: RequestLoop, service: str, start_s: float, end_s: float) -> pl.DataFrame:
    """Requests of a service with what verdicts and scopes look at; the other columns of ``FACTS`` are null."""
    rows = loop.store.facts(start_s, end_s, columns=_JUDGED_BY, service=service)
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in FACTS.items() if name not in rows.columns]
    return rows.with_columns(missing)


def _is_judged_by(loop: RequestLoop, slo: Slo) -> bool:
    """Whether rollups are judged by just this SLO: it is the one of its service."""
    rows = loop.terms.limits.get(slo.service, LimitsTable())
    limits = limits_counted(slo)
    return any(row.slo == slo.name and row.limits == limits for row in rows)


def _rollups(loop: RequestLoop, service: str, start_s: float, end_s: float) -> dict[float, pl.DataFrame]:
    """Rollups of a range, minutes where they are kept, else hours; by tier."""
    kept_s = loop.clock.now_s() - loop.terms.minutes_kept_s
    first = max(start_s, -(-kept_s // HOUR_S) * HOUR_S)
    found: dict[float, pl.DataFrame] = {}
    if first < end_s:
        found[float(MINUTE_S)] = loop.store.rollups(MINUTE_S, first, end_s, service=service)
    if start_s < min(first, end_s):
        found[float(HOUR_S)] = loop.store.rollups(HOUR_S, start_s, min(first, end_s), service=service)
    return found
