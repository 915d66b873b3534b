"""llm-d's router (0.9.0 and main): the gateway's request, and the proxy that splits it into prefill and decode legs.

The proxy's times are milliseconds. Its decode span hangs under the prefill span, so the attributes tell, not the tree.
"""

from typing import Final

from collector.spans.table import Match, Read, SpanClass, SpanTable
from goodwatch.core.request import PartKind, Vantage

_MS: Final = 1e-3

TABLE: Final = SpanTable(
    name="llmd",
    docs="llm-d router 0.9.0 and main",
    order=21,
    borrows=True,
    classes=(
        SpanClass(Match(names=("gateway.request",)), PartKind.GATEWAY_REQUEST, Vantage.GATEWAY, duration="e2e_s"),
        SpanClass(Match(has=("llm_d.pd_proxy.true_ttft_ms",)), PartKind.GATEWAY_STAGE, Vantage.GATEWAY),
        SpanClass(Match(names=("gateway.request_orchestration",)), dropped="framework"),
    ),
    fields={
        "ttft_s": (Read("llm_d.pd_proxy.true_ttft_ms", unit_s=_MS),),
        "prefill_s": (Read("llm_d.pd_proxy.prefill_duration_ms", unit_s=_MS),),
        "decode_s": (Read("llm_d.pd_proxy.decode_duration_ms", unit_s=_MS),),
    },
)
