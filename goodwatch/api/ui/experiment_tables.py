"""The tables and drawings of experiments: verdicts, effects, runs, flags, what was predicted. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from goodwatch.api.experiment_shapes import primary_prediction
from goodwatch.api.ui.bars import Tone
from goodwatch.api.ui.format import digits, money, percent, scalar, seconds, span
from planner.experiments.statistics import shown, summary_of
from planner.experiments.values import (
    Arm,
    Effect,
    Experiment,
    Metric,
    Prediction,
    Run,
    not_in_effect,
    other_differences,
)

#: outcome → word, mark, class of its badge
VERDICTS: Final = {
    "better": ("better", "✓", "good"), "worse": ("worse", "✕", "bad"), "no_difference": ("no difference", "=", "no-traffic"),
    "inconclusive": ("inconclusive", "?", "no-data"), "none": ("not judged", "…", "no-traffic"),
}  # fmt: skip
DESIGNS: Final = {
    "before_after": "before / after", "interleaved": "interleaved pairs", "abba": "ABBA", "canary": "canary",
    "imported": "result files", "sweep": "sweep",
}  # fmt: skip
GATES: Final = {"passed": "passed", "vetoed": "vetoed", "not_shown": "not shown", "not_asked": "not asked for"}
WIDTH: Final = 600.0
#: from here on a change is told as a factor
_FACTOR: Final = 3.0
_MOST_RUNS: Final = 200
_SHARES: Final = ("", "ratio", "share")


@dataclass(frozen=True, slots=True)
class Spread:
    """An interval on a line of ``WIDTH``: its place, its middle, what was predicted, and no change; all in view box."""

    x: float
    width: float
    middle: float
    same: float
    predicted: tuple[float, float] | None
    tone: Tone
    label: str


@dataclass(frozen=True, slots=True)
class EffectRow:
    """What one metric did, as text; "–" is not known."""

    name: str
    better: str
    mark: tuple[str, str, str]
    change: str
    interval: str
    noise: str
    detectable: str
    repeats: str
    reason: str
    spread: Spread | None


@dataclass(frozen=True, slots=True)
class ListRow:
    """One experiment of the list."""

    one: Experiment
    mark: tuple[str, str, str]
    design: str
    factor: str
    metric: str
    change: str
    interval: str
    tone: Tone
    predicted: str
    predicted_tone: Tone
    predicted_range: str


@dataclass(frozen=True, slots=True)
class Dot:
    """One run on a line of ``WIDTH``; ``title`` says what it is."""

    x: float
    title: str
    counted: bool


@dataclass(frozen=True, slots=True)
class ArmLine:
    """Runs of one arm in one metric: minimum, median, maximum as texts, and each run as a mark on one scale."""

    arm: str
    runs: int
    least: str
    median: str
    most: str
    x: float
    width: float
    middle: float
    dots: tuple[Dot, ...]
    label: str


@dataclass(frozen=True, slots=True)
class FlagRow:
    """A flag in both arms, as set and as the engine reports it."""

    name: str
    cells: tuple[str, str, str, str]
    note: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run with its raw values as minimum–median–maximum, one text a metric."""

    arm: str
    run: Run
    cells: tuple[str, ...]
    note: str


def mark_of(outcome: str | None) -> tuple[str, str, str]:
    """Word, sign and class of an outcome."""
    return VERDICTS[outcome or "none"]


def change(metric: Metric, value: float | None) -> str:
    """A change on the metric's scale: "−12.3 %", "× 4.1", "+2.1 points", or in the metric's unit.

    Examples
    --------
    >>> time = Metric("e2e_s", "s", "lower")
    >>> change(time, 0.877), change(time, 4.1), change(Metric("hits", "ratio", "higher", scale="difference"), 0.021)
    ('−12.3 %', '× 4.1', '+2.1 points')
    """
    if value is None:
        return "–"
    if metric.scale == "ratio":
        if value >= _FACTOR or value <= 1 / _FACTOR:
            return f"× {digits(value)}" if value < 1e6 else f"× {value:.2g}"
        return _signed((value - 1) * 100, "%")
    return _signed(value * 100, "points") if metric.unit in _SHARES else _signed(value, metric.unit)


def _signed(value: float, unit: str) -> str:
    text = digits(abs(value)) if abs(value) >= 10 else f"{abs(value):.2f}".rstrip("0").rstrip(".")
    sign = "" if text == "0" else "−" if value < 0 else "+"
    return f"{sign}{text} {unit}".strip()


def amount(metric: Metric, value: float | None) -> str:
    """A value in the metric's own unit."""
    if value is None:
        return "–"
    if metric.unit in ("s", "ratio") and value >= 0:
        return " ".join(scalar(metric.unit, value))
    text = digits(abs(value)) if abs(value) < 1e15 else f"{abs(value):.3g}"
    return f"{'−' if value < 0 else ''}{text} {metric.unit}".strip()


def _ends(metric: Metric, low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{change(metric, low)} to {change(metric, high)}"


def _tone(metric: Metric, effect: Effect) -> Tone:
    return {"better": "good", "worse": "bad"}.get(effect.outcome, "")  # type: ignore[return-value]


def primary_effect(one: Experiment) -> Effect | None:
    """What the metric that decides did."""
    return next((e for e in one.verdict.effects if e.metric == one.primary.name), None) if one.verdict else None


def list_rows(found: Iterable[Experiment]) -> tuple[ListRow, ...]:
    """One row an experiment."""
    return tuple(map(_list_row, found))


def _list_row(one: Experiment) -> ListRow:
    metric, effect, told = one.primary, primary_effect(one), primary_prediction(one)
    factor = one.factor
    inside = one.verdict.predicted_inside if one.verdict else None
    words = {True: ("inside", "good"), False: ("outside", "bad"), None: ("open" if told else "–", "")}
    predicted, tone = words[inside]
    return ListRow(
        one, mark_of(one.verdict.outcome if one.verdict else None), DESIGNS[one.design],
        f"{factor.name}: {factor.baseline} → {factor.candidate}" if factor else "–", metric.name,
        change(metric, effect.value) if effect else "–", _ends(metric, effect.low, effect.high) if effect else "",
        _tone(metric, effect) if effect else "", predicted, tone,  # type: ignore[arg-type]
        _ends(metric, told.low, told.high) if told else "",
    )  # fmt: skip


def effect_rows(one: Experiment) -> tuple[EffectRow, ...]:
    """One row a metric, the one that decides first; empty without a verdict."""
    metrics = {metric.name: metric for metric in one.metrics}
    effects = one.verdict.effects if one.verdict else ()
    return tuple(_effect_row(one, metrics[effect.metric], effect) for effect in effects if effect.metric in metrics)


def _effect_row(one: Experiment, metric: Metric, effect: Effect) -> EffectRow:
    told = next((p for p in one.predictions if p.metric == metric.name), None)
    return EffectRow(
        metric.name, f"{metric.better} is better", mark_of(effect.outcome), change(metric, effect.value),
        _ends(metric, effect.low, effect.high), _distance(metric, effect.noise), _distance(metric, effect.detectable),
        f"{effect.repeats[0]} + {effect.repeats[1]}", effect.reason, _spread(metric, effect, told),
    )  # fmt: skip


def _distance(metric: Metric, value: float | None) -> str:
    """A distance from no change, which has no sign."""
    if value is None:
        return "–"
    if metric.scale == "ratio":
        return f"± {digits(value * 100)} %" if value < 1e6 else "± any"
    return f"± {digits(value * 100)} points" if metric.unit in _SHARES else f"± {digits(value)} {metric.unit}"


def _spread(metric: Metric, effect: Effect, told: Prediction | None) -> Spread | None:
    if effect.value is None or effect.low is None or effect.high is None:
        return None
    scale = _logarithm if metric.scale == "ratio" else float
    same = scale(1.0 if metric.scale == "ratio" else 0.0)
    low, middle, high = map(scale, (effect.low, effect.value, effect.high))
    ends = None if told is None or (metric.scale == "ratio" and told.low <= 0) else (scale(told.low), scale(told.high))
    place = _Axis([low, high, same, *(ends or ())])
    band = None if ends is None else (place.x(ends[0]), max(2.0, place.x(ends[1]) - place.x(ends[0])))
    said = f"{metric.name}: {change(metric, effect.value)}, {_ends(metric, effect.low, effect.high)}"
    label = said if told is None else f"{said}; predicted {_ends(metric, told.low, told.high)}"
    return Spread(
        place.x(low), max(3.0, place.x(high) - place.x(low)), place.x(middle), place.x(same), band, _tone(metric, effect),
        label,
    )  # fmt: skip


def _logarithm(value: float) -> float:
    return math.log(value) if value > 0 else -700.0


class _Axis:
    """Values to places of ``WIDTH``, with a margin; a single value is in the middle."""

    def __init__(self, values: Sequence[float]) -> None:
        self._low, high = min(values), max(values)
        self._length = high - self._low

    def x(self, value: float) -> float:
        """Place of a value."""
        share = 0.5 if self._length <= 0 else (value - self._low) / self._length
        return round(20 + share * (WIDTH - 40), 1)


def metric_lines(one: Experiment) -> tuple[tuple[Metric, tuple[ArmLine, ...]], ...]:
    """Runs of both arms in every metric, on one scale; metrics that no run tells are left out."""
    found = []
    for metric in one.metrics:
        told = [(arm, _summaries(arm, metric)) for arm in (one.baseline, one.candidate)]
        values = [value for _, pairs in told for _, value in pairs]
        if values:
            axis = _Axis(values)
            found.append((metric, tuple(_arm_line(arm, metric, pairs, axis) for arm, pairs in told if pairs)))
    return tuple(found)


def _summaries(arm: Arm, metric: Metric) -> list[tuple[Run, float]]:
    told = [(run, summary_of(run.measures[metric.name], metric)) for run in arm.runs if metric.name in run.measures]
    return [(run, value) for run, value in told if value is not None]


def _arm_line(arm: Arm, metric: Metric, pairs: Sequence[tuple[Run, float]], axis: _Axis) -> ArmLine:
    counted = [value for run, value in pairs if run.counts and not run.reference]
    seen = shown(counted)
    least, median, most = (seen.least, seen.median, seen.most) if seen else (None, None, None)
    texts = [amount(metric, value) for value in (least, median, most)]
    ends = (axis.x(least), axis.x(most)) if least is not None and most is not None else (0.0, 0.0)
    dots = tuple(
        Dot(axis.x(value), f"run {run.position}: {amount(metric, value)}{_why(run)}", run.counts and not run.reference)
        for run, value in pairs[:_MOST_RUNS]
    )
    label = f"{arm.name}, {metric.name}: {len(counted)} runs, {texts[0]} to {texts[2]}, median {texts[1]}"
    middle = axis.x(median) if median is not None else 0.0
    return ArmLine(
        arm.name, len(counted), texts[0], texts[1], texts[2], ends[0], ends[1] - ends[0], middle, dots, label
    )


def _why(run: Run) -> str:
    """Why a run is not counted; "" when it is."""
    if run.excluded:
        return f", not counted: {run.excluded}"
    return ", cold, not counted" if not run.warm else ", before the change" if run.reference else ""


def run_rows(one: Experiment) -> tuple[RunRow, ...]:
    """Every run in the order in which they were made, the first ``_MOST_RUNS``."""
    runs = sorted(
        ((arm, run) for arm in (one.baseline, one.candidate) for run in arm.runs), key=lambda p: p[1].position
    )
    return tuple(
        RunRow(arm.name, run, tuple(_raw(run, metric) for metric in one.metrics), _why(run).removeprefix(", "))
        for arm, run in runs[:_MOST_RUNS]
    )


def _raw(run: Run, metric: Metric) -> str:
    measured = run.measures.get(metric.name)
    if measured is None:
        return "–"
    if measured.numerator is not None and measured.denominator is not None:
        return amount(metric, measured.numerator / measured.denominator)
    seen = shown(measured.values)
    if seen is None:
        return "–"
    if seen.n == 1:
        return amount(metric, seen.median)
    parts = [amount(metric, value) for value in (seen.least, seen.median, seen.most)]
    return f"{parts[0]} – {parts[1]} – {parts[2]}, n = {seen.n}"


def flag_rows(one: Experiment) -> tuple[FlagRow, ...]:
    """Flags of both arms, those first that are not in effect or differ besides the factor."""
    a, b = one.baseline, one.candidate
    names = sorted({*a.intended, *b.intended, *(a.effective or {}), *(b.effective or {})})
    idle = (*not_in_effect(a), *not_in_effect(b))
    others = other_differences(one)
    rows = []
    for name in names:
        off = any(f": {name} was set to " in said for said in idle)
        also = any(said.startswith(f"{name} differs as well") for said in others)
        changed = one.factor is not None and one.factor.name == name
        note = "set but not in effect" if off else "differs as well" if also else "the factor" if changed else ""
        cells = tuple(_told(flags, name) for arm in (a, b) for flags in (arm.intended, arm.effective))
        rows.append(FlagRow(name, cells, note, "bad" if off or also else ""))  # type: ignore[arg-type]
    return tuple(sorted(rows, key=lambda row: (row.tone == "", row.note == "")))


def _told(flags: object, name: str) -> str:
    return str(flags[name]) if isinstance(flags, dict) and name in flags else "–"


def cost_rows(one: Experiment) -> tuple[tuple[str, str, str, str, str], ...]:
    """(arm, counted runs, time, GPU-hours, money) of each arm; "–" where not all counted runs tell."""
    rows = []
    for arm in (one.baseline, one.candidate):
        runs = [run for run in arm.runs if run.counts]
        times = [run.duration_s for run in runs if run.duration_s is not None]
        hours = [run.gpu_hours for run in runs if run.gpu_hours is not None]
        whole = math.fsum(hours) if runs and len(hours) == len(runs) else None
        price = one.hardware.gpu_hour_usd
        rows.append((
            arm.name, str(len(runs)), span(math.fsum(times)) if runs and len(times) == len(runs) else "–",
            "–" if whole is None else digits(whole), "–" if whole is None or price is None else f"${money(whole * price)}",
        ))  # fmt: skip
    return tuple(rows)


def fact_rows(one: Experiment) -> tuple[tuple[str, str], ...]:
    """What is known of an experiment beside its numbers."""
    hardware, stop, quality = one.hardware, one.stop, one.quality
    gpus = " × ".join(filter(None, ("" if hardware.gpus is None else digits(hardware.gpus), hardware.gpu or "")))
    facts = (
        ("Service", one.service), ("Design", DESIGNS[one.design]), ("State", one.state), ("Model", one.model),
        ("Engine", " ".join(filter(None, (one.engine, one.engine_version)))), ("GPUs", gpus),
        ("Hosts", ", ".join(hardware.hosts)), ("Hardware", hardware.note), ("Clock", one.boundary),
        ("Stop rule", f"{stop.repeats} counted runs of each arm" + _at_most(stop.longest_s)),
        ("Quality", f"{quality.evaluator}: at most {percent(quality.margin_ratio)} points worse" if quality else ""),
        ("Recommendation", one.recommendation),
    )  # fmt: skip
    return tuple((name, text) for name, text in facts if text)


def _at_most(longest_s: float | None) -> str:
    return "" if longest_s is None else f", {seconds(longest_s) if longest_s < 60 else span(longest_s)} at most"
