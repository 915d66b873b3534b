"""A copy of an experiment or a report that can be shown to strangers.

Nothing is taken over because it looks harmless: a copy of an experiment is built from what may be known (design,
public metric names, direction, rounded changes, bands), and every free text is left out and counted. In a report, whose
shape is not known here, every string becomes a role unless it is one of our own words. So a secret cannot come through
by being written in an unexpected place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from planner.experiments.statistics import change_of, summary_of
from planner.experiments.values import Arm, Effect, Experiment, Metric

#: names that every user of these engines knows
ENGINES: Final = frozenset({"vllm", "sglang", "tensorrt-llm", "trtllm", "llama.cpp", "lmdeploy", "tgi", "dynamo"})
METRICS: Final = frozenset(
    {"ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s", "output_tokens_per_s", "total_tokens_per_s", "requests_per_s",
     "good_requests_per_s", "attainment_ratio", "prefix_hit_ratio", "quality_ratio"}
)  # fmt: skip
UNITS: Final = frozenset({"s", "tokens/s", "requests/s", "ratio", "images/s", "frames/s", "usd"})
FLAGS: Final = frozenset(
    {"max_model_len", "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching", "enable_chunked_prefill",
     "kv_cache_dtype", "quantization", "dtype", "block_size", "gpu_memory_utilization", "speculative_config",
     "chunked_prefill_size", "mem_fraction_static", "max_running_requests", "schedule_policy", "enforce_eager", "load"}
)  # fmt: skip
_SUMMARIES: Final = re.compile(r"mean|median|rate|p\d{1,2}(\.\d)?")
_NOTE: Final = "figures are rounded and scaled so that the baseline's median run is 1; they are not measurements"
#: keys of ours whose values are outcomes and kinds, and the words of ours that are kept under them
_OUTCOMES: Final = frozenset({"outcome", "state", "design", "kind", "basis", "severity", "gate", "quality", "verdict"})
WORDS: Final = frozenset(
    [
        "better",
        "worse",
        "no_difference",
        "inconclusive",
        "planned",
        "running",
        "done",
        "abandoned",
        "passed",
        "vetoed",
        "not_shown",
        "not_asked",
        "proposed",
        "accepted",
        "declined",
        "applied",
        "verified",
        "refuted",
        "lower",
        "higher",
        "before_after",
        "interleaved",
        "abba",
        "canary",
        "imported",
        "sweep",
        "counted",
        "estimated",
        "bounded",
        "measured",
        "page",
        "ticket",
        "burn",
        "forecast",
        "attainment",
        "latency",
        "cost",
        "quality",
    ]
)


def redacted(experiment: Experiment) -> dict[str, object]:
    """What of an experiment may be shown to anybody: JSON values; no name, host, path, id, text, date or price.

    Metrics, engines and flags keep their names only when these are public ones; others are ``metric 1``, ``engine 1``.
    """
    names = _roles("metric", [metric.name for metric in experiment.metrics], METRICS)
    verdict = experiment.verdict
    return {
        "redacted": True,
        "kind": "experiment",
        "design": experiment.design,
        "state": experiment.state,
        "engine": _role("engine", experiment.engine, ENGINES),
        "hardware": {
            "gpus": band(experiment.hardware.gpus), "gpu_hour_usd": band(experiment.hardware.gpu_hour_usd),
            "hosts": band(float(len(experiment.hardware.hosts)) or None),
        },
        "changed": None if experiment.factor is None else _role("flag", experiment.factor.name, FLAGS),
        "direction": _direction(experiment),
        "metrics": [_metric(metric, names[metric.name]) for metric in experiment.metrics],
        "arms": {"synthetic": True, "note": _NOTE, **_arms(experiment, names)},
        "quality_asked": experiment.quality is not None,
        "verdict": None if verdict is None else {
            "outcome": verdict.outcome, "quality": verdict.gate, "predicted_inside": verdict.predicted_inside,
            "gpu_hours": None if verdict.gpu_hours_ratio is None else percent_band(verdict.gpu_hours_ratio - 1),
            "effects": [_effect(e, _metric_of(experiment, e.metric), names) for e in verdict.effects],
        },
        "left_out": {
            "texts": len(experiment.notes), "inputs": len(experiment.inputs),
            "flags": len({*experiment.baseline.intended, *experiment.candidate.intended}),
        },
    }  # fmt: skip


def _metric(metric: Metric, name: str) -> dict[str, object]:
    summary = metric.summary if _SUMMARIES.fullmatch(metric.summary) else "other"
    return {"name": name, "unit": metric.unit if metric.unit in UNITS else "unit", "better": metric.better,
            "summary": summary, "scale": metric.scale}  # fmt: skip


def _metric_of(experiment: Experiment, name: str) -> Metric | None:
    return next((metric for metric in experiment.metrics if metric.name == name), None)


def _effect(effect: Effect, metric: Metric | None, names: Mapping[str, str]) -> dict[str, object]:
    same = 0.0 if metric is not None and metric.scale == "difference" else 1.0
    return {
        "metric": names.get(effect.metric, "metric"), "outcome": effect.outcome,
        "change": None if effect.value is None else percent_band(effect.value - same),
        "repeats": [_rounded(n) for n in effect.repeats],
    }  # fmt: skip


def _direction(experiment: Experiment) -> str | None:
    """Whether a number was raised or lowered; only that."""
    if experiment.factor is None:
        return None
    try:
        before, after = float(experiment.factor.baseline), float(experiment.factor.candidate)
    except ValueError:
        return "same" if experiment.factor.baseline == experiment.factor.candidate else "changed"
    return "same" if before == after else "raised" if after > before else "lowered"


def _arms(experiment: Experiment, names: Mapping[str, str]) -> dict[str, object]:
    """Runs relative to the baseline's median run, to two figures."""
    found: dict[str, dict[str, object]] = {"baseline": {}, "candidate": {}}
    for metric in experiment.metrics:
        base, cand = _summaries(experiment.baseline, metric), _summaries(experiment.candidate, metric)
        middle = sorted(base)[(len(base) - 1) // 2] if base else 0.0
        for side, values in (("baseline", base), ("candidate", cand)):
            scaled = [_two(v / middle) for v in values] if middle > 0 else []
            found[side][names[metric.name]] = scaled
    return dict(found)


def _summaries(arm: Arm, metric: Metric) -> list[float]:
    told = [run.measures[metric.name] for run in arm.runs if run.counts and metric.name in run.measures]
    values = [summary_of(one, metric) for one in told]
    return [v for v in values if v is not None and change_of(v, metric) is not None]


def _two(value: float) -> float:
    return float(f"{value:.2g}")


def _rounded(n: float) -> str:
    return str(int(n)) if n < 10 else band(float(n)) or "none"


def band(value: float | None) -> str | None:
    """A number as the band of powers of two that holds it; None for None.

    Examples
    --------
    >>> band(3.0), band(2.5), band(0.7)
    ('2 to 4', '2 to 4', '0.5 to 1')
    """
    if value is None or not math.isfinite(value):
        return None
    if value <= 0:
        return "0" if value == 0 else "below 0"
    low = 2.0 ** max(-20, min(60, math.floor(math.log2(value))))
    return f"{low:g} to {2 * low:g}"


def percent_band(change: float) -> str:
    """A relative change as one of a few bands.

    Examples
    --------
    >>> percent_band(-0.13), percent_band(0.004)
    ('10 to 20 % less', 'less than 1 %')
    """
    size = abs(change) * 100
    if size < 1:
        return "less than 1 %"
    edges = (1, 2, 5, 10, 20, 50, 100)
    low = max(edge for edge in edges if edge <= size)
    high = next((edge for edge in edges if edge > size), None)
    how = f"{low} to {high} %" if high else f"{low} % and more"
    return f"{how} {'more' if change > 0 else 'less'}"


def _role(kind: str, name: str | None, public: frozenset[str]) -> str | None:
    if name is None:
        return None
    return name if name in public else f"{kind} 1"


def _roles(kind: str, names: Iterable[str], public: frozenset[str]) -> dict[str, str]:
    hidden = dict.fromkeys(name for name in names if name not in public)
    roles = {name: f"{kind} {place}" for place, name in enumerate(hidden, 1)}
    return {name: roles.get(name, name) for name in dict.fromkeys([*names, *hidden])}


def redacted_json(body: object, keys: frozenset[str]) -> object:
    """A report's JSON with every string as a role and prices, instants and counts of machines as bands or gone.

    Parameters
    ----------
    keys
        Keys of the report's own form, which may be read by anybody. Any other key (a service, a tenant) becomes a role.
    """
    return _Walk(keys).of(body, "text")


class _Walk:
    """Gives the same string the same role everywhere in one report."""

    def __init__(self, keys: frozenset[str]) -> None:
        self._keys = keys
        self._roles: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def of(self, value: object, key: str) -> object:
        if isinstance(value, Mapping):
            return {self._key(str(k)): self.of(v, str(k) if str(k) in self._keys else key) for k, v in value.items()}
        if isinstance(value, str):
            return value if key in _OUTCOMES and value in WORDS else self._role(value, key)
        if isinstance(value, Sequence):
            return [self.of(one, key) for one in value]
        if isinstance(value, bool) or value is None:
            return value
        return _number(value, key)

    def _key(self, key: str) -> str:
        return key if key in self._keys else self._role(key, "name")

    def _role(self, text: str, kind: str) -> str:
        if text not in self._roles:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._roles[text] = f"{kind} {self._counts[kind]}"
        return self._roles[text]


def _number(value: Any, key: str) -> object:
    """Shares and ratios to two figures; instants gone; all else, prices and machines among them, as a band."""
    if not isinstance(value, int | float):
        return None
    if key.endswith(("_at_s", "at_s", "began_s", "seen_s", "ended_s", "started_s", "created_s")) or abs(value) >= 1e8:
        return None
    return _two(float(value)) if key.endswith("_ratio") and math.isfinite(value) else band(float(value))


_PLACE: Final = "⟦{}⟧"
#: what gives a place, a person, a day or a price away, in texts that are written freely
_PATTERNS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b[a-z][a-z0-9+.-]*://\S+",  # addresses
        r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+",  # mail
        r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b",  # ids and hashes
        r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\b(?:[0-9a-f]{1,4}:){3,7}:?[0-9a-f]{0,4}\b",  # IP addresses
        r"(?:[a-z]:)?(?:[\\/][\w.@%+-]+){2,}[\\/]?|~[\\/]\S+",  # paths
        r"\b(?:[a-z0-9_-]+\.)+[a-z]{2,}(?::\d+)?\b|\b[a-z][\w-]*\d[\w-]*:\d+\b",  # hosts
        r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?\b|\b\d{4}-W\d{2}\b",  # days
        r"[$€£¥]\s?\d[\d,.]*|\b\d[\d,.]*\s?(?:usd|eur|cny|rmb|dollars?|美元|元)(?!\w)",  # prices
        r"\b(?:tp|pp|dp|ep)\s?[=:]?\s?\d+\b|\b\d+\s?[x×]\s?[a-z]+\d+\w*",  # topology
        r"\b[\w-]+/[\w.-]+\b",  # model names
        r"\b\d{6,}\b",  # long numbers
    )
)


def redacted_text(text: str, secrets: Iterable[str] = ()) -> str:
    """A free text without these secrets, and without what looks like an address, a path, an id, a day or a price.

    Each becomes a numbered place ⟦1⟧, the same one the same number. Secrets are found whatever their case; give every
    name of the original (``secrets_of``).
    """
    ordered = sorted({one.strip() for one in secrets if one.strip()}, key=lambda one: (-len(one), one))
    numbers: dict[str, int] = {}
    parts = [(text, False)]  # (piece, is a place already)
    for pattern in (*(re.compile(re.escape(one), re.IGNORECASE) for one in ordered), *_PATTERNS):
        parts = [piece for part, done in parts for piece in ([(part, True)] if done else _cut(part, pattern, numbers))]
    return "".join(part for part, _ in parts)


def _cut(part: str, pattern: re.Pattern[str], numbers: dict[str, int]) -> list[tuple[str, bool]]:
    pieces: list[tuple[str, bool]] = []
    at = 0
    for match in pattern.finditer(part):
        number = numbers.setdefault(match.group().casefold(), len(numbers) + 1)
        pieces += [(part[at : match.start()], False), (_PLACE.format(number), True)]
        at = match.end()
    return [*pieces, (part[at:], False)]


def secrets_of(experiment: Experiment) -> tuple[str, ...]:
    """Every string of an experiment that names something of its owner: to scan a copy for, or to take out of a text."""
    arms = (experiment.baseline, experiment.candidate)
    told: list[str | None] = [
        experiment.id, experiment.question, experiment.service, experiment.model, experiment.engine_version,
        experiment.hardware.gpu, experiment.hardware.note, *experiment.hardware.hosts, experiment.boundary,
        experiment.recommendation, *experiment.notes, *(p.basis for p in experiment.predictions),
    ]  # fmt: skip
    if experiment.factor is not None:
        told += [experiment.factor.baseline, experiment.factor.candidate]
        told += [experiment.factor.name] if experiment.factor.name not in FLAGS else []
    told += [] if experiment.engine in ENGINES else [experiment.engine]
    told += [] if experiment.quality is None else [experiment.quality.evaluator]
    told += [metric.name for metric in experiment.metrics if metric.name not in METRICS]
    for one in experiment.inputs:
        told += [one.name, one.sha256, one.note]
    for arm in arms:
        told += [arm.name, *arm.targets, *(run.excluded for run in arm.runs)]
        for flags in (arm.intended, arm.effective or {}):
            told += [text for item in flags.items() for text in item if text not in FLAGS]
    if experiment.verdict is not None:
        verdict = experiment.verdict
        told += [verdict.reason, verdict.gate_reason, *verdict.findings]
        told += [text for effect in verdict.effects for text in (effect.reason, effect.basis)]
    return tuple(dict.fromkeys(one for one in told if one))
