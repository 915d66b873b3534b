"""How many configurations the planner screens, how far its choice is from the best, and NVIDIA's AIConfigurator beside it.

    python -m tests.bench.planner [--quick] [--json] [--check] [--no-peer]

Every question is searched twice: as ``goodwatch plan size`` does (the best 32 of the closed form simulated, the hopeless
left early), and with the best 500 simulated, each down to the fewest replicas that hold. The regret is how much dearer the
first answer is than the second, in what the search minimises and in plain USD. CPU seconds are of this process with
polars on one thread.

The peer is ``aiconfigurator`` 0.12.0 in a virtual environment of its own (``~/.cache/goodwatch/bench``; made on the first
run): asked for the fewest cards that carry the same load within the same targets, on the same card and engine, 16-bit
weights. It plans by mean latencies; ours must hold for 95 % of the requests at the slow end of the bands, so both of our
answers are shown: that one, and the fewest cards that hold at the point of the bands.

``--check`` exits 1 when fewer than 100,000 configurations are screened, a search takes more than 5 s of CPU, or the
regret is above 5 %.
"""

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # one core; before polars is imported

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from planner.catalogue import known_model
from planner.search.answer import Answer, Option
from planner.search.choose import SIMULATED, fewest_at_point, search
from planner.search.question import Allowed, Arrivals, Question
from planner.simulate.run import Limits

PEER: Final = "aiconfigurator==0.12.0"
CPU_AIM_S, SCREENED_AIM, REGRET_AIM = 5.0, 100_000, 0.05
_MANY, _MANY_QUICK = 500, 200
_PEER_LIMIT_S: Final = 240.0

#: name, model, requests/s, input, output tokens, TTFT, TPOT: any card with a price
QUESTIONS: Final = (
    ("chat, 32 B", "Qwen/Qwen3-32B", 20.0, 1200.0, 300.0, 0.5, 0.04),
    ("chat, 8 B", "meta-llama/Llama-3.1-8B-Instruct", 60.0, 500.0, 250.0, 0.3, 0.05),
    ("documents, 70 B", "meta-llama/Llama-3.3-70B-Instruct", 4.0, 4000.0, 250.0, 3.0, 0.08),
    ("chat, 30 B with experts", "Qwen/Qwen3-30B-A3B", 40.0, 800.0, 400.0, 0.5, 0.04),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Searched:
    """One question: configurations, CPU seconds of both searches, and the regret of the quick one."""

    name: str
    space: int
    meet: int
    simulated: int
    cpu_s: float
    many_simulated: int
    many_cpu_s: float
    usd_per_month: float | None
    best_usd_per_month: float | None
    regret_ratio: float | None
    chosen: str


def question_of(row: tuple[str, str, float, float, float, float, float], **allowed: Any) -> Question:
    """One of ``QUESTIONS``."""
    _, model, rate, tokens, output, ttft_s, tpot_s = row
    return Question(
        known_model(model), Arrivals(rate, tokens, output), Limits(ttft_s, tpot_s), allowed=Allowed(**allowed)
    )


def timed(question: Question, **how: Any) -> tuple[Answer, float]:
    """An answer and its CPU seconds."""
    start = cpu_s()
    return search(question, **how), cpu_s() - start


def cpu_s() -> float:
    """CPU seconds of this process so far, all of its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def shown(one: Option | None) -> str:
    """An option in a few words."""
    if one is None:
        return "nothing"
    setup, made = one.setup, one.setup.instance
    return f"{setup.gpus} x {made.gpu.name}, tp {made.layout.tp}, {made.engine.name}, {made.scheme.name}"


def searched(row: tuple[str, str, float, float, float, float, float], simulated: int) -> Searched:
    """Both searches of a question; the second simulates so many."""
    question = question_of(row)
    few, few_s = timed(question, most=SIMULATED)
    many, many_s = timed(question, most=simulated, prune=False)
    usd, best = (None if one.best is None else one.best.usd_per_month.point for one in (few, many))
    regret = usd / best - 1 if usd is not None and best is not None else None
    return Searched(row[0], few.counted.space, few.counted.meet, few.counted.simulated, few_s, many.counted.simulated, many_s,
                    usd, best, regret, shown(few.best))  # fmt: skip


# -- the peer


def peer_python() -> tuple[Path | None, str]:
    """Python of an environment that has the peer; None with the reason where it cannot be had."""
    home = (
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "goodwatch" / "bench" / "aiconfigurator-0.12.0"
    )
    python = home / "bin" / "python"
    if (home / "ready").exists():
        return python, ""
    try:
        venv.create(home, with_pip=True, clear=True)
        done = subprocess.run(
            [python, "-m", "pip", "install", "-q", PEER], capture_output=True, text=True, timeout=600, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return None, str(error)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip failed"
    (home / "ready").write_text(PEER)
    return python, ""


def peer(python: Path) -> dict[str, Any]:
    """The peer's answer to the first question on H100 with vLLM and 16-bit weights: cards, layout, latencies, seconds."""
    _, model, rate, tokens, output, ttft_s, tpot_s = QUESTIONS[0]
    with tempfile.TemporaryDirectory() as folder:
        words = [
            str(python.with_name("aiconfigurator")), "cli", "default", "--model-path", model, "--system", "h100_sxm", "--backend", "vllm",
            "--target-request-rate", f"{rate:g}", "--isl", f"{tokens:g}", "--osl", f"{output:g}", "--ttft", f"{ttft_s * 1e3:g}",
            "--tpot", f"{tpot_s * 1e3:g}", "--no-color", "--top-n", "1", "--save-dir", folder,
        ]  # fmt: skip
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PEER_LIMIT_S, check=False, cwd=folder)
        after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - start
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        rows = {
            path.parent.name: next(csv.DictReader(path.open()), {})
            for path in Path(folder).rglob("best_config_topn.csv")
        }
    if not rows:
        return {
            "missing": f"it gave no answer (exit {done.returncode}): {(done.stderr or done.stdout).strip().splitlines()[-1]}"
        }
    return {"cpu_s": used, "wall_s": wall_s, "answers": rows}


def ours() -> dict[str, Any]:
    """Our answer to the peer's question: for 95 % at the slow end, and the fewest cards that hold at the point."""
    question = question_of(QUESTIONS[0], gpus=("H100",), engines=("vllm",), schemes=("bf16",), kv_dtypes=("auto",))
    found, used = timed(question)
    best = found.best
    return {
        "cpu_s": used, "cards": best and best.setup.gpus, "chosen": shown(best),
        "ttft_p50_ms": best and best.figures["point"].ttft_p50_s * 1e3, "tpot_p50_ms": best and best.figures["point"].tpot_p50_s * 1e3,
        "cards_at_point": best and fewest_at_point(question, best.setup).gpus,
    }  # fmt: skip


def peer_line(found: dict[str, Any], own: dict[str, Any]) -> list[str]:
    """Both answers side by side."""
    lines = ["  Qwen3-32B, bf16, H100, vLLM, 20 requests/s, 1200 in, 300 out, TTFT 500 ms, TPOT 40 ms"]
    cards = f"{own['cards']} cards ({own['cards_at_point']} at the point of the bands)"
    figures = f"TTFT {own['ttft_p50_ms']:,.0f} ms, TPOT {own['tpot_p50_ms']:,.1f} ms (P50)" if own["cards"] else ""
    lines.append(f"  goodwatch       {own['cpu_s']:6.2f} s CPU   {cards}, {own['chosen']}; {figures}")
    if "missing" in found:
        return [*lines, f"  aiconfigurator  peer missing: {found['missing']}"]
    for mode, row in sorted(found["answers"].items()):
        told = ", ".join(f"{name} {row[name]}" for name in ("parallel", "(p)parallel", "(d)parallel") if row.get(name))
        cards = row.get("total_gpus_needed") or row.get("num_total_gpus") or "?"
        latency = ", ".join(f"{name.upper()} {float(row[name]):,.1f} ms" for name in ("ttft", "tpot") if row.get(name))
        lines.append(
            f"  aiconfigurator  {found['cpu_s']:6.2f} s CPU   {cards} cards, {mode}, {told}; {latency} (means)"
        )
    return lines


def main() -> int:
    """Run, print, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one question instead of four, against the best 200")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    flags = parser.parse_args()
    own = ours()  # first: it loads the catalogues, whose parsing is no search
    rows = [searched(row, _MANY) for row in QUESTIONS] if not flags.quick else [searched(QUESTIONS[0], _MANY_QUICK)]
    python, why = (None, "not asked") if flags.no_peer else peer_python()
    found = peer(python) if python is not None else {"missing": why}
    faults = judged(rows)
    if flags.json:
        told = [{name: getattr(row, name) for name in row.__dataclass_fields__} for row in rows]
        print(json.dumps({"searches": told, "goodwatch": own, "aiconfigurator": found, "faults": faults}, indent=2))
    else:
        for row in rows:
            regret = "none" if row.regret_ratio is None else f"{row.regret_ratio:+.1%}"
            print(f"  {row.name:<24}{row.space:>10,} configurations, {row.simulated:>4} simulated in {row.cpu_s:5.2f} s CPU; "
                  f"{row.many_simulated:,} simulated in {row.many_cpu_s:5.1f} s; regret {regret}; {row.chosen}")  # fmt: skip
        print("\n".join(peer_line(found, own)))
        print("\n".join(f"  ✗ {fault}" for fault in faults) or "  ✓ all aims met")
    return 1 if flags.check and faults else 0


def judged(rows: list[Searched]) -> list[str]:
    """What misses its aim."""
    faults = []
    for row in rows:
        if row.space < SCREENED_AIM:
            faults.append(f"{row.name}: {row.space:,} configurations; {SCREENED_AIM:,} are the aim")
        if row.cpu_s > CPU_AIM_S:
            faults.append(f"{row.name}: {row.cpu_s:.2f} s of CPU; {CPU_AIM_S:g} s are the aim")
        if row.regret_ratio is None or row.regret_ratio > REGRET_AIM:
            faults.append(f"{row.name}: regret {row.regret_ratio}; {REGRET_AIM:.0%} is the aim")
    return faults


if __name__ == "__main__":
    sys.exit(main())
