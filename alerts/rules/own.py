"""Series that goodwatch itself exports and rules may use."""

from typing import Final

#: events of an SLO as goodwatch counts them from request facts, scores and prices; labels slo, service
VALID_EVENTS: Final = "goodwatch_slo_valid_events_total"
GOOD_EVENTS: Final = "goodwatch_slo_good_events_total"
COST: Final = {
    "good": "goodwatch_usd_per_million_good_tokens",
    "output": "goodwatch_usd_per_million_output_tokens",
    "total": "goodwatch_usd_per_million_tokens",
}
USD_PER_HOUR: Final = "goodwatch_usd_per_hour"
TOKENS_PER_S: Final = "goodwatch_output_tokens_per_second"
BUILD_INFO: Final = "goodwatch_build_info"

#: every name that generated rules may use beside the engines' own
SERIES: Final = frozenset(
    {
        VALID_EVENTS,
        GOOD_EVENTS,
        *COST.values(),
        *(f"{name}_low" for name in COST.values()),
        USD_PER_HOUR,
        TOKENS_PER_S,
        BUILD_INFO,
    }
)
