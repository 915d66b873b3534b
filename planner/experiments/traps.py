"""What a benchmark's numbers do not say, and what their shape gives away; each finding is a sentence for a person.

Sources: the formats' own definitions, and practice reports on which numbers misled whom (docs/experiments.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from planner.experiments.benchmark import Benchmark, Statistic

#: a mean that many times the median: some requests waited, most did not
_SKEW: Final = 3.0
#: a pause between two chunks of one answer, in medians and in seconds, that is no generation any more
_STALL: Final = (50.0, 5.0)
#: E2E that varies by no more than this between P50 and P90, while TTFT spreads by that factor: requests in step
_STEADY, _SPREAD = 1.02, 5.0
#: a rate below this share of what was asked for
_BEHIND: Final = 0.9
#: streams' chunks a second of one Python process above which it may delay what it measures: our own asyncio client
#: takes half a core for so many (measured, docs/experiments.md)
_ONE_PROCESS: Final = 10_000.0
_SINGLE: Final = frozenset({"vllm", "sglang", "llmperf", "guidellm"})


def traps(run: Benchmark) -> tuple[str, ...]:
    """Findings on one run, the importer's own first."""
    checks = (
        _few,
        _queueing,
        _stalls,
        _lockstep,
        _second_token,
        _agreement,
        _denominator,
        _client,
        _open_loop,
        _lengths,
    )
    return (*run.findings, *(said for check in checks for said in check(run)))


def _few(run: Benchmark) -> Iterator[str]:
    for one in run.statistics:
        high = [q for q in one.unsupported if q > 0.5]
        if high and one.n is not None:
            names = ", ".join(f"P{q * 100:g}" for q in high)
            most = "" if one.most is None else f" ({one.most:.4g} {one.unit})"
            yield f"{one.name}: {names} of {one.n:g} values: show the maximum{most} with n = {one.n:g} instead"
    requests = [one for one in run.statistics if one.pool == "request" and one.n is None]
    highest = max((q for one in requests for q, _ in one.quantiles), default=0.0)
    if highest > 0.5:
        yield f"how many requests there were is not in the file: P{highest * 100:g} may be their maximum"


def _queueing(run: Benchmark) -> Iterator[str]:
    one = run.statistic("ttft_s")
    if one and one.mean and one.median and one.mean >= _SKEW * one.median:
        yield f"ttft_s: the mean is {one.mean / one.median:.1f} times the median: some requests queued, most did not"


def _stalls(run: Benchmark) -> Iterator[str]:
    one = run.statistic("itl_s")
    if one and one.most and one.median and one.most >= max(_STALL[0] * one.median, _STALL[1]):
        yield (
            f"itl_s: one gap of {one.most:.1f} s inside an answer, {one.most / one.median:.0f} times the median: a stall,"
            " or a running request was preempted; a P99 hides it"
        )


def _lockstep(run: Benchmark) -> Iterator[str]:
    ttft, e2e = run.statistic("ttft_s"), run.statistic("e2e_s")
    if not (ttft and e2e and ttft.least and ttft.most and e2e.median):
        return
    high = e2e.at(0.9)
    if high and high <= _STEADY * e2e.median and ttft.most >= _SPREAD * ttft.least:
        yield (
            f"requests run in lock-step waves: E2E is nearly constant (P50 {e2e.median:.3f} s, P90 {high:.3f} s) while TTFT"
            f" spreads from {ttft.least:.3f} to {ttft.most:.3f} s: they start and end together, and TTFT is the place in"
            " the wave, not noise; spread the arrivals"
        )


def _second_token(run: Benchmark) -> Iterator[str]:
    second, tpot = run.statistic("second_token_s"), run.statistic("tpot_s")
    if second and tpot and second.mean and tpot.mean and second.mean >= 5 * tpot.mean:
        yield (
            f"the second token takes {second.mean * 1000:.0f} ms after the first, later ones {tpot.mean * 1000:.0f} ms:"
            " prefill of other requests blocks it"
        )


def _agreement(run: Benchmark) -> Iterator[str]:
    """E2E is TTFT and the rest; where means do not agree, the fields do not mean what their names say."""
    ttft, e2e, tpot, out = (run.statistic(name) for name in ("ttft_s", "e2e_s", "tpot_s", "output_tokens"))
    means = [one.mean if one else None for one in (ttft, e2e, tpot, out)]
    if any(value is None for value in means):
        return
    first, whole, each, tokens = (value or 0.0 for value in means)
    if tokens <= 2 or each <= 0 or _vary(out):
        return
    derived = (whole - first) / (tokens - 1)
    if derived > 0 and abs(derived / each - 1) > 0.1:
        yield (
            f"tpot_s: the file says {each * 1000:.2f} ms, E2E and TTFT give {derived * 1000:.2f} ms: chunks are not"
            " tokens (speculative decoding, several tokens a chunk), or the field includes the first token"
        )


def _vary(out: Statistic | None) -> bool:
    """Whether lengths differ so much that a mean of quotients is no quotient of means."""
    return out is None or (out.std is not None and out.mean is not None and out.std > 0.2 * out.mean)


def _denominator(run: Benchmark) -> Iterator[str]:
    if run.failed is None:
        if not any(one.pool == "request" for one in run.statistics):
            return
        yield "failed requests are not in the file: the share of good requests has no denominator"
    elif run.failed and run.ok is not None:
        yield f"{run.failed:g} of {run.failed + run.ok:g} requests failed: latencies are those of survivors"


def _client(run: Benchmark) -> Iterator[str]:
    wait = run.statistic("client_queue_s")
    ttft = run.statistic("ttft_s")
    if wait and wait.mean and ttft and ttft.mean and wait.mean > 0.1 * ttft.mean:
        yield f"requests waited {wait.mean:.3f} s in the client on average: that is not in TTFT, and users would feel it"
    if wait and wait.least is not None and wait.least < 0:
        yield "a negative sending delay is clock jitter, no error"
    tokens = run.rates.get("output_tokens_per_s")
    if run.tool in _SINGLE and tokens is not None and tokens >= _ONE_PROCESS:
        yield (
            f"one process read {tokens:,.0f} tokens a second: the client may have been the limit;"
            " repeat with several client processes before believing it"
        )


def _open_loop(run: Benchmark) -> Iterator[str]:
    done = run.rates.get("requests_per_s")
    if run.request_rate and done is not None and done < _BEHIND * run.request_rate:
        yield (
            f"{run.request_rate:g} requests a second were asked for and {done:.3g} done: above capacity TTFT grows as long"
            " as the test runs, so its percentiles are no steady state"
        )
    elif run.unlimited and not run.concurrency:
        yield "all requests were sent at once: TTFT is the place in the queue, no steady state"


def _lengths(run: Benchmark) -> Iterator[str]:
    retokenised, out = run.facts.get("retokenised_tokens"), run.facts.get("output_tokens_total")
    if out and retokenised is not None and retokenised < 0.9 * out:
        yield f"only {retokenised:g} of {out:g} output tokens are there when counted again: empty or cut answers count as ok"
    asked, had = run.facts.get("output_tokens_asked"), run.statistic("output_tokens")
    if asked and had and had.mean and had.mean < 0.9 * asked:
        yield f"answers have {had.mean:.0f} tokens where {asked:.0f} were asked for: shorter answers look faster"
    empty = run.facts.get("empty_answers")
    if empty:
        yield f"{empty:g} answers are empty and count as ok"
    chunks = run.facts.get("chunks_per_token")
    if chunks is not None and not math.isclose(chunks, 1, rel_tol=0.1):
        yield f"{chunks:.2f} chunks a token: gaps between chunks are not gaps between tokens"
