"""From what a service left in the stores to what a recommendation is made from: frames in, values out. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, hypot, isfinite
from typing import Any, Final

import polars as pl

from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Deployment
from goodwatch.core.request import Vantage, Verdict
from goodwatch.signals.attainment_verdicts import tpot
from planner.configure.reading import read_command, read_facts
from planner.configure.values import Configuration
from planner.flags import flags_of, mixing_setting
from planner.simulate.fit import Seen as FitSeen
from planner.simulate.fit import calibrated
from planner.simulate.setup import Scheduler, StepCost
from planner.simulate.trace import Trace, drawn, trace
from planner.speed.calibrate import Calibration

#: requests that the step is fitted to, in two stretches: where most and where fewest arrived
FITTED: Final = 500
#: runs of the simulator that a fit may take: about two seconds of a processor for so many requests
ROUNDS: Final = 350
#: one-sigma error (log units) of a step that was fitted to metrics only: they do not tell one request from another
METRICS_SIGMA: Final = 0.3
#: what engines run with where nobody tells
_SEQUENCES: Final = 256
_BATCHED: Final = 8192
#: a trace that is a sample by more than this is not the traffic
_SAMPLED: Final = 1.02
#: requests with a latency without which a step is not fitted
LEAST_FIT: Final = 30
#: runs that a check cuts either side into
PIECES: Final = 8


@dataclass(frozen=True, slots=True)
class Fitted:
    """The cost of a step, its one-sigma error (log units), and what to say about it."""

    cost: StepCost
    sigma: float
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Running:
    """What runs: the effective configuration, the limits that follow, and what to tell of it.

    ``findings`` are flags that were set and are not in effect; ``missing`` what neither the engine nor the
    configuration tells.
    """

    configuration: Configuration
    scheduler: Scheduler
    findings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def usable(facts: pl.DataFrame) -> pl.DataFrame:
    """Requests that can be played again: those with both lengths, in order of arrival."""
    known = (pl.col("input_tokens") > 0) & (pl.col("output_tokens") > 0) & pl.col("arrived_at").is_not_null()
    return facts.filter(known).sort("arrived_at")


def trace_of(facts: pl.DataFrame) -> tuple[Trace, tuple[str, ...]]:
    """The traffic as it arrived, and what is not right about it.

    A sample is thickened: each request comes as often as it stands for, the copies a mean gap apart.
    """
    known = usable(facts)
    missing = []
    if known.height < facts.height:
        missing.append(f"{facts.height - known.height} requests tell no lengths and are left out of the traffic")
    weight = known["weight"].mean() if known.height else None
    if isinstance(weight, float) and weight > _SAMPLED:
        missing.append(f"one request in {weight:.3g} was kept: the others are taken to be like them")
        known = _thickened(known)
    cached = known["cached_tokens"].fill_null(0).clip(lower_bound=0)
    if known.height and known["cached_tokens"].is_null().all():
        missing.append("the traces tell no cached tokens: every prompt is taken to be computed")
    made = trace(
        known["arrived_at"], known["input_tokens"], known["output_tokens"],
        cached_tokens=[min(c, n - 1) for c, n in zip(cached, known["input_tokens"], strict=True)],
    )  # fmt: skip
    return made, tuple(missing)


def _thickened(known: pl.DataFrame) -> pl.DataFrame:
    span = float(known["arrived_at"][-1]) - float(known["arrived_at"][0])
    gap = span / max(1.0, float(known["weight"].fill_null(1.0).sum()))
    copies = pl.col("weight").fill_null(1.0).round().clip(1, 1000).cast(pl.Int64)
    many = known.with_columns(_copy=pl.int_ranges(0, copies)).explode("_copy")
    return many.with_columns(arrived_at=pl.col("arrived_at") + pl.col("_copy") * gap).drop("_copy").sort("arrived_at")


def fitted(facts: pl.DataFrame, rules: Scheduler, replicas: int, vantage: Vantage) -> Fitted | None:
    """The cost of a step from requests of one replica; None where too few tell a latency.

    Engine latencies are taken where they are told: what lies before the engine is no step of it.
    """
    told = usable(facts).filter(pl.col("status") == "ok")
    seen = Vantage.ENGINE if told["engine_ttft_s"].is_not_null().any() else vantage
    missing = (
        [] if seen is Vantage.ENGINE else [f"steps are fitted to latencies of the {seen.value}, not of the engine"]
    )
    names = told["target"].drop_nulls().value_counts(sort=True)
    if names.height:
        told = told.filter(pl.col("target") == names["target"][0])
    elif replicas > 1:
        told = told.gather_every(replicas)
        missing.append("the traces name no target: every replica is taken to get every nth request")
    told = told.with_columns(_tpot=tpot(seen), _ttft=pl.col(f"{seen.value}_ttft_s"))
    if told["_ttft"].is_not_null().sum() < LEAST_FIT:
        return None
    part = _stretches(told)
    made, _ = trace_of(part.with_columns(weight=1.0))
    found = calibrated(made, FitSeen(part["_ttft"].to_list(), part["_tpot"].to_list()), rules, rounds=ROUNDS)
    return Fitted(found.cost, found.sigma, tuple(missing))


def _stretches(told: pl.DataFrame) -> pl.DataFrame:
    """The stretch where most requests arrived and the one where fewest did: a step is told by variety of load."""
    if told.height <= FITTED:
        return told
    half, at = FITTED // 2, told["arrived_at"].to_list()
    lengths = [(at[i + half - 1] - at[i], i) for i in range(0, told.height - half + 1, max(1, half // 10))]
    busy, calm = min(lengths)[1], max(lengths)[1]
    if abs(busy - calm) < half:
        first = min(busy, told.height - FITTED)
        return told.slice(first, FITTED)
    return pl.concat([told.slice(min(busy, calm), half), told.slice(max(busy, calm), half)])


def fitted_to_metrics(found: Calibration) -> Fitted:
    """The cost of a step from an engine's own signals by the minute, with a wider doubt."""
    terms = found.terms
    cost = StepCost(
        max(1e-6, terms.fixed_s), max(0.0, terms.running_s), 0.0, max(0.0, terms.prefill_token_s),
        answer_s=found.answer_s or 0.0,
    )  # fmt: skip
    said = (
        "no requests are kept, only metrics: arrivals are drawn, and the step is fitted to minutes "
        f"({found.rows} of them); send traces for a narrower answer"
    )
    return Fitted(cost, hypot(found.sigma, METRICS_SIGMA), (said,))


def drawn_trace(requests: float, seconds: float, input_tokens: float, output_tokens: float) -> Trace:
    """Traffic of so many requests with these mean lengths, drawn, where only metrics are known."""
    rate = max(1e-9, requests / seconds)
    return drawn(
        min(20_000, ceil(requests)), rate, input_tokens=max(1.0, input_tokens), output_tokens=max(1.0, output_tokens)
    )


def running(told: Sequence[Deployment], args: Mapping[str, str], gpu: str | None, peak: float | None) -> Running:
    """What the replicas of a service run.

    Parameters
    ----------
    told
        The newest deployment of each target; the first speaks for all, and a difference is a finding.
    args
        Command line or flags of targets, as the configuration tells them: what an engine does not report comes from it.
    gpu
        Card of the targets; None where it is not told.
    peak
        Most requests that were seen to run at once; a limit that nobody told is not below it.

    Raises
    ------
    ConfigError
        No target tells what it runs, or an engine that has no table of flags.
    """
    if not told:
        raise ConfigError("no target of the service tells what it runs; wait for a scrape, or see goodwatch inspect")
    first = told[0]
    effective = read_facts(first, gpu)
    findings: list[str] = []
    missing: list[str] = []
    others = [one.target for one in told[1:] if _unlike(first, one)]
    if others:
        findings.append(f"replicas run differently: {', '.join(others[:3])} is not like {first.target}")
    text = args.get(first.target, "")
    if text:
        intended = intended_of(text, first)
        findings += ineffective(intended, effective)
        reported: dict[str, Any] = {**effective.told(), "model": effective.model}
        effective = replace(intended, **reported)
    return Running(effective, _scheduler(effective, first, peak, missing), tuple(findings), tuple(missing))


def intended_of(text: str, told: Deployment) -> Configuration:
    """The configuration of a target's ``args``: its whole command, or its flags alone. Raises ``ConfigError``."""
    version = told.engine_version if re.match(r"v?\d", told.engine_version) else ""
    try:
        return read_command(text, told.engine, version)
    except ConfigError:
        start = " ".join(flags_of(told.engine).commands[0].run[:-1])
        return read_command(f"{start} {told.model or 'unknown'} {text}", told.engine, version)


def ineffective(intended: Configuration, effective: Configuration) -> list[str]:
    """Flags that were set and that the engine reports otherwise."""
    wanted, told = intended.told(), effective.told()
    about = {"engine", "engine_version", "model", "gpu", "extra"}
    return [
        f"{name} was set to {wanted[name]}, the engine reports {told[name]}: set but not in effect"
        for name in wanted
        if name in told and name not in about and told[name] != wanted[name]
    ]


def effective_texts(told: Deployment) -> dict[str, str]:
    """Settings that an engine reports, by neutral name, as texts: the arms of an experiment hold them."""
    about = {"engine", "model", "gpu", "extra"}
    return {name: str(value) for name, value in read_facts(told).told().items() if name not in about}


def _unlike(a: Deployment, b: Deployment) -> bool:
    return (a.engine, a.engine_version, a.model) != (b.engine, b.engine_version, b.model) or effective_texts(
        a
    ) != effective_texts(b)


def _scheduler(one: Configuration, told: Deployment, peak: float | None, missing: list[str]) -> Scheduler:
    sequences, batched = one.max_num_seqs, one.max_num_batched_tokens
    if sequences is None:
        sequences = max(_SEQUENCES, ceil(peak or 0))
        missing.append(f"max_num_seqs: the engine does not report it, {sequences} is taken; write targets[].args")
    if batched is None:
        batched = max(_BATCHED, sequences)
        missing.append(
            f"max_num_batched_tokens: the engine does not report it, {batched} is taken; write targets[].args"
        )
    block = one.block_tokens or 16
    tokens = _kv_tokens(told, block)
    if tokens is None:
        missing.append("the size of the KV cache is not told: it is taken never to be full")
    mixing = mixing_setting(told.engine)
    return Scheduler(
        sequences, batched, max(1, tokens or 1_000_000_000), max(1, block),
        mixed=getattr(one, mixing) if getattr(one, mixing) is not None else mixing == "chunked_prefill",
        prefix_cache=one.prefix_caching is not False,
    )  # fmt: skip


def _kv_tokens(told: Deployment, block: int) -> int | None:
    for name, each in (("kv_cache_capacity_tokens", 1), ("num_gpu_blocks", block)):
        text = told.facts.get(name, "")
        if re.fullmatch(r"\d+(\.0*)?(e\+?\d+)?", text) and float(text) > 0:
            return int(float(text)) * each
    return None


def concurrency(facts: pl.DataFrame) -> tuple[float, float] | None:
    """Mean and peak of the requests that ran at once on one replica, by the engine's own clock; None where it is not told."""
    told = facts.filter(pl.col("engine_e2e_s").is_not_null() & pl.col("arrived_at").is_not_null())
    if told.is_empty():
        return None
    names = told["target"].drop_nulls().value_counts(sort=True)
    if names.height:
        told = told.filter(pl.col("target") == names["target"][0])
    begin = pl.col("ended_at") - pl.col("engine_e2e_s") + pl.col("engine_queue_s").fill_null(0.0)
    edges = told.select(at=begin, step=pl.lit(1)).vstack(told.select(at=pl.col("ended_at"), step=pl.lit(-1)))
    edges = edges.sort("at", "step").with_columns(running=pl.col("step").cum_sum())
    held = edges.with_columns(length=pl.col("at").shift(-1) - pl.col("at")).drop_nulls()
    busy = float(held.filter(pl.col("running") > 0)["length"].sum())
    area = float((held["running"] * held["length"]).sum())
    peak = edges["running"].max()
    return (area / busy if busy > 0 else 0.0), float(peak) if isinstance(peak, int | float) else 0.0


def check_noise(judged: pl.DataFrame, vantage: Vantage) -> dict[str, float]:
    """How far eight pieces of the same traffic come apart, one sigma: what a check before and after a change will see.

    Shares as they are, latencies in log units. For a step beside a drift that is fitted to eight pieces of either side,
    one sigma of a piece is about one sigma of the step. Empty where a piece has nothing.
    """
    told = ready_columns(judged, vantage).sort("ended_at")
    if told.height < 2 * PIECES:
        return {}
    begin, length = (
        float(told["ended_at"][0]),
        (float(told["ended_at"][-1]) - float(told["ended_at"][0])) / PIECES or 1.0,
    )
    place = ((pl.col("ended_at") - begin) / length).floor().clip(0, PIECES - 1)
    rows = told.group_by(place.alias("piece")).agg(
        pl.col("good").mean().alias("attainment_ratio"),
        *(
            pl.col(f"{name}_seen").quantile(0.99, "higher").log().alias(f"{name}_p99_seconds")
            for name in ("ttft", "tpot")
        ),
    )
    found = {name: rows[name].drop_nulls().std() for name in rows.columns if name != "piece"}
    return {name: float(value) for name, value in found.items() if isinstance(value, float) and isfinite(value)}


def ready_columns(judged: pl.DataFrame, vantage: Vantage) -> pl.DataFrame:
    """End, arrival, lengths, ``good``, ``ttft_seen`` and ``tpot_seen`` of judged requests; those whose verdict is open are left out."""
    certain = judged.filter(pl.col("verdict").is_in([Verdict.GOOD.value, Verdict.BAD.value]))
    # without the sampling weight: a check gives each request a weight of its own
    return certain.select(
        "ended_at", "input_tokens", "output_tokens", arrived_s=pl.col("arrived_at"), good=pl.col("verdict") == Verdict.GOOD.value,
        tpot_seen=tpot(vantage), ttft_seen=pl.col(f"{vantage.value}_ttft_s"),
    )  # fmt: skip
