"""Closed form over columns: the load that a replica carries within the targets, how many it takes, and what they cost.

All times are taken at the slow end of their bands. Requests in the batch vary as a Poisson number, so that targets must
hold at its upper quantile; prompts queue as in M/G/1 with exponential tails. Targets are taken with some slack: the
simulator has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp
from statistics import NormalDist
from typing import Final

import polars as pl

from planner.cost.unit import HOURS_PER_MONTH
from planner.search.pace import APART_ERROR, HANDOVER_S, paced
from planner.search.question import Question
from planner.search.space import Instance
from planner.speed.efficiency import Factors

_ROUNDS: Final = 10
_LEAST_RUNNING: Final = 0.02
_MOST_RUNNING: Final = 8192.0
#: prompts may take this share of a worker's time at most
_MOST_BUSY: Final = 0.95
_NEVER: Final = 1e9
#: targets may be missed by this factor in closed form, which errs on the safe side: the simulator decides
SLACK: Final = 1.2


def switched(memory: pl.DataFrame, question: Question, instances: Sequence[Instance]) -> pl.DataFrame:
    """Starts that are sure, each with its longest ``max_model_len``, times the switches that change speed only.

    Of rows that differ in ``max_num_seqs`` alone, those are dropped whose cache is full before: they are no faster.
    """
    sure = memory.filter((pl.col("outcome") == "ok") & pl.col("certain") & (pl.col("seats_low") >= 1))
    known: dict[tuple[str, ...], Factors] = {}
    starting = sure["instance"].unique().sort().to_list() or [0]  # where none starts, one gives the columns
    paces = pl.DataFrame(
        [{"instance": i, **paced(question, instances[i], known)[0].row()} for i in starting],
        schema_overrides={"instance": pl.UInt32},
    )
    keys = ["instance", "max_num_seqs", "batched_tokens"]
    sure = sure.sort("max_model_len").group_by(keys, maintain_order=True).last().sort(keys)
    useful = pl.col("max_num_seqs").filter(pl.col("max_num_seqs") >= pl.col("seats_low")).min()
    sure = sure.with_columns(enough=useful.over("instance", "batched_tokens")).filter(
        pl.col("enough").is_null() | (pl.col("max_num_seqs") <= pl.col("enough"))
    )
    prefix = [True, False] if question.arrivals.shared_ratio else [True]
    frame = sure.join(paces, on="instance").join(
        pl.DataFrame({"prefix_caching": prefix}), how="cross"
    ).join(pl.DataFrame({"chunked_prefill": [True, False]}), how="cross").join(
        pl.DataFrame({"apart": [False, True]}), how="cross"
    )  # fmt: skip
    frame = frame.filter(~pl.col("apart") | pl.col("can_part"))
    # without chunks a step must hold the longest prompt; engines that never mix prompts in have no such choice
    frame = frame.filter(
        pl.col("chunked_prefill") | (pl.col("mixing") & (pl.col("batched_tokens") >= pl.col("max_model_len")))
    )
    warm = pl.col("prefix_caching")
    slow = pl.when(pl.col("apart")).then(pl.col("slow") * exp(1.2816 * APART_ERROR / 2)).otherwise(pl.col("slow"))
    return frame.with_columns(
        prompt=pl.when(warm).then("prompt_s").otherwise("prompt_cold_s"),
        long_prompt=pl.when(warm).then("long_prompt_s").otherwise("long_prompt_cold_s"),
        slow=slow, mixed=pl.col("mixing") & pl.col("chunked_prefill"),
        places=pl.min_horizontal(pl.col("max_num_seqs").cast(pl.Float64), pl.col("seats_low")) * pl.col("ranks"),
    )  # fmt: skip


def step_s(running: pl.Expr) -> pl.Expr:
    """A decode step of so many requests, at the point of the band."""
    batch = pl.max_horizontal(pl.lit(1.0), running)
    experts = pl.col("expert_s") * (1 - (batch * pl.col("missed_ratio").log()).exp())
    experts = pl.when(pl.col("expert_s") > 0).then(experts).otherwise(0.0)
    each = pl.col("context_s") + pl.col("token_s") * (1 + pl.col("draft_tokens"))
    return pl.col("launch_s") + pl.col("dense_s") + experts + batch * each + pl.col("draft_s")


def tpot_s(running: pl.Expr, output_tokens: float) -> pl.Expr:
    """Time per output token; prompts that come in the place of answered requests share the steps of a replica."""
    prompts = running * pl.col("tokens_per_step") / output_tokens * pl.col("prompt")
    carried = pl.when(pl.col("apart")).then(0.0).otherwise(prompts)
    return (step_s(running) + carried) / pl.col("tokens_per_step")


class Closed:
    """The closed form of one question; every method gives an expression over the columns of ``switched``."""

    def __init__(self, question: Question) -> None:
        load = question.arrivals
        self.question, self.output = question, load.output_tokens
        self.rare = 1 - question.objective
        self.z = NormalDist().inv_cdf(question.objective)
        self.long_output = load.quantile(load.output_tokens, question.objective)
        self.long_input = load.quantile(load.input_tokens, question.objective) * (1 - load.shared_ratio)
        self.varied = (1 + (exp(load.spread**2) - 1)) / 2  # (1 + cv²) / 2 of log-normal prompts

    def crowd(self, running: pl.Expr) -> pl.Expr:
        """Requests at once that are exceeded as rarely as the objective allows."""
        return running + self.z * running.sqrt()

    def rate(self, running: pl.Expr) -> pl.Expr:
        """Requests per second of a replica that has so many in the batch (Little)."""
        return running / (self.output * tpot_s(running, self.output) * pl.col("slow"))

    def waiting_s(self, busy: pl.Expr) -> pl.Expr:
        """The objective's quantile of the wait for other prompts; ``busy``: share of time that prompts take."""
        tail = self.varied * pl.col("prompt") * pl.col("slow") / (1 - busy)
        return tail * pl.max_horizontal(pl.lit(0.0), (busy / self.rare).log())

    def ttft_s(self, running: pl.Expr) -> pl.Expr:
        """The objective's quantile of TTFT at the slow end."""
        crowd = self.crowd(running)
        step, room = step_s(crowd), pl.max_horizontal(pl.lit(1.0), pl.col("batched_tokens") - crowd)
        pieces = pl.when(pl.col("mixed")).then((self.long_input / room).ceil()).otherwise(0.0)
        busy = pl.min_horizontal(pl.lit(_MOST_BUSY), self.rate(running) * pl.col("prompt") * pl.col("slow"))
        own = pl.col("answer_s") + pl.col("lag_steps") * step_s(running) + step * (0.5 + pieces) + pl.col("long_prompt")
        return pl.col("late") * (pl.col("slow") * own + self.waiting_s(busy))

    def holds(self, running: pl.Expr) -> pl.Expr:
        """Whether a replica with so many requests meets everything."""
        limits, crowd = self.question.limits, self.crowd(running)
        tpot = tpot_s(crowd, self.output) * pl.col("slow")
        busy = self.rate(running) * pl.col("prompt") * pl.col("slow") <= _MOST_BUSY
        ttft = pl.when(pl.col("apart")).then(0.0).otherwise(self.ttft_s(running))
        ok = (pl.max_horizontal(pl.lit(1.0), crowd) <= pl.col("places")) & (busy | pl.col("apart"))
        if limits.tpot_s is not None:
            ok = ok & (tpot <= limits.tpot_s * SLACK)
        if limits.ttft_s is not None:
            ok = ok & (ttft <= limits.ttft_s * SLACK)
        if limits.e2e_s is not None:
            ok = ok & (ttft + self.long_output * tpot <= limits.e2e_s * SLACK)
        return ok

    def prefill_ttft_s(self, busy: pl.Expr) -> pl.Expr:
        """The objective's quantile of TTFT of a prefill worker that is so busy, handing the cache over included."""
        own = pl.col("answer_s") + HANDOVER_S + pl.col("long_prompt")
        return pl.col("late") * (pl.col("slow") * own + self.waiting_s(busy))


def screened(frame: pl.DataFrame, question: Question) -> pl.DataFrame:
    """What each row carries and costs.

    Returns
    -------
    pl.DataFrame
        The columns of ``switched`` and: rate (requests/s of one replica within the targets, 0: none), replicas,
        prefill_replicas, cards, usd_per_month (point of the price), headroom_ratio (rate that all carry over the asked
        one), ttft_alone_s, tpot_alone_s and e2e_alone_s (of a long request that is alone), at the slow end. ``replicas`` is null where no
        replica meets the targets.
    """
    closed, wanted = Closed(question), question.arrivals.rate_per_s
    running = _most(frame, closed.holds, _LEAST_RUNNING, _MOST_RUNNING)
    least = pl.lit(_LEAST_RUNNING)
    frame = frame.with_columns(running=running).with_columns(
        rate=pl.when(pl.col("running") > 0).then(closed.rate(pl.col("running"))).otherwise(0.0),
        tpot_alone_s=tpot_s(least, closed.output) * pl.col("slow"),
        ttft_alone_s=pl.when(pl.col("apart")).then(closed.prefill_ttft_s(least)).otherwise(closed.ttft_s(least)),
    )
    frame = frame.with_columns(e2e_alone_s=pl.col("ttft_alone_s") + closed.long_output * pl.col("tpot_alone_s"))
    frame = _with_prefill(frame, closed)
    places = (wanted / pl.col("rate") - 1e-9).ceil()
    firsts = pl.when(pl.col("apart")).then((wanted / pl.col("prefill_rate") - 1e-9).ceil()).otherwise(0.0)
    able = (pl.col("rate") > 0) & ((~pl.col("apart")) | (pl.col("prefill_rate") > 0))
    frame = frame.with_columns(
        replicas=pl.when(able).then(pl.max_horizontal(pl.lit(1.0), places)),
        prefill_replicas=pl.when(able).then(firsts),
    )
    return _priced(_all_cards(frame, question), wanted)


def _most(frame: pl.DataFrame, holds: Callable[[pl.Expr], pl.Expr], low: float, high: float) -> pl.Series:
    """The largest value at which ``holds`` is true, by halving the ratio; 0 where it never is."""
    work = frame.with_columns(_low=pl.lit(low), _high=pl.lit(high), _ever=holds(pl.lit(low)))
    for _ in range(_ROUNDS):
        work = work.with_columns(_middle=(pl.col("_low") * pl.col("_high")).sqrt())
        work = work.with_columns(_ok=holds(pl.col("_middle"))).with_columns(
            _low=pl.when("_ok").then("_middle").otherwise("_low"),
            _high=pl.when("_ok").then("_high").otherwise("_middle"),
        )
    return work.select(pl.when("_ever").then("_low").otherwise(0.0).alias("most"))["most"]


def _with_prefill(frame: pl.DataFrame, closed: Closed) -> pl.DataFrame:
    """Requests per second of one prefill worker, where prompts are apart."""
    limit = closed.question.limits.ttft_s
    if frame.is_empty() or not frame["apart"].any():
        return frame.with_columns(prefill_rate=pl.lit(0.0))
    apart, rest = frame.filter("apart"), frame.filter(~pl.col("apart"))

    def holds(busy: pl.Expr) -> pl.Expr:
        return closed.prefill_ttft_s(busy) <= (limit * SLACK if limit is not None else _NEVER)

    busy = _most(apart, holds, 0.01, _MOST_BUSY)
    apart = apart.with_columns(prefill_rate=busy / (pl.col("prompt") * pl.col("slow")))
    return pl.concat([rest.with_columns(prefill_rate=pl.lit(0.0)), apart])


def _all_cards(frame: pl.DataFrame, question: Question) -> pl.DataFrame:
    """Where the number of cards is told, as many replicas as they hold; fewer than needed is none."""
    told = question.allowed.gpu_count
    if told is None:
        return frame
    whole = (told / pl.col("gpus")).floor()
    spare = whole - pl.col("replicas") - pl.col("prefill_replicas")
    return frame.with_columns(
        replicas=pl.when(spare >= 0).then(pl.col("replicas") + spare), prefill_replicas=pl.when(spare >= 0).then("prefill_replicas")
    )  # fmt: skip


def _priced(frame: pl.DataFrame, wanted: float) -> pl.DataFrame:
    copies = pl.col("replicas") + pl.col("prefill_replicas")
    carried = pl.col("rate") * pl.col("replicas") / wanted
    first = (
        pl.when(pl.col("apart")).then(pl.col("prefill_rate") * pl.col("prefill_replicas") / wanted).otherwise(carried)
    )
    return frame.with_columns(
        cards=(copies * pl.col("gpus")).cast(pl.Int64, strict=False), usd_per_month=copies * pl.col("usd_per_hour") * HOURS_PER_MONTH,
        headroom_ratio=pl.min_horizontal(carried, first),
    )  # fmt: skip
