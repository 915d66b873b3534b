"""vLLM: one span of an engine's finished request. Read in 0.8.5 to 0.32.0 and seen from 0.8.5, 0.10.2, 0.12.0, 0.32.0.

Requests that the client aborted or that were refused leave no span. V1 (0.10.2 and later) tells no model, no finish
reason, no status and no cached tokens. All times are seconds; ``time_in_queue`` is first schedule - enqueue.
"""

from typing import Final

from collector.spans.table import INTERNAL, SERVER, Match, SpanClass, SpanTable, keys
from goodwatch.core.request import PartKind

_SCOPES: Final = ("vllm.llm_engine", "vllm.tracing.otel")  # up to 0.15, from 0.16


def _request(match: Match) -> SpanClass:
    return SpanClass(match, PartKind.ENGINE_REQUEST, duration="e2e_s")


TABLE: Final = SpanTable(
    name="vllm",
    docs="vLLM 0.8.5 to 0.32.0, tracing",
    order=10,
    classes=(
        _request(Match(names=("llm_request",), kind=SERVER, scopes=_SCOPES)),
        # The same span where a relay lost or renamed the scope: TensorRT-LLM's has no such key and no such resource.
        _request(Match(names=("llm_request",), resource_has="vllm.")),
        _request(Match(names=("llm_request",), has=("gen_ai.latency.time_in_model_prefill",))),
        # Start-up steps since 0.16; their file paths are the host's business.
        SpanClass(Match(kind=INTERNAL, scope_prefix="vllm.", has=("code.lineno",)), dropped="startup"),
    ),
    fields={
        "request_id": keys("gen_ai.request.id"),
        "model": keys("gen_ai.response.model"),  # V0 only: the path it was loaded from
        "input_tokens": keys("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "cached_tokens": keys("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens"),
        "output_tokens": keys("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        "max_tokens": keys("gen_ai.request.max_tokens"),
        "choices": keys("gen_ai.request.n"),
        "ttft_s": keys("gen_ai.latency.time_to_first_token"),
        "e2e_s": keys("gen_ai.latency.e2e"),
        "queue_s": keys("gen_ai.latency.time_in_queue"),
        "prefill_s": keys("gen_ai.latency.time_in_model_prefill"),
        "decode_s": keys("gen_ai.latency.time_in_model_decode"),
    },
)
