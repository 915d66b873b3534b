"""The frames of request facts: spans' parts, requests, rollups and scores. Times are Unix seconds UTC.

A field that the source does not give is null, never zero.
"""

from typing import Any, Final

import polars as pl

#: one row per kept span; the columns of one vantage point are filled by that vantage point's spans only.
#: ``kind`` is a ``PartKind``, ``vantage`` a ``Vantage``, ``source`` the table that recognised it ("vllm", "openinference").
#: (trace_id, span_id) is its identity: lower-case hex of 32 and 16 digits.
PARTS: Final[dict[str, Any]] = {
    "received_s": pl.Float64,
    "trace_id": pl.String,
    "span_id": pl.String,
    "parent_id": pl.String,
    "kind": pl.String,
    "source": pl.String,
    "vantage": pl.String,
    "name": pl.String,
    "started_s": pl.Float64,
    "ended_s": pl.Float64,  # null when the span ended before it began
    "origin": pl.String,  # resource service.name as sent
    "instance": pl.String,
    "service": pl.String,  # goodwatch's service, where an Origin names it; else the resource's service.name
    "target": pl.String,
    "request_id": pl.String,
    "response_id": pl.String,
    "model": pl.String,  # served, else requested, else what the Origin says
    "operation": pl.String,
    "adapter": pl.String,
    "tenant": pl.String,
    "route": pl.String,
    "form": pl.String,
    "session_id": pl.String,
    "input_tokens": pl.Int64,
    "cached_tokens": pl.Int64,  # included in input_tokens
    "output_tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,  # included in output_tokens
    "max_tokens": pl.Int64,
    "choices": pl.Int64,  # n asked for
    "stream": pl.Boolean,
    "ttft_s": pl.Float64,
    "e2e_s": pl.Float64,
    "queue_s": pl.Float64,
    "prefill_s": pl.Float64,  # first schedule → first token; SGLang's own value, which holds the queue, is not this
    "decode_s": pl.Float64,
    "kv_transfer_s": pl.Float64,
    "finish_reason": pl.String,  # stop, length, tool, filter, abort, timeout, error, partial
    "status": pl.String,  # ok, error, unset
    "error_type": pl.String,
    "http_status": pl.Int64,
    "rank": pl.Int64,  # tensor-parallel rank of a stage: the lowest one counts
    "role": pl.String,  # prefill, decode, unified
    "weight": pl.Float64,  # 1 / sampling probability; null when unknown
    "weight_told": pl.Boolean,  # the span told it itself (tracestate or attribute), not the configuration
}

#: one row per request (design §3). ``fact_id`` is the span id of the part that stands for it, unique within the trace.
#: ``settled_at`` is when it was counted; ``parts`` how many spans made it; ``late`` that a part came after it settled.
FACTS: Final[dict[str, Any]] = {
    "fact_id": pl.String,
    "arrived_at": pl.Float64,
    "ended_at": pl.Float64,
    "trace_id": pl.String,
    "span_id": pl.String,  # of the innermost span: where the engine's own numbers come from
    "request_id": pl.String,
    "response_id": pl.String,
    "service": pl.String,
    "model": pl.String,
    "adapter": pl.String,
    "tenant": pl.String,
    "route": pl.String,
    "form": pl.String,
    "session_id": pl.String,
    "engine": pl.String,
    "target": pl.String,
    "instance": pl.String,
    "deployment": pl.String,
    "operation": pl.String,
    "input_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "output_tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,
    "max_tokens": pl.Int64,
    "choices": pl.Int64,
    "stream": pl.Boolean,
    "engine_queue_s": pl.Float64,
    "engine_prefill_s": pl.Float64,
    "engine_decode_s": pl.Float64,
    "engine_kv_transfer_s": pl.Float64,
    "engine_ttft_s": pl.Float64,
    "engine_tpot_s": pl.Float64,
    "engine_e2e_s": pl.Float64,
    "gateway_ttft_s": pl.Float64,
    "gateway_e2e_s": pl.Float64,
    "client_ttft_s": pl.Float64,
    "client_e2e_s": pl.Float64,
    "status": pl.String,  # Outcome
    "finish_reason": pl.String,
    "error_type": pl.String,
    "weight": pl.Float64,
    "weight_told": pl.Boolean,
    "parts": pl.Int64,
    "late": pl.Boolean,
    "settled_at": pl.Float64,
}

#: latency fields of a fact that rollups keep bins of, as (column, what a page calls it)
LATENCY_FIELDS: Final = (
    "engine_ttft_s", "engine_tpot_s", "engine_e2e_s", "engine_queue_s",
    "gateway_ttft_s", "gateway_e2e_s", "client_ttft_s", "client_e2e_s",
)  # fmt: skip

#: the scope of one rollup row. ``tier_s`` is 60, 3600 or 86400; a fact belongs to the minute in which it ended.
ROLLUP_KEYS: Final[dict[str, Any]] = {
    "tier_s": pl.Int32,
    "start_s": pl.Float64,
    "service": pl.String,
    "model": pl.String,
    "tenant": pl.String,
    "input_band": pl.Int16,  # goodwatch.core.request.band_of
    "output_band": pl.Int16,
}

#: counts and sums of a scope; every column adds. ``slo`` names the limits that judged good and bad ("" without an SLO).
#: Weighted columns count a fact as 1 / its sampling probability, and as 1 where that is unknown.
ROLLUPS: Final[dict[str, Any]] = {
    **ROLLUP_KEYS,
    "slo": pl.String,
    "requests": pl.Float64,  # facts
    "weighted": pl.Float64,
    "weighted_sq": pl.Float64,  # sum of squared weights: the variance of a count from a sample
    "unweighted": pl.Float64,  # facts whose sampling probability nobody told
    "valid": pl.Float64,  # weighted, as the following ones
    "good": pl.Float64,
    "undetermined": pl.Float64,  # outside valid: a field that the SLO needs is null
    "failed": pl.Float64,
    "aborted": pl.Float64,
    "good_sq": pl.Float64,  # sum of squared weights of good facts
    "valid_sq": pl.Float64,
    "input_tokens": pl.Float64,
    "cached_tokens": pl.Float64,
    "output_tokens": pl.Float64,
    "good_output_tokens": pl.Float64,
    "good_tokens": pl.Float64,  # prompt and generated tokens of good requests
    "lost_output_tokens": pl.Float64,  # generated for requests that failed or were aborted
    "scored": pl.Float64,  # facts with a quality score
    "passed": pl.Float64,  # of them, those whose score passes
    "passed_good": pl.Float64,  # of them, those that are good as well
}

#: exponential histograms of the latency fields of a scope: base-2 bins at scale 5, weighted counts, bins ascending.
BINS: Final[dict[str, Any]] = {
    **ROLLUP_KEYS,
    "field": pl.String,  # one of LATENCY_FIELDS
    "zero": pl.Float64,
    "facts": pl.Float64,  # observations, unweighted: how far a quantile can be trusted
    "sum": pl.Float64,
    "bin": pl.List(pl.Int32),
    "count": pl.List(pl.Float64),
}

#: quality scores (design §3). Identity: (trace_id, span_id, response_id, evaluator, annotator, identifier): the last wins.
SCORES: Final[dict[str, Any]] = {
    "ts": pl.Float64,  # when it was given
    "received_s": pl.Float64,
    "trace_id": pl.String,  # null when only response_id is known
    "span_id": pl.String,
    "response_id": pl.String,
    "evaluator": pl.String,
    "annotator": pl.String,  # human, llm, code
    "identifier": pl.String,
    "score": pl.Float64,  # 0..1; null where only a label was given
    "label": pl.String,
    "explanation_ref": pl.String,
    "service": pl.String,
    "model": pl.String,
}
