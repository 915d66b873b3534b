"""TensorRT-LLM: one span of an engine's request. Read at three states of its source; the release was not verified.

No model name. A missing TTFT or queue time may read -1. The span's name was not verified on a running server, so the
keys recognise it as well. Finish reasons: stop, length, timeout, cancelled, not_finished (context-only leg).
"""

from typing import Final

from collector.spans.table import Match, Parse, Read, SpanClass, SpanTable, keys
from goodwatch.core.request import PartKind

_VLLM_ONLY: Final = ("gen_ai.latency.time_in_model_prefill",)

TABLE: Final = SpanTable(
    name="trtllm",
    docs="TensorRT-LLM#5897 and later",
    order=12,
    classes=(
        SpanClass(
            Match(names=("llm_request",), lacks=_VLLM_ONLY, resource_lacks="vllm."),
            PartKind.ENGINE_REQUEST,
            duration="e2e_s",
        ),
        SpanClass(
            Match(has=("gen_ai.latency.e2e", "gen_ai.request.id"), lacks=_VLLM_ONLY, resource_lacks="vllm."),
            PartKind.ENGINE_REQUEST,
            duration="e2e_s",
        ),
    ),
    fields={
        "request_id": (Read("gen_ai.request.id", Parse.TEXT_OR_INT),),
        "input_tokens": keys("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "output_tokens": keys("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        "max_tokens": keys("gen_ai.request.max_tokens"),
        "choices": keys("gen_ai.request.n"),
        "ttft_s": keys("gen_ai.latency.time_to_first_token"),
        "e2e_s": keys("gen_ai.latency.e2e"),
        "queue_s": keys("gen_ai.latency.time_in_queue"),
        "kv_transfer_s": keys("gen_ai.latency.kv_cache_transfer_time"),
        "finish_reason": (Read("gen_ai.response.finish_reasons", Parse.FINISH_LIST),),
    },
)
