"""SGLang: a request's span, its scheduler threads, and the stages below them. Read in 0.5.3 to 0.5.23, seen from 0.5.23.

The request's span is named ``<role> Req <8 chars>``; without a role the name begins with a space, so scope and ``rid``
recognise it. ``time_in_model_prefill`` holds the queue as well and is not a prefill time: queue and prefill are the
stages' durations. Stages carry nothing themselves: their thread's span has the rank, and every rank repeats them.
"""

from typing import Final

from collector.spans.table import Match, Parse, Read, SpanClass, SpanTable, keys
from goodwatch.core.request import PartKind

_SCOPE: Final = ("sglang server",)
_NOISE: Final = (
    "decode_loop", "decode loop", "chunked_prefill", "run_batch_cpu", "spec_draft", "spec_verify", "fake_output",
    "tokenize", "api_server_dispatch", "dispatch", "dpc_dispatch", "dc_dispatch", "request_process", "process req",
    "quick_finish", "prefill_prepare", "decode_prepare", "mm_encode",
)  # fmt: skip

#: stage → the column that its duration fills; "" is kept for its times alone
_STAGES: Final = {
    "prefill_waiting": "queue_s",
    "decode_waiting": "queue_s",
    "prefill_forward": "prefill_s",
    "decode_forward": "decode_s",
    "prefill_transfer_kv_cache": "kv_transfer_s",
    "prefill_bootstrap": "",
    "decode_bootstrap": "",
    "decode_transferred": "",
}

_THREAD: Final = {"rank": keys("tp_rank"), "role": keys("thread_label")}
_FAULT: Final = {
    **_THREAD,
    "finish_reason": keys("type"),  # the finish reason's own fields as bare attributes
    "error_type": (Read("status_code", Parse.TEXT_OR_INT), Read("reason")),
    "http_status": keys("status_code"),
}


TABLE: Final = SpanTable(
    name="sglang",
    docs="SGLang 0.5.3 to 0.5.23, tracing",
    order=11,
    classes=(
        SpanClass(Match(names=_NOISE, scopes=_SCOPE), dropped="noise", childless=True),
        *(
            SpanClass(Match(names=(name,), scopes=_SCOPE), PartKind.ENGINE_STAGE, duration=column)
            for name, column in _STAGES.items()
        ),
        SpanClass(Match(name_prefix="Bootstrap Room ", scopes=_SCOPE), PartKind.ENGINE_LINK),
        SpanClass(
            Match(scopes=_SCOPE, has=("rid",), lacks=("thread_label",)),
            PartKind.ENGINE_REQUEST,
            duration="e2e_s",
            role_in_name=True,
        ),
        SpanClass(Match(scopes=_SCOPE, has=("thread_label",), failed=True), PartKind.ENGINE_FAULT, fields=_FAULT),
        SpanClass(Match(scopes=_SCOPE, has=("thread_label", "tp_rank")), PartKind.ENGINE_LINK, fields=_THREAD),
        SpanClass(Match(scopes=_SCOPE, has=("thread_label",)), dropped="thread"),
    ),
    fields={
        "request_id": keys("gen_ai.request.id", "rid"),
        "model": keys("gen_ai.response.model"),
        "input_tokens": keys("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "cached_tokens": keys("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens"),
        "output_tokens": keys("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        "max_tokens": keys("gen_ai.request.max_tokens"),
        "choices": keys("gen_ai.request.n"),
        "ttft_s": keys("gen_ai.latency.time_to_first_token"),
        "e2e_s": keys("gen_ai.latency.e2e"),  # absent in 0.5.10 to 0.5.19: the span's duration then
        "decode_s": keys("gen_ai.latency.time_in_model_decode"),
        "finish_reason": (Read("gen_ai.response.finish_reasons", Parse.FINISH_LIST),),
    },
)
