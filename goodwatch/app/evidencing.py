"""The evidence of a recommendation from the running service: what the stores hold of its traffic, what its engines run."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl

from goodwatch.app.planning import VramOptions, request_of
from goodwatch.app.request_reads import RequestReads
from goodwatch.app.request_view import Slice
from goodwatch.app.watch import Watch
from goodwatch.app.wiring import limits_of
from goodwatch.core.drift import Drift
from goodwatch.core.errors import ConfigError, NoDataError
from goodwatch.core.histogram import merged
from goodwatch.core.model import Deployment, Number
from goodwatch.core.request import Vantage
from goodwatch.signals.attainment import Attained
from goodwatch.signals.attainment_verdicts import tpot
from goodwatch.signals.derive import Derived, derive
from goodwatch.signals.windows import TargetWindow
from planner import gathering
from planner.estimate import Estimate
from planner.evidence import Evidence, Seen
from planner.gathering import Fitted, Running
from planner.simulate.run import Limits
from planner.simulate.setup import Fleet
from planner.simulate.trace import Trace
from planner.speed.calibrate import Terms, calibrate
from planner.speed.deployment import Named
from planner.tensors import Layout
from planner.vram import Request

#: requests that advice or a check reads one by one: about half a GB while they are judged
MOST_READ: Final = 400_000
#: a stretch of time is cut to so many parts of itself at most
_HALVES: Final = 12
#: what a step costs before anything is known of an engine; minutes of any load move it
_ANY_ENGINE: Final = Terms(0.01, 1e-3, 2e-5)
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400.0
#: days of hours that a daily pattern needs
_PATTERN_DAYS: Final = 7
_LEAST_PATTERN_DAYS: Final = 2


@dataclass(frozen=True, slots=True)
class Gathered:
    """Evidence, and what stands beside it: the effective configuration, and how far equal pieces of traffic come apart."""

    evidence: Evidence
    running: Running
    deployments: tuple[Deployment, ...]
    noise: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Evidencing:
    """Gathers evidence of one service. ``args``: command line or flags of targets as configured, by target.

    ``startup_s``: how long a replica takes to start, by service, where somebody told.
    """

    reads: RequestReads
    watch: Watch
    args: Callable[[], Mapping[str, str]] = dict
    startup_s: Mapping[str, float] = field(default_factory=dict)
    most_read: int = MOST_READ

    def readable_since(self, service: str, start_s: float, end_s: float) -> float:
        """Where a range has to begin so that its requests can be read; its own start where they are few. Blocking.

        Raises ``StoreError``.
        """
        return end_s - self._readable(service, end_s - start_s, lambda length: (end_s - length, end_s))

    def readable_until(self, service: str, start_s: float, end_s: float) -> float:
        """The same for its end."""
        return start_s + self._readable(service, end_s - start_s, lambda length: (start_s, start_s + length))

    def _readable(self, service: str, whole_s: float, span: Callable[[float], tuple[float, float]]) -> float:
        if self.reads.count(Slice(service, *span(whole_s))) <= self.most_read:
            return whole_s
        fits, over = 0.0, whole_s
        for _ in range(_HALVES):
            middle = (fits + over) / 2
            if self.reads.count(Slice(service, *span(middle))) <= self.most_read:
                fits = middle
            else:
                over = middle
        return fits

    async def gather(self, service: str, start_s: float, end_s: float, drift: Drift | None = None) -> Gathered:
        """Everything of ``[start_s, end_s)``; fitting runs in a worker thread, about two seconds of a processor.

        Raises
        ------
        NoDataError
            Unknown service, or nothing was measured.
        ConfigError
            No target tells what it runs.
        StoreError
            A store cannot be read.
        """
        view = self.watch.service(service)
        if view is None:
            known = ", ".join(one.name for one in self.watch.services()[:10])
            raise NoDataError(f"service {service[:100]}: there is none; known are {known or 'none'}")
        of = Slice(service, start_s, end_s)
        layers = await self.watch.windows(service, start_s, end_s)
        attained, _ = await self.reads.attained(of)
        facts, _ = await self.reads.scores(of)
        by_hour = await asyncio.to_thread(self._by_hour, service, end_s)
        minutes = await self._minutes(service, start_s, end_s) if facts.is_empty() else None
        told = tuple(one.deployment for one in view.targets if one.deployment is not None)
        source = _Source(
            service, start_s, end_s, facts, attained, layers.windows, self._derived(service, layers.windows, start_s, end_s),
            minutes, told, {**self.args()}, self.reads.vantage(service), Limits(*_limits(self.watch, service)),
            view.objective, self._price(told), tuple(sorted({gpu for t in view.targets if (gpu := t.labels.get("gpu"))})),
            self._gpus(told), self.startup_s.get(service), by_hour, drift,
        )  # fmt: skip
        return await asyncio.to_thread(source.gathered)

    def _derived(self, service: str, windows: Sequence[TargetWindow], start_s: float, end_s: float) -> Derived:
        prices = {name: priced.price for name, priced in self.watch.terms.prices.items()}
        limits = limits_of(self.watch.terms.services.get(service))
        return derive(windows, self.watch.engines, limits, prices, start_s=start_s, end_s=end_s)

    async def _minutes(self, service: str, start_s: float, end_s: float) -> pl.DataFrame:
        return await self.watch.keeper.call(lambda: self.watch.store.minutes(start_s, end_s, service=service))

    def _price(self, told: Sequence[Deployment]) -> Estimate | None:
        prices = [self.watch.terms.prices.get(one.target) for one in told]
        found = [(p.price.gpu_hour_usd, p.price.source) for p in prices if p is not None]
        known = [(usd, source) for usd, source in found if usd is not None]
        if not known or len(known) < len(told):
            return None
        values = [usd for usd, _ in known]
        return Estimate(sum(values) / len(values), min(values), max(values), known[0][1])

    def _gpus(self, told: Sequence[Deployment]) -> int | None:
        found = {
            self.watch.terms.prices[one.target].price.gpus for one in told if one.target in self.watch.terms.prices
        }
        held = next(iter(found), None)
        return None if held is None or len(found) != 1 else max(1, round(held))

    def _by_hour(self, service: str, end_s: float) -> tuple[float, ...]:
        """Mean requests of each UTC hour over the last days; empty where too few are known."""
        rolled = self.reads.loop.store.rollups(_HOUR_S, end_s - _PATTERN_DAYS * _DAY_S, end_s, service=service)
        if rolled.is_empty():
            return ()
        days = (end_s - float(rolled["start_s"].min() or end_s)) / _DAY_S  # type: ignore[arg-type]
        if days < _LEAST_PATTERN_DAYS:
            return ()
        hour = (pl.col("start_s") % _DAY_S // _HOUR_S).cast(pl.Int64)
        sums = dict(rolled.group_by(hour.alias("hour")).agg(pl.col("weighted").sum()).iter_rows())
        return tuple(float(sums.get(at, 0.0)) / days for at in range(24))


def _limits(watch: Watch, service: str) -> tuple[float | None, float | None, float | None]:
    told = limits_of(watch.terms.services.get(service))
    return told.ttft_s, told.tpot_s, told.e2e_s


@dataclass(frozen=True, slots=True)
class _Source:
    """All that was read, to be made into evidence in a thread."""

    service: str
    start_s: float
    end_s: float
    facts: pl.DataFrame
    attained: Attained
    windows: Sequence[TargetWindow]
    derived: Derived
    minutes: pl.DataFrame | None
    told: tuple[Deployment, ...]
    args: Mapping[str, str]
    vantage: Vantage
    limits: Limits
    objective: float | None
    usd_per_gpu_hour: Estimate | None
    cards: tuple[str, ...]  # types of the GPUs, as the targets tell them
    gpus: int | None
    startup_s: float | None
    by_hour: tuple[float, ...]
    drift: Drift | None

    def gathered(self) -> Gathered:
        """The evidence. Raises ``NoDataError`` or ``ConfigError``."""
        at_once = gathering.concurrency(self.facts)
        seen = self._seen(at_once)
        gpu = self.cards[0] if len(self.cards) == 1 else None
        running = gathering.running(self.told, self.args, gpu, seen.running_peak)
        most = running.scheduler.max_num_seqs  # a preempted request waits again, which its span does not tell
        if seen.running is not None and seen.running_peak is not None:
            seen = replace(seen, running=min(seen.running, most), running_peak=min(seen.running_peak, most))
        replicas = max(1, len(self.told))
        trace, fitted, missing = self._traffic(running, replicas)
        vram, speed, about = sized(running, gpu, self.gpus)
        if len(self.cards) > 1:
            about = (f"targets run on {' and '.join(self.cards)}: nothing is said of memory, precision or other cards",)
        if self.usd_per_gpu_hour is None:
            missing.append("no price of the GPUs is known: savings cannot be told; write gpus and gpu_hour_usd")
        if self.objective is None:
            missing.append("the service has no objective: 99 % is taken")
        one = running.configuration
        evidence = Evidence(
            self.service, self.start_s, self.end_s, Fleet(fitted.cost, running.scheduler, replicas), fitted.sigma, trace,
            self.limits, self.objective or 0.99, seen, one.told(), one.engine, one.engine_version, vram, speed,
            self.gpus or one.cards, self.usd_per_gpu_hour, startup_s=self.startup_s, requests_by_hour=self.by_hour,
            requests_by_tenant=_tenants(self.facts), drift=self.drift,
            missing=(*missing, *fitted.missing, *running.missing, *about),
        )  # fmt: skip
        return Gathered(evidence, running, self.told, gathering.check_noise(self.facts, self.vantage))

    def _traffic(self, running: Running, replicas: int) -> tuple[Trace, Fitted, list[str]]:
        if not self.facts.is_empty():
            trace, missing = gathering.trace_of(self.facts)
            fitted = gathering.fitted(self.facts, running.scheduler, replicas, self.vantage)
            if fitted is not None:
                return trace, fitted, [*missing]
            raise NoDataError(
                f"{self.service}: {self.facts.height:,} requests ended, and fewer than {gathering.LEAST_FIT} of them succeeded "
                "and tell both lengths and a TTFT: how long a step takes is not known; send the engine's traces, or stream"
            )
        return (*self._from_metrics(), [])

    def _from_metrics(self) -> tuple[Trace, Fitted]:
        """Traffic and step from the engines' own counters; says that it is the poorer way."""
        ended = sum(w.counter("requests_finished_total") or 0.0 for w in self.windows)
        if not ended or self.minutes is None:
            raise NoDataError(f"{self.service}: no request ended in the window; widen it, or wait for traffic")
        names = ("input_tokens_total", "output_tokens_total")
        tokens = [_summed(self.windows, name) or 0.0 for name in names]
        unknown = [name for name, count in zip(names, tokens, strict=True) if not count]
        if unknown:
            raise NoDataError(
                f"{self.service}: the engines do not tell {' and '.join(unknown)}: lengths are not known; send traces"
            )
        found = calibrate(_rows(self.minutes), _ANY_ENGINE)
        trace = gathering.drawn_trace(ended, self.end_s - self.start_s, tokens[0] / ended, tokens[1] / ended)
        return trace, gathering.fitted_to_metrics(found)

    def _seen(self, at_once: tuple[float, float] | None) -> Seen:
        numbers = self.derived.numbers
        targets = max(1, len(self.told))
        running = at_once[0] if at_once else _each(_value(numbers.get("requests_running")), targets)
        ended = self.facts.height or round(sum(w.counter("requests_finished_total") or 0.0 for w in self.windows))
        hours = (self.end_s - self.start_s) / 3600
        preempted = _summed(self.windows, "preemptions_total")
        return Seen(
            ended, self._share(), self._p99("ttft"), self._p99("tpot"), _value(numbers.get("usd_per_hour")), running,
            at_once[1] if at_once else _peak(self.windows, "requests_running"),
            _each(_value(numbers.get("requests_waiting")), targets), _value(numbers.get("kv_cache_used_ratio")),
            _quotient(self.windows, "prefix_cache_hits_total", "prefix_cache_queries_total"),
            None if preempted is None or hours <= 0 else preempted / hours,
            _quotient(self.windows, "spec_accepted_tokens_total", "spec_draft_tokens_total"),
            _longest(self.facts), self._off_scale(),
        )  # fmt: skip

    def _share(self) -> tuple[float, float] | None:
        """Both ends of the attainment: counted requests first, else the bounds of the metrics."""
        counted = (
            self.attained.attainment if not self.facts.is_empty() else self.derived.numbers.get("attainment_ratio")
        )
        if counted is None:
            return None
        if counted.bounds is not None:
            return counted.bounds.low, 1.0 if counted.bounds.high is None else counted.bounds.high
        return None if counted.value is None else (counted.value, counted.value)

    def _p99(self, which: str) -> float | None:
        if self.facts.is_empty():
            told = self.derived.numbers.get(f"{which}_p99_seconds")
            return _value(told) or (told.bounds.high if told is not None and told.bounds is not None else None)
        column = tpot(self.vantage) if which == "tpot" else pl.col(f"{self.vantage.value}_ttft_s")
        # of traces that were kept by their tail each stands for another number
        weight = pl.col("weight").fill_null(1.0).alias("w")
        rows = self.facts.select(column.alias("value"), weight).drop_nulls("value").sort("value")
        whole, squares = float(rows["w"].sum()), float((rows["w"] ** 2).sum())
        if squares <= 0 or whole * whole / squares * (1 + 1e-9) < 100:
            return None
        return float(rows.filter(pl.col("w").cum_sum() >= 0.99 * whole * (1 - 1e-12))["value"][0])

    def _off_scale(self) -> tuple[str, ...]:
        """Latencies with a target whose quantile lies above the last bucket; single requests have no buckets."""
        if not self.facts.is_empty():
            return ()
        pairs = (("ttft_seconds", self.limits.ttft_s), ("tpot_seconds", self.limits.tpot_s))
        found = []
        for name, limit in pairs:
            whole = merged(h for w in self.windows if (h := w.histogram(name)) is not None)
            if limit is None or whole is None or len(whole.count) < 2 or not whole.total:
                continue
            if limit > whole.le[-2] or whole.count[-2] < 0.5 * whole.total:
                found.append(name)
        return tuple(found)


def sized(running: Running, gpu: str | None, gpus: int | None) -> tuple[Request | None, Named | None, tuple[str, ...]]:
    """The running deployment for the ledger of memory and for the step model, where model and card are known."""
    one = running.configuration
    if gpu is None:
        return None, None, ("the GPU type is not told: nothing is said of memory, precision or other cards; write gpu",)
    try:
        vram = request_of(
            VramOptions(
                one.model, gpu, one.engine, one.engine_version or None, one.quantisation, one.kv_dtype or "auto", one.tp or 1,
                one.pp or 1, one.ep or 1, one.dp or 1, one.memory_fraction, one.max_model_len, one.max_num_seqs,
                one.max_num_batched_tokens, one.block_tokens, enforce_eager=bool(one.eager), draft_tokens=one.speculative_tokens,
            )
        )  # fmt: skip
    except ConfigError as error:
        return None, None, (f"memory and speed of {one.model} on {gpu} are not modelled: {error}",)
    layout = Layout(one.tp or 1, one.pp or 1, one.ep or 1, one.dp or 1)
    kv = None if one.kv_dtype in (None, "auto") else one.kv_dtype
    named = Named(
        one.model, one.quantisation or "bf16", gpu, gpus or one.cards, one.engine, one.engine_version, layout, kv
    )
    return vram, named, ()


def _rows(minutes: pl.DataFrame) -> pl.DataFrame:
    """Rows for ``calibrate``: running, step_tokens, tpot_s, ttft_s by minute and target."""
    keys = ["minute_s", "target"]
    gauges = minutes.filter(pl.col("signal") == "requests_running").group_by(keys).agg(running=pl.col("mean").sum())
    found = gauges
    for signal, name in (("tpot_seconds", "tpot_s"), ("ttft_seconds", "ttft_s")):
        of = minutes.filter(pl.col("signal") == signal).group_by(keys)
        mean = of.agg((pl.col("sum").sum() / pl.col("increase").sum()).alias(name))
        found = found.join(mean, on=keys, how="left")
    tokens = [
        minutes.filter(pl.col("signal") == signal).group_by(keys).agg(pl.col("increase").sum().alias(signal))
        for signal in ("input_tokens_total", "output_tokens_total")
    ]
    for frame in tokens:
        found = found.join(frame, on=keys, how="left")
    steps = pl.col("output_tokens_total") / pl.col("running")
    carried = pl.when(steps > 0).then(pl.col("input_tokens_total") / steps).otherwise(0.0)
    return found.with_columns(step_tokens=pl.col("running") + carried, ts=pl.col("minute_s")).sort("ts")


def _tenants(facts: pl.DataFrame) -> dict[str, int]:
    counted = facts["tenant"].drop_nulls().value_counts(sort=True)
    return {str(name): int(count) for name, count in counted.head(50).iter_rows()}


def _value(number: Number | None) -> float | None:
    return None if number is None else number.value


def _each(whole: float | None, targets: int) -> float | None:
    return None if whole is None else whole / targets


def _summed(windows: Sequence[TargetWindow], signal: str) -> float | None:
    found = [value for w in windows if (value := w.counter(signal)) is not None]
    return sum(found) if found else None


def _quotient(windows: Sequence[TargetWindow], part: str, whole: str) -> float | None:
    a, b = _summed(windows, part), _summed(windows, whole)
    return None if a is None or not b else a / b


def _peak(windows: Sequence[TargetWindow], signal: str) -> float | None:
    return max((gauge.max for w in windows if (gauge := w.gauge(signal)) is not None), default=None)


def _longest(facts: pl.DataFrame) -> int | None:
    longest = (facts["input_tokens"] + facts["output_tokens"]).max()
    return int(longest) if isinstance(longest, int) else None
