"""From the runs of an experiment to its verdict: which design takes out which noise, and what keeps it from one.

- ``before_after``: a step beside a straight drift through all runs. A drift that happens to step with the change looks
  the same; the other designs do not have that weakness.
- ``interleaved``: pairs AB and BA. What both of a pair share is out; pairs that always run in one order are judged as
  a step beside a drift instead.
- ``abba``: quads ABBA or BAAB, in which a straight drift cancels.
- ``canary``: both arms at once on different targets, cut into pieces of time. Machines differ, so how far the same
  targets were apart before the change is taken off; without such pieces there is no verdict.
- ``imported``: runs of files; as pairs where blocks are named, else as before/after.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from goodwatch.core.slo import wilson
from planner.experiments.doubts import coarse, copied, one_unit, unplaced
from planner.experiments.statistics import (
    Contrast,
    blocked,
    bootstrapped,
    change_of,
    quantile,
    quantile_named,
    summary_of,
    trended,
)
from planner.experiments.values import (
    Arm,
    Effect,
    Experiment,
    Gate,
    Metric,
    Outcome,
    Run,
    Verdict,
    not_in_effect,
    other_differences,
    unchanged,
)

#: counted runs of each arm without which there is no verdict
LEAST_REPEATS: Final = 3
#: pieces of time of a canary, before and after: enough to see whether neighbours are alike; they cost nothing but a cut
LEAST_PIECES: Final = 10
#: two-sided 95 %: the lower end of quality's difference is a one-sided 97.5 % bound
_Z: Final = 1.96
_Point = tuple[Run, float]  # a run, and its summary on the scale of comparison
_Sided = tuple[float, bool, float]  # position, is it the candidate's, value

#: units of what lies between 0 and 1
_SHARES: Final = ("ratio", "share")


def judge(experiment: Experiment, *, at_s: float | None = None, noise: Mapping[str, float] | None = None) -> Verdict:
    """The verdict of an experiment as far as it has come.

    Parameters
    ----------
    at_s
        When it was judged; kept with the verdict.
    noise
        By metric, how far equal arms came apart in earlier A/A experiments (``aa_noise``); the larger of this and
        what the runs themselves show counts.
    """
    effects = tuple(effect_of(experiment, metric, (noise or {}).get(metric.name)) for metric in experiment.metrics)
    gate, gate_reason = quality_gate(experiment)
    held_up = obstacle(experiment, effects[0].repeats)
    if held_up is not None:  # what was measured stays to be seen; nothing is concluded from it
        effects = tuple(replace(one, outcome="inconclusive", reason=held_up) for one in effects)
    outcome, reason = _combined(effects[0], gate, gate_reason) if held_up is None else (effects[0].outcome, held_up)
    worse = [one.metric for one in effects[1:] if one.outcome == "worse"]
    if worse and outcome == "better":
        reason += f"; but worse in {', '.join(worse)}"
    findings = (
        *not_in_effect(experiment.baseline), *not_in_effect(experiment.candidate), *other_differences(experiment),
        *_left_out(experiment),
    )  # fmt: skip
    predicted = next((p for p in experiment.predictions if p.metric == effects[0].metric), None)
    inside = None
    if predicted is not None and effects[0].value is not None and held_up is None:
        inside = predicted.holds(effects[0].value)
    return Verdict(
        outcome, reason, effects, gate, gate_reason, gpu_hours_ratio(experiment), inside, findings, at_s
    )  # fmt: skip


def obstacle(experiment: Experiment, repeats: tuple[int, int]) -> str | None:
    """What keeps an experiment with so many counted runs from saying anything about its change; None when nothing does.

    The change is not in effect, more than one thing differs, a run is there twice, or the stop rule is not met yet.
    """
    factor = experiment.factor
    idle = [one for one in not_in_effect(experiment.candidate) if factor and f": {factor.name} was" in one]
    if idle:
        return f"the change was not made: {idle[0]}"
    same = unchanged(experiment)
    if same:
        return f"the change was not made: {same}"
    others = other_differences(experiment)
    if others:
        return f"more than one thing differs: {others[0]}"
    twice = copied(experiment)
    if twice:
        return twice
    wanted = max(LEAST_REPEATS, experiment.stop.repeats)
    if min(repeats) < wanted:
        return f"{repeats[0]} and {repeats[1]} counted runs; {wanted} of each are needed"
    return None


def _combined(primary: Effect, gate: Gate, gate_reason: str) -> tuple[Outcome, str]:
    if gate == "vetoed":
        return "worse", f"quality vetoes: {gate_reason}"
    if gate == "not_shown" and primary.outcome in ("better", "no_difference"):
        return "inconclusive", f"{primary.reason}; but {gate_reason}"
    return primary.outcome, primary.reason


def effect_of(experiment: Experiment, metric: Metric, floor: float | None = None) -> Effect:
    """What one metric did. ``floor``: noise of earlier A/A experiments, on the metric's scale."""
    base, cand = _points(experiment.baseline, metric), _points(experiment.candidate, metric)
    counted = [run for run, _ in base if not run.reference], [run for run, _ in cand if not run.reference]
    repeats = len(counted[0]), len(counted[1])
    doubt = unplaced(experiment, metric)
    if doubt is not None:  # to compare the runs that are left would be to compare survivors
        return Effect(metric.name, "inconclusive", doubt, repeats=repeats)
    if min(repeats) < LEAST_REPEATS:
        return _too_few(metric, repeats, counted)
    contrast, why = _contrast(experiment, base, cand)
    if contrast is None:
        return Effect(metric.name, "inconclusive", why, repeats=repeats)
    contrast = coarse(contrast, metric, [value for _, value in base], [value for _, value in cand])
    found = _measured(metric, contrast, repeats)
    own = found.noise
    if own is None:
        return replace(found, outcome="inconclusive", reason="no equal runs to measure the noise on")
    found = replace(found, noise=max(own, floor or 0.0))
    outcome, reason = _outcome(metric, found)
    doubt = one_unit(metric, found.value)
    if doubt is not None:
        outcome, reason = "inconclusive", doubt
    return replace(found, outcome=outcome, reason=reason)


def _measured(metric: Metric, contrast: Contrast, repeats: tuple[int, int]) -> Effect:
    low, high = contrast.change - contrast.reach, contrast.change + contrast.reach
    ends = contrast.change, low, high
    noise, detectable = contrast.noise, contrast.detectable
    if metric.scale == "ratio":
        ends = tuple(math.exp(max(-700.0, min(700.0, end))) for end in ends)  # type: ignore[assignment]
        noise = None if noise is None else math.expm1(min(700.0, noise))
        detectable = math.expm1(min(700.0, detectable))
    elif metric.unit in _SHARES:  # no share moves by more than all of it
        ends = tuple(max(-1.0, min(1.0, end)) for end in ends)  # type: ignore[assignment]
    return Effect(metric.name, "inconclusive", "", *ends, noise, detectable, repeats, contrast.basis)


def _outcome(metric: Metric, effect: Effect) -> tuple[Outcome, str]:
    assert effect.value is not None
    assert effect.low is not None
    assert effect.high is not None
    same = 1.0 if metric.scale == "ratio" else 0.0
    said = change_text(metric, effect)
    if same - metric.indifference <= effect.low and effect.high <= same + metric.indifference:
        return "no_difference", f"{said}: less than anybody would act on"
    if effect.low <= same <= effect.high:
        return "inconclusive", f"{said}: the interval holds no change"
    if abs(effect.value - same) <= (effect.noise or 0.0):
        return "inconclusive", f"{said}: within what equal runs differ by"
    good = (effect.value < same) == (metric.better == "lower")
    return ("better" if good else "worse"), said


def change_text(metric: Metric, effect: Effect) -> str:
    """An effect for a person: "ttft −12.3 % (−15.0 to −9.5 %)", in points where shares are compared, else in the unit."""
    if effect.value is None or effect.low is None or effect.high is None:
        return f"{metric.name}: {effect.reason}"
    shares = metric.unit in ("", *_SHARES)
    same, unit = (1.0, "%") if metric.scale == "ratio" else (0.0, "points" if shares else metric.unit)
    times = 100 if metric.scale == "ratio" or shares else 1
    value, low, high = (f"{(x - same) * times:+.3g}".replace("-", "−") for x in (effect.value, effect.low, effect.high))
    return f"{metric.name} {value} {unit} ({low} to {high} {unit})"


def _points(arm: Arm, metric: Metric) -> list[_Point]:
    """Counted runs with a summary, in the order in which they were made."""
    found = []
    for run in sorted(arm.runs, key=lambda one: one.position):
        measured = run.measures.get(metric.name)
        summary = summary_of(measured, metric) if measured is not None and run.counts else None
        value = None if summary is None else change_of(summary, metric)
        if value is not None:
            found.append((run, value))
    return found


def _contrast(experiment: Experiment, base: list[_Point], cand: list[_Point]) -> tuple[Contrast | None, str]:
    blocks = _blocks(base, cand, reference=False)
    design = experiment.design
    if design == "imported":
        design = "interleaved" if len(blocks) >= LEAST_REPEATS else "before_after"
    if design == "canary":
        before = [_mean_of(b, arm=True) - _mean_of(b, arm=False) for b in _blocks(base, cand, reference=True)]
        if min(len(before), len(blocks)) < LEAST_PIECES:
            return (
                None,
                f"machines differ: {LEAST_PIECES} pieces of time of the same targets before and after are needed",
            )
        return blocked([_split(b) for b in blocks], before, correlated=True), "pieces of time with both arms are needed"
    if design == "abba":
        quads = [b for b in blocks if _order(b) in ("ABBA", "BAAB")]
        return blocked([_split(b) for b in quads], spare=[_cubic(b) for b in quads]), "three whole quads are needed"
    if design == "interleaved" and _balanced(blocks):
        return blocked([_split(b) for b in blocks]), "three pairs are needed"
    measured = [[(run, value) for run, value in side if not run.reference] for side in (base, cand)]
    told = all(run.started_s is not None for side in measured for run, _ in side)
    earlier, after = (
        [(float(run.started_s or 0.0) if told else float(run.position), value) for run, value in side]
        for side in measured
    )
    return trended(earlier, after), "three runs of each arm, one after the other, are needed"


def _blocks(base: list[_Point], cand: list[_Point], *, reference: bool) -> list[list[_Sided]]:
    """Blocks that hold both arms, each in the order of its runs."""
    found: dict[int, list[_Sided]] = defaultdict(list)
    for candidate, points in ((False, base), (True, cand)):
        for run, value in points:
            if run.block is not None and run.reference is reference:
                found[run.block].append((run.position, candidate, value))
    return [sorted(found[key]) for key in sorted(found) if len({side for _, side, _ in found[key]}) == 2]


def _split(block: Sequence[_Sided]) -> tuple[list[float], list[float]]:
    return [v for _, side, v in block if not side], [v for _, side, v in block if side]


def _mean_of(block: Sequence[_Sided], *, arm: bool) -> float:
    values = _split(block)[arm]
    return math.fsum(values) / len(values)


def _order(block: Sequence[_Sided]) -> str:
    return "".join("AB"[side] for _, side, _ in block)


def _cubic(quad: Sequence[_Sided]) -> float:
    """What a quad leaves beside level, drift and arm; its variance is that of the quad's difference."""
    a, b, c, d = (value for _, _, value in quad)
    return (-a + 3 * b - 3 * c + d) / math.sqrt(20)


def _balanced(blocks: Sequence[Sequence[_Sided]]) -> bool:
    """Whether neither arm comes first more often than the other, give or take one."""
    first = sum(-1 if block[0][1] else 1 for block in blocks)
    return bool(blocks) and abs(first) <= 1


def _too_few(metric: Metric, repeats: tuple[int, int], counted: tuple[list[Run], list[Run]]) -> Effect:
    reason = f"{repeats[0]} and {repeats[1]} runs: three of each are needed for a verdict"
    if repeats != (1, 1):
        return Effect(metric.name, "inconclusive", reason, repeats=repeats)
    a, b = (runs[0].measures[metric.name] for runs in counted)
    first, second = summary_of(a, metric), summary_of(b, metric)
    if first is None or second is None:
        return Effect(metric.name, "inconclusive", reason, repeats=repeats)
    ratio = metric.scale == "ratio" and first > 0
    value = second / first if ratio else second - first
    ends = None if metric.summary == "rate" or a.weights or b.weights else _within(metric, a.values, b.values)
    low, high = (None, None) if ends is None else tuple(map(math.exp, ends)) if ratio else ends
    basis = "" if ends is None else "inside one run each; what differs from run to run is not in it"
    return Effect(metric.name, "inconclusive", reason, value, low, high, repeats=repeats, basis=basis)


def _within(metric: Metric, a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    def statistic(values: Sequence[float]) -> float | None:
        whole = metric.summary == "mean"
        found = math.fsum(values) / len(values) if whole else quantile(values, quantile_named(metric.summary))
        return None if found is None else change_of(found, metric)

    return bootstrapped(a, b, statistic)


def quality_gate(experiment: Experiment) -> tuple[Gate, str]:
    """Whether the candidate's answers are shown to be no worse than the baseline's by more than the margin.

    Notes
    -----
    Interval of a difference of two shares from Wilson's intervals: R. G. Newcombe, Interval estimation for the
    difference between independent proportions, 1998, method 10.
    """
    asked = experiment.quality
    if asked is None:
        return "not_asked", ""
    a, b = experiment.baseline, experiment.candidate
    if not a.quality_judged or not b.quality_judged or a.quality_passed is None or b.quality_passed is None:
        return "not_shown", f"{asked.evaluator}: no answers of both arms were judged"
    first, second = a.quality_passed / a.quality_judged, b.quality_passed / b.quality_judged
    a_low, a_high = wilson(a.quality_passed, a.quality_judged, _Z)
    b_low, b_high = wilson(b.quality_passed, b.quality_judged, _Z)
    low = second - first - math.hypot(second - b_low, a_high - first)
    high = second - first + math.hypot(b_high - second, first - a_low)
    said = (
        f"{asked.evaluator}: {second:.1%} of {b.quality_judged:g} passed against {first:.1%} of {a.quality_judged:g},"
        f" {_signed(low)} to {_signed(high)} points; allowed −{asked.margin_ratio * 100:g}"
    )
    if low >= -asked.margin_ratio:
        return "passed", said
    return ("vetoed" if high < 0 else "not_shown"), said if high < 0 else f"{said}: not shown, judge more answers"


def _signed(share: float) -> str:
    return f"{share * 100:+.1f}".replace("-", "−")


def gpu_hours_ratio(experiment: Experiment) -> float | None:
    """GPU-hours for one unit of work, candidate / baseline; None when a run does not tell its GPUs or its time.

    Work is what the first rate counts (tokens, images); without a rate every run counts as the same piece of work.
    """
    rate = next((metric.name for metric in experiment.metrics if metric.summary == "rate"), None)
    each = []
    for arm in (experiment.baseline, experiment.candidate):
        runs = [run for run in arm.runs if run.counts and not run.reference]
        hours = [run.gpu_hours for run in runs]
        work = [
            1.0 if rate is None else run.measures[rate].numerator
            for run in runs
            if rate is None or rate in run.measures
        ]
        told = [x for x in hours if x is not None]
        done = math.fsum(x for x in work if x is not None)
        if not runs or len(told) < len(runs) or len(work) < len(runs) or None in work or done <= 0:
            return None
        each.append(math.fsum(told) / done)
    return each[1] / each[0] if each[0] > 0 else None


def _left_out(experiment: Experiment) -> Iterable[str]:
    for arm in (experiment.baseline, experiment.candidate):
        cold = sum(not run.warm for run in arm.runs)
        if cold:
            yield f"arm {arm.name}: {cold} cold run{'s' * (cold > 1)} kept and not counted"
        for run in arm.runs:
            if run.excluded:
                yield f"arm {arm.name}: run {run.position} not counted: {run.excluded}"


def aa_noise(experiments: Iterable[Experiment], service: str | None = None) -> dict[str, float]:
    """By metric, the largest change that experiments with two equal arms showed; of one service, or of all.

    An experiment is A/A when its factor has the same value in both arms.
    """
    found: dict[str, float] = {}
    for one in experiments:
        if one.factor is None or one.factor.baseline != one.factor.candidate or service not in (None, one.service):
            continue
        for metric in one.metrics:
            effect = effect_of(one, metric)
            if effect.value is not None and min(effect.repeats) >= LEAST_REPEATS:
                far = abs(effect.value - (1.0 if metric.scale == "ratio" else 0.0))
                found[metric.name] = max(found.get(metric.name, 0.0), far)
    return found
