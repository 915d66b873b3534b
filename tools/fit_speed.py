"""Fit planner/speed/efficiency.yaml again on a file of measured rows: ``python tools/fit_speed.py CASES.yaml``.

Maximum a posteriori by Gauss-Newton with Cauchy weights: logarithms of the factors, offsets of the groups pulled to zero
with the spreads of ``planner.speed.efficiency``. Errors and intervals come from fits that left whole deployments out
(model, card, engine, precision and layout, of any version and source), in folds. Only the standard library and goodwatch itself are used.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import exp, isfinite, log, log1p
from operator import mul
from pathlib import Path
from statistics import median
from typing import Any, Final
from zlib import crc32

import yaml

from goodwatch.core.errors import ConfigError
from planner.speed.cases import deployment_of_case, load_of_case, predict_case
from planner.speed.deployment import Deployment
from planner.speed.efficiency import PARTS, TERMS, Factors, Fitted, labels, offset_keys
from planner.speed.prediction import Load, speed

TARGET: Final = Path(__file__).resolve().parent.parent / "planner" / "speed" / "efficiency.yaml"
FOLDS, ROUNDS, AGAIN, STEP = 8, 40, 9, 1e-4
#: errors (log units) at which a row counts as ordinary
SIGMA: Final[Mapping[str, float]] = {"output_tok_s": 0.2, "tpot_ms": 0.2, "ttft_ms": 0.45}
NAMES: Final = tuple(TERMS)


@dataclass(frozen=True, slots=True)
class Row:
    """One measured row: what is asked, what was seen (by figure), and which parameters act on each factor."""

    case: Mapping[str, Any]
    one: Deployment
    load: Load
    seen: Mapping[str, float]
    keys: tuple[tuple[int, ...], ...]
    weight: float


@dataclass(frozen=True, slots=True)
class Problem:
    """Rows and parameters: start and one sigma of each, in log units; the first ``len(NAMES)`` are the base values."""

    rows: tuple[Row, ...]
    names: tuple[str, ...]
    start: tuple[float, ...]
    sigmas: tuple[float, ...]


def measured(case: Mapping[str, Any]) -> dict[str, float]:
    """Figures that the row measured and that the fit uses."""
    if case["kind"] == "max_throughput":
        return {"output_tok_s": float(case["output_tok_s"])}
    return {"tpot_ms": float(case["tpot_ms"]), "ttft_ms": float(case["ttft_ms"])}


def problem(cases: Iterable[Mapping[str, Any]]) -> Problem:
    """Rows of the kinds that are fitted, with the parameters they need."""
    names, starts, sigmas = list(NAMES), [log(t.prior) for t in TERMS.values()], [t.sigma for t in TERMS.values()]
    places: dict[str, int] = {}
    chosen = [c for c in cases if c["kind"] in ("max_throughput", "closed_loop") and c["engine"] in
              ("vllm", "sglang", "tensorrt-llm")]  # fmt: skip
    sizes = Counter(str(c["group"]) for c in chosen)
    scale = len(chosen) / sum(sizes[str(c["group"])] ** -0.25 for c in chosen)
    rows: list[Row] = []
    for case in chosen:
        one = deployment_of_case(case)
        keys: list[tuple[int, ...]] = []
        for at, term in enumerate(TERMS.values()):
            acting = [at]
            for key, sigma in offset_keys(term, labels(one)):
                if key not in places:
                    places[key] = len(names)
                    names.append(key)
                    starts.append(0.0)
                    sigmas.append(sigma)
                acting.append(places[key])
            keys.append(tuple(acting))
        weight = sizes[str(case["group"])] ** -0.25 * scale
        rows.append(Row(case, one, load_of_case(case), measured(case), tuple(keys), weight))
    return Problem(tuple(rows), tuple(names), tuple(starts), tuple(sigmas))


def told(row: Row, logs: Sequence[float]) -> dict[str, float]:
    """Logarithms of predicted over measured, by figure."""
    found = speed(row.one, Factors(*map(exp, logs)), row.load)
    figures = {"output_tok_s": found.output_tokens_per_s, "tpot_ms": found.tpot_s * 1e3}
    if found.ttft_s is not None:
        figures["ttft_ms"] = found.ttft_s * 1e3
    return {name: log(figures[name] / seen) for name, seen in row.seen.items()}


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solution of a symmetric positive definite system by Cholesky."""
    size = len(right)
    lower: list[list[float]] = []
    for i in range(size):
        row = matrix[i]
        done: list[float] = []
        for j in range(i):
            other = lower[j]
            done.append((row[j] - sum(map(mul, done, other[:j]))) / other[j])
        done.append((row[i] - sum(x * x for x in done)) ** 0.5)
        lower.append(done)
    half: list[float] = []
    for i in range(size):
        half.append((right[i] - sum(map(mul, lower[i][:i], half))) / lower[i][i])
    out = [0.0] * size
    for i in reversed(range(size)):
        out[i] = (half[i] - sum(lower[k][i] * out[k] for k in range(i + 1, size))) / lower[i][i]
    return out


def cost(found: Problem, rows: Sequence[Row], theta: Sequence[float]) -> float:
    """Minus the logarithm of the posterior, up to a constant."""
    prior = sum(((t - s) / g) ** 2 for t, s, g in zip(theta, found.start, found.sigmas, strict=True)) / 2
    misfit = 0.0
    for row in rows:
        logs = [sum(theta[k] for k in keys) for keys in row.keys]
        misfit += sum(log1p((e * row.weight / SIGMA[f]) ** 2) for f, e in told(row, logs).items())
    return prior + misfit / 2


def step(found: Problem, rows: Sequence[Row], theta: Sequence[float]) -> list[float]:
    """The Gauss-Newton step with weights of a Cauchy error."""
    size = len(theta)
    matrix = [[0.0] * size for _ in range(size)]
    right = [0.0] * size
    for i, (t, s, g) in enumerate(zip(theta, found.start, found.sigmas, strict=True)):
        matrix[i][i], right[i] = 1 / g**2, (s - t) / g**2
    for row in rows:
        logs = [sum(theta[k] for k in keys) for keys in row.keys]
        here = told(row, logs)
        slopes: dict[str, dict[int, float]] = {figure: defaultdict(float) for figure in here}
        for at, keys in enumerate(row.keys):
            moved = told(row, [*logs[:at], logs[at] + STEP, *logs[at + 1 :]])
            for figure, error in moved.items():
                slope = (error - here[figure]) / STEP
                if slope:
                    for key in keys:
                        slopes[figure][key] += slope
        for figure, error in here.items():
            scaled = row.weight / SIGMA[figure]
            weight = scaled**2 / (1 + (error * scaled) ** 2)
            acting = list(slopes[figure].items())
            for i, (key, slope) in enumerate(acting):
                right[key] -= weight * slope * error
                for other, beside in acting[: i + 1]:
                    matrix[max(key, other)][min(key, other)] += weight * slope * beside
    return solve(matrix, right)


def fit(found: Problem, rows: Sequence[Row], theta: Sequence[float], rounds: int) -> list[float]:
    """Parameters that fit the rows, from ``theta`` on; a step that makes it worse is halved."""
    now, best = list(theta), cost(found, rows, theta)
    for _ in range(rounds):
        move, share = step(found, rows, now), 1.0
        while share > 0.02:
            tried = [t + share * max(-1.0, min(1.0, m)) for t, m in zip(now, move, strict=True)]
            worth = cost(found, rows, tried)
            if isfinite(worth) and worth < best:
                break
            share /= 2
        else:
            break
        gained, now, best = best - worth, tried, worth
        if gained < 0.02:
            break
    return now


def fold_of(row: Row) -> int:
    """All rows of one model, card, engine, precision and layout are in one fold, whatever version or source they are of."""
    one, model = row.one, str(row.case["model"]).rpartition("/")[2].casefold()
    return crc32(f"{model}|{one.card}|{one.engine}|{one.precision}|{one.layout}".encode()) % FOLDS


def left_out(found: Problem, theta: Sequence[float]) -> dict[str, dict[str, list[tuple[str, float]]]]:
    """Errors (log) of rows whose deployment was left out: load → figure → (kind of model, error)."""
    errors: dict[str, dict[str, list[tuple[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for fold in range(FOLDS):
        inside = [r for r in found.rows if fold_of(r) != fold]
        again = fit(found, inside, theta, AGAIN)
        for row in found.rows:
            if fold_of(row) == fold:
                figures = told(row, [sum(again[k] for k in keys) for keys in row.keys])
                if row.load.kind == "closed_loop":
                    figures["output_tok_s"] = closed_rate_error(row, again)
                for figure, error in figures.items():
                    errors[row.load.kind][figure].append((row.one.kind, error))
        sys.stderr.write(f"fold {fold + 1} of {FOLDS}\n")
    return errors


def closed_rate_error(row: Row, theta: Sequence[float]) -> float:
    """Logarithm of predicted over measured tokens/s of a closed loop."""
    by = Factors(*(exp(sum(theta[k] for k in keys)) for keys in row.keys))
    seen = row.case.get("output_tok_s") or row.case["output_tok_s_derived"]
    return log(speed(row.one, by, row.load).output_tokens_per_s / float(seen))


def band(errors: Sequence[float]) -> list[float]:
    """What to take off and add (log) so that 84 % of these errors are inside.

    More than the 80 % that is said: rows to come are less like those that the spreads were chosen on.
    """
    ranked = sorted(-e for e in errors)
    at: Callable[[float], float] = lambda q: ranked[min(len(ranked) - 1, max(0, int(q * len(ranked))))]  # noqa: E731
    return [round(max(0.02, -at(0.08)), 4), round(max(0.02, at(0.92)), 4)]


def bands(errors: Mapping[str, Mapping[str, Sequence[tuple[str, float]]]]) -> dict[str, Any]:
    """Bands by load, figure and kind of model; a kind with fewer than 40 rows counts as any."""
    out: dict[str, Any] = {}
    for load, figures in errors.items():
        for figure, pairs in figures.items():
            kinds = {kind: [e for k, e in pairs if k == kind] for kind in {k for k, _ in pairs}}
            by_kind = {"any": band([e for _, e in pairs])}
            by_kind |= {kind: band(es) for kind, es in sorted(kinds.items()) if len(es) >= 40}
            out.setdefault(load, {})[figure] = by_kind
    return out


def others(cases: Iterable[Mapping[str, Any]], fitted: Fitted) -> dict[str, dict[str, list[tuple[str, float]]]]:
    """Errors of the loads that no factor was fitted on: bursts, and workers apart."""
    errors: dict[str, dict[str, list[tuple[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for case in cases:
        if case["kind"] not in ("open_burst", "closed_loop_pd_disagg"):
            continue
        found = predict_case(case, fitted)
        seen = case.get("output_tok_s") or case.get("output_tok_s_derived")
        figures = [("output_tok_s", found.output_tokens_per_s.point, seen)]
        figures += [
            (n, one.point * 1e3, case.get(n))
            for n, one in (("tpot_ms", found.tpot_s), ("ttft_ms", found.ttft_s))
            if one
        ]
        for name, point, value in figures:
            if value:
                errors[case["kind"]][name].append(("any", log(point / value)))
    return errors


def summary(errors: Mapping[str, Mapping[str, Sequence[tuple[str, float]]]]) -> str:
    """One line a figure: median and p90 of the relative error."""
    lines = []
    for load, figures in errors.items():
        for figure, pairs in figures.items():
            off = sorted(abs(exp(e) - 1) for _, e in pairs)
            lines.append(
                f"{load} {figure}: {len(off)} rows, median {median(off):.1%}, p90 {off[int(0.9 * len(off))]:.1%}"
            )
    return "\n".join(lines)


def written(found: Problem, theta: Sequence[float], bounds: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The content of efficiency.yaml."""
    tree: dict[str, dict[str, dict[str, float]]] = {part: {} for part in PARTS}
    for name, value in zip(found.names[len(NAMES) :], theta[len(NAMES) :], strict=True):
        part, grouping, label = name.split(".", 2)
        tree[part].setdefault(grouping, {})[label] = round(value, 4)
    base = {name: float(f"{exp(value):.4g}") for name, value in zip(NAMES, theta, strict=False)}
    return {"told": text, "base": base, "bands": dict(bounds), "offsets": tree}


def main() -> None:
    """Fit, cross-validate, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument(
        "--source", default="public measured rows", help="What the rows are, for the file's first lines."
    )
    options = parser.parse_args()
    try:
        cases = yaml.load(options.cases.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["cases"]  # noqa: S506
        found = problem(cases)
    except (OSError, KeyError, ConfigError) as error:
        sys.exit(f"{options.cases}: {error}")
    assert len(fields(Factors)) == len(NAMES) + 1
    theta = fit(found, found.rows, found.start, ROUNDS)
    sys.stderr.write(f"fitted, {cost(found, found.rows, theta):.1f}\n")
    errors = left_out(found, theta)
    sys.stdout.write(summary(errors) + "\n")
    plain = Fitted(dict(zip(NAMES, theta, strict=False)), dict(zip(found.names[len(NAMES) :], theta[len(NAMES) :], strict=True)),
                   {"open_burst": {f: {"any": (0.5, 0.5)} for f in SIGMA}})  # fmt: skip
    rest = others(cases, plain)
    sys.stdout.write(summary(rest) + "\n")
    text = f"fitted on {len(found.rows)} rows of {options.source}; bands from fits that left whole deployments out, in {FOLDS} folds"
    content = written(found, theta, bands(errors) | bands(rest), text)
    head = "# How far engines stay from the roofline, written by tools/fit_speed.py: base values, offsets (log), 80 % bands (log).\n"
    TARGET.write_text(
        head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
    )


if __name__ == "__main__":
    main()
