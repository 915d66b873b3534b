"""Whether the first advice is the right one, in a world that the planner does not share.

    python -m tests.bench.recommend [--quick] [--json] [--check] [--seed N] [--only WORDS] [--verbose]

Each situation has its own world (``recommend_world``): a law of the step with errors in each term and for each kind of
change, and troubles that the planner does not model. Its load is fitted so that a certain change carries it and what runs
does not. The planner gets what goodwatch would have measured (``recommend_cases``), and its first candidate is compared
with an exhaustive search of that world on other requests of the same kind:

- right: it reaches the objective at the least bill for what is served, of all single changes, or within 3 % of it, and none
  of those within 3 % is gentler; where none reaches it: attainment within 3 points of the best;
- harmful: attainment falls below the objective (or further below), or cost per good token rises and the objective is
  not reached;
- where staying is right: no candidate. Fewer replicas count only where one more may be lost, as a restart takes one.

The check holds right first choices to 80 %, staying to all, and harmful ones to none. ``--quick`` takes every eighth.
"""

import argparse
import json
import resource
import sys
import time
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from planner.advisors import known_strategies
from planner.candidate import LEVERS, Advice
from planner.recommend import recommend
from tests.bench.recommend_cases import Built, Situation, build, changed, evidence
from tests.bench.recommend_engine import Setup
from tests.bench.recommend_situations import CHANGES, STAY
from tests.bench.recommend_world import run

LEAST_RIGHT, NEAR = 0.8, 0.03
_LEVER = {
    "admitted_ratio": "admission", "tenant": "admission", "routing": "admission", "max_num_seqs": "flags",
    "max_num_batched_tokens": "flags", "prefix_caching": "flags", "chunked_prefill": "flags", "speculative_tokens": "flags",
    "max_model_len": "flags", "kv_dtype": "precision", "quantisation": "precision", "input_spare_ratio": "precision",
    "replicas_by_hour": "replicas", "replicas": "replicas", "gpu": "hardware", "tp": "topology", "prefill_replicas": "topology",
    "routed_ratio": "topology",
}  # fmt: skip


@dataclass(frozen=True)
class Option:
    """One change in its world; ``gentle``: lower is undone more easily."""

    changes: dict[str, Any]
    attained: float
    usd: float
    bill: float
    gentle: int


def grid(built: Built) -> list[dict[str, Any]]:
    """Every single change that this world has."""
    now, case = built.case.now, built.case
    found: list[dict[str, Any]] = [{"admitted_ratio": share} for share in (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)]
    if now.context:
        found += [{"max_model_len": one, "max_num_seqs": now.seqs * now.context // one} for one in (4096, 8192, 16_384)]
    else:
        found += [
            {"max_num_seqs": one} for one in (4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512) if one != now.seqs
        ]
    found += [{"max_num_batched_tokens": one} for one in (512, 1024, 2048, 4096, 8192, 16_384) if one != now.batched]
    found += [{"replicas": one} for one in range(1, 2 * now.replicas + 4) if one != now.replicas]
    found += [] if now.prefix else [{"prefix_caching": True}]
    found += [] if now.mixed else [{"chunked_prefill": True}]
    found += [{"speculative_tokens": one} for one in range(now.drafts)]
    found += [{"tp": size, "replicas": now.replicas * now.tp // size} for size in (1, 2, 4) if size < now.tp]
    found += [{"gpu": one} for one in case.cards]
    if now.replicas > 1:
        found += [{"routing": "prefix_aware"}] if case.traffic.prefixes else []
        found += [{"prefill_replicas": one, "decode_replicas": now.replicas - one} for one in range(1, now.replicas)]
    if "model" not in case.hides and not now.context:
        found += [{"kv_dtype": "fp8"}] if now.kv == "auto" else []
        found += [{"quantisation": "fp8"}] if now.weights == "bf16" else []
    found += [{"input_spare_ratio": case.spare_input}] if case.spare_input else []
    found += [{"routed_ratio": case.small, "replicas": one} for one in range(1, now.replicas + 1)] if case.small else []
    if case.traffic.flood:
        found.append({"tenant": "flood", "refused_ratio": 2 * case.traffic.flood - 1})
    return found + _schedules(built)


def _schedules(built: Built) -> list[dict[str, Any]]:
    if not built.case.traffic.daily:
        return []
    counts = [sum(one.hour == hour for one in built.seen) for hour in range(24)]
    most = built.case.now.replicas
    return [
        {"replicas_by_hour": [max(1, min(most, -int(-most * count / max(counts) * spare // 1))) for count in counts]}
        for spare in (1.2, 1.5)  # less has no room for the time that a replica takes to start
    ]


def tried(built: Built, changes: dict[str, Any]) -> Option | None:
    """A change in its world, on traffic to come; None where the world does not have it."""
    now = changed(built.case.now, {**changes, "tenant_share": built.case.traffic.flood or 1.0})
    ran = None if now is None else run(built.world, now, built.case.now, built.later, built.terms)
    if now is None:
        return None
    if ran is None:
        return Option(changes, 0.0, inf, inf, _gentle(changes, now, built))
    attained = ran.attained
    if now.replicas < built.case.now.replicas and not now.prefillers:
        spare = (
            run(built.world, replace(now, replicas=now.replicas - 1), built.case.now, built.later, built.terms)
            if now.replicas > 1
            else None
        )
        attained = min(attained, spare.attained if spare else 0.0)
    return Option(changes, attained, ran.usd_per_million_good, ran.usd_per_served, _gentle(changes, now, built))


def _gentle(changes: dict[str, Any], now: Setup, built: Built) -> int:
    if not changes:
        return 0
    name = next((one for one in _LEVER if one in changes), "tp")
    lever = "hardware" if name == "replicas" and now.replicas > built.case.now.replicas else _LEVER[name]
    return LEVERS.index(lever)


def judged(built: Built, advice: Advice) -> dict[str, Any]:
    """The planner's first choice against the search."""
    case = built.case
    stay = tried(built, {})
    assert stay is not None
    options = [one for changes in grid(built) if (one := tried(built, changes)) is not None]
    first = dict(advice.best.proposal.changes) if advice.best else {}
    chosen = stay if not first else tried(built, first)
    reaching = [one for one in [stay, *options, *([chosen] if chosen else [])] if one.attained >= case.objective]
    least = min((one.bill for one in reaching), default=inf)
    near = [one for one in reaching if one.bill <= least * (1 + NEAR)]
    best = min(near, key=lambda one: (one.gentle, one.usd)) if near else max(options, key=lambda one: one.attained)
    stay_right = bool(case.hides) or case.lean
    harmful = False
    if chosen is None:
        right = False
    elif stay_right:
        right = not first
    elif near:
        right = chosen in near and chosen.gentle <= best.gentle
    else:
        right = chosen.attained >= best.attained - 0.03
    if chosen is not None and first:
        sinks = chosen.attained < min(case.objective, stay.attained - 0.005)
        # without any good token before and after, the bill stands for their cost
        more = chosen.bill > stay.bill * 1.001 if stay.usd == chosen.usd == inf else chosen.usd > stay.usd * 1.001
        dearer = more and chosen.attained < case.objective
        harmful = sinks or dearer
    return {
        "name": case.name, "right": right, "harmful": harmful, "first": first, "best": best.changes, "stay_is_right": stay_right,
        "stay": (round(stay.attained, 3), round(stay.usd, 3)),
        "chosen": None if chosen is None else (round(chosen.attained, 3), round(chosen.usd, 3)),
        "best_is": (round(best.attained, 3), round(best.usd, 3)), "objective": case.objective, "reason": advice.reason,
        "inside": _inside(advice, chosen),
    }  # fmt: skip


def _inside(advice: Advice, chosen: Option | None) -> bool | None:
    """Whether the attainment that came was in the interval that was promised; None without advice."""
    if advice.best is None or chosen is None or "replicas" in advice.best.proposal.changes:
        return None
    told = advice.best.effect.attainment
    return told.low - 0.02 <= chosen.attained <= told.high + 0.02


def one(case: Situation, *, verbose: bool = False) -> dict[str, Any]:
    """Build, ask, judge one situation."""
    started = time.process_time()
    built = build(case)
    told = evidence(built)
    asked = time.process_time()
    advice = recommend(told, known_strategies())
    answered = time.process_time()
    found = judged(built, advice)
    found["question_s"], found["bench_s"] = answered - asked, time.process_time() - started
    if verbose:
        _show(found, advice)
    return found


def _show(found: dict[str, Any], advice: Advice) -> None:
    mark = "ok   " if found["right"] else "WRONG"
    print(f"{mark} {'HARM ' if found['harmful'] else ''}{found['name']}: first {found['first']} {found['chosen']}; best {found['best']} "
          f"{found['best_is']}; stay {found['stay']}, objective {found['objective']} [{found['question_s']:.1f}/{found['bench_s']:.1f} s] {found['reason']}")  # fmt: skip
    for candidate in (*advice.candidates, *advice.lost) if not found["right"] else ():
        a = candidate.effect.attainment
        cost = candidate.cost_ratio
        print(f"      {'+' if candidate.helps else '-'} {candidate.proposal.title}: {a.point:.3f} [{a.low:.3f} {a.high:.3f}] gain {candidate.gain.low:+.3f} "
              f"cost {cost.point if cost else -1:.2f} {candidate.why_not}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for flag in ("quick", "json", "check", "verbose"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--only", default="", help="situations whose names hold this; several with |")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th situation from the i-th on")
    parser.add_argument("--seed", type=int, default=0, help="other worlds and requests of the same situations")
    asked = parser.parse_args()
    first, step = (int(one) for one in asked.part.split("/"))
    cases = [case for case in (*CHANGES, *STAY) if any(word in case.name for word in asked.only.split("|"))]
    cases = [replace(case, seed=case.seed + 1000 * asked.seed) for case in cases]
    rows = [one(case, verbose=asked.verbose) for case in cases[first :: 8 if asked.quick else step]]
    changes, stays = ([row for row in rows if row["stay_is_right"] is kind] for kind in (False, True))
    insides = [row["inside"] for row in rows if row["inside"] is not None]
    summary = {
        "changes": len(changes), "right_ratio": sum(row["right"] for row in changes) / max(1, len(changes)),
        "stays": len(stays), "stay_right": sum(row["right"] for row in stays),
        "harmful": sum(row["harmful"] for row in rows), "inside_ratio": sum(insides) / max(1, len(insides)),
        "question_cpu_s": sum(row["question_s"] for row in rows) / len(rows), "question_cpu_s_most": max(row["question_s"] for row in rows),
        "cpu_s": time.process_time(), "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip
    wrong = [row["name"] for row in rows if not row["right"]]
    print(json.dumps({**summary, "rows": rows}) if asked.json else f"{summary}\nwrong: {wrong}")
    bad = summary["right_ratio"] < LEAST_RIGHT or summary["harmful"] or summary["stay_right"] < len(stays)
    return 1 if asked.check and bad else 0


if __name__ == "__main__":
    sys.exit(main())
