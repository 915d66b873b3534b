"""The step model fitted again on a running engine's own signals, and carried over to a change of it.

A row is a stretch of time (a minute): mean running requests, mean tokens of a step, and the TPOT and TTFT seen then.
The fit is least squares of relative errors with Huber weights, none of its terms below zero, pulled to the prior as a
whole shifted to where the rows are. It needs variety of load: the answer tells which loads it has seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log, sqrt
from statistics import median
from types import MappingProxyType
from typing import Final, Literal

import polars as pl

from goodwatch.core.errors import NoDataError
from planner.estimate import Estimate

#: rows below which nothing is fitted but the level
_FEW: Final = 3
#: relative error up to which a row has full weight, in median absolute deviations
_HUBER: Final = 1.5
#: how strongly the terms are held at their prior: as much as this many rows
_PULL: Final = 1.0
#: least relative error of a prediction, one sigma
_LEAST: Final = 0.04
_Z80: Final = 1.2816
#: doubt that loads outside those seen add, one sigma per doubling (loads extrapolated from the low half: 14 % median error)
_OUTSIDE: Final = 0.10

Change = Literal["load", "lengths", "hit_ratio", "tensor_parallel", "gpu", "precision", "engine"]
#: change → how much of the running engine's ratio to its prior holds for the changed one, and the error that 80 % of
#: such predictions stayed below (2,952 measured rows of 143 deployments)
CARRIED: Final[Mapping[Change, tuple[float, float]]] = MappingProxyType(
    {
        "load": (1.0, 0.18), "lengths": (1.0, 0.18), "hit_ratio": (1.0, 0.18), "tensor_parallel": (0.5, 0.24),
        "gpu": (0.5, 0.24), "precision": (0.5, 0.28), "engine": (0.5, 0.28),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds of a decode step: fixed, for each running request, for each token of prefill that it carries."""

    fixed_s: float
    running_s: float
    prefill_token_s: float

    def tpot_s(self, running: float, step_tokens: float) -> float:
        """The step that ``running`` requests share, of ``step_tokens`` tokens in all."""
        return self.fixed_s + self.running_s * running + self.prefill_token_s * max(0.0, step_tokens - running)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a running engine really does.

    ``sigma``: relative error of a row, robust, one sigma; ``seen``: running requests of the rows, (low, high);
    ``ratio``: measured over prior, median; ``lag_steps`` and ``answer_s``: TTFT = answer_s + lag_steps x step, None
    where no TTFT was given; ``rows``: used, of ``given``.
    """

    terms: Terms
    sigma: float
    seen: tuple[float, float]
    ratio: float
    rows: int
    given: int
    lag_steps: float | None = None
    answer_s: float | None = None

    def tpot_s(self, running: float, step_tokens: float) -> Estimate:
        """TPOT at a load with its 80 % band, wider outside the loads that were seen."""
        point = self.terms.tpot_s(running, step_tokens)
        low, high = self.seen
        beyond = (
            max(0.0, log(max(1e-9, low) / running), log(running / max(1e-9, high))) / log(2) if running > 0 else 0.0
        )
        wide = _Z80 * hypot(self.sigma, _LEAST, _OUTSIDE * beyond)
        basis = "fitted on this engine" + (", outside the loads it has seen" if beyond else "")
        return Estimate(point, point * exp(-wide), point * exp(wide), basis)


def calibrate(frame: pl.DataFrame, prior: Terms, *, half_life_s: float = 6 * 3600.0) -> Calibration:
    """Fit the terms of a step to what an engine was seen to do.

    Parameters
    ----------
    frame
        Columns running f64, step_tokens f64, tpot_s f64, and where known ttft_s f64 and ts f64 (Unix seconds). A row
        with a null, without running requests or without a positive TPOT is left out.
    prior
        The terms that the shipped model gives this engine.
    half_life_s
        A row that is this much older than the newest counts half; without ``ts`` all count alike.

    Raises
    ------
    NoDataError
        No row can be used.
    """
    used = frame.filter(
        (pl.col("running") > 0) & (pl.col("tpot_s") > 0) & pl.col("step_tokens").is_not_null()
        & pl.col("tpot_s").is_finite() & pl.col("step_tokens").is_finite()
    )  # fmt: skip
    if used.is_empty():
        raise NoDataError("no minute has running requests and a TPOT: nothing to calibrate on")
    rows = list(zip(used["running"], used["step_tokens"], used["tpot_s"], strict=True))
    ages = _ages(used, half_life_s)
    ratio = median(t / prior.tpot_s(r, s) for r, s, t in rows)
    start = Terms(prior.fixed_s * ratio, prior.running_s * ratio, prior.prefill_token_s * ratio)
    terms = start if len(rows) < _FEW else _fitted(rows, ages, start)
    errors = sorted(abs(log(t / terms.tpot_s(r, s))) for r, s, t in rows)
    sigma = 1.4826 * median(errors) * sqrt(1 + 3 / len(rows)) + (0.1 if len(rows) < _FEW else 0.0)
    running = [r for r, _, _ in rows]
    lag = _lag(used, terms)
    return Calibration(terms, sigma, (min(running), max(running)), ratio, len(rows), len(frame), *lag)


def _ages(used: pl.DataFrame, half_life_s: float) -> list[float]:
    if "ts" not in used.columns:
        return [1.0] * len(used)
    newest = max(used["ts"])
    return [0.5 ** ((newest - ts) / half_life_s) for ts in used["ts"]]


def _fitted(rows: Sequence[tuple[float, float, float]], ages: Sequence[float], start: Terms) -> Terms:
    """Huber weights around non-negative ridge regression of relative errors."""
    held = [max(1e-12, one) for one in (start.fixed_s, start.running_s, start.prefill_token_s)]
    # each term in units of its prior: 1 is "as the prior says"
    table = [[held[0] / t, held[1] * r / t, held[2] * max(0.0, s - r) / t] for r, s, t in rows]
    share, weights = [1.0, 1.0, 1.0], list(ages)
    for _ in range(12):
        share = _ridge(table, weights)
        errors = [sum(a * b for a, b in zip(row, share, strict=True)) - 1 for row in table]
        scale = _HUBER * max(1.4826 * median(map(abs, errors)), 0.01)
        weights = [age * min(1.0, scale / max(1e-12, abs(e))) for age, e in zip(ages, errors, strict=True)]
    return Terms(*(a * b for a, b in zip(held, share, strict=True)))


def _ridge(table: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """Shares of the prior's terms, none below zero: coordinate descent on the weighted squares."""
    size = 3
    gram = [
        [sum(w * row[i] * row[j] for w, row in zip(weights, table, strict=True)) for j in range(size)]
        for i in range(size)
    ]
    right = [sum(w * row[i] for w, row in zip(weights, table, strict=True)) for i in range(size)]
    mean = sum(weights) / len(weights)
    pull = [_PULL * mean * 0.05 for _ in range(size)]
    share = [1.0] * size
    for _ in range(400):
        for i in range(size):
            rest = right[i] + pull[i] - sum(gram[i][j] * share[j] for j in range(size) if j != i)
            share[i] = max(0.0, rest / (gram[i][i] + pull[i]))
    return share


def _lag(used: pl.DataFrame, terms: Terms) -> tuple[float | None, float | None]:
    """TTFT over the step time: slope and rest, by medians of pairwise slopes (Theil and Sen)."""
    if "ttft_s" not in used.columns:
        return None, None
    pairs = [
        (terms.tpot_s(r, s), t)
        for r, s, t in zip(used["running"], used["step_tokens"], used["ttft_s"], strict=True)
        if t is not None and t > 0
    ][-400:]
    slopes = [
        (b - d) / (a - c) for i, (a, b) in enumerate(pairs) for c, d in pairs[:i] if abs(a - c) > 0.02 * max(a, c)
    ]
    if not pairs:
        return None, None
    if not slopes:
        return 0.0, median(t for _, t in pairs)
    lag = max(0.0, median(slopes))
    return lag, max(0.0, median(t - lag * step for step, t in pairs))


def carried(prior_s: float, ratio: float, changes: Sequence[Change]) -> Estimate:
    """TPOT of a changed deployment: its prior times the running one's ratio, as far as such changes let it hold.

    Parameters
    ----------
    prior_s
        What the shipped model gives the changed deployment, seconds.
    ratio
        Measured over prior of the running one (``Calibration.ratio``).
    changes
        What differs; none is the running deployment itself.

    Examples
    --------
    >>> carried(0.020, 1.44, ["gpu"]).point
    0.024
    """
    holds = min((CARRIED[one][0] for one in changes), default=1.0)
    wide = hypot(*(log(1 + CARRIED[one][1]) for one in changes)) if changes else _Z80 * _LEAST
    point = prior_s * ratio**holds
    return Estimate(point, point * exp(-wide), point * exp(wide), ", ".join(changes) or "as it runs")
