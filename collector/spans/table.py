"""What a table of one source of spans is made of.

A table names the classes of spans that its source emits and, for every column of ``PARTS``, the attribute keys that
bring it, most wanted first. All tables together are compiled once by ``collector.spans.mapper``; the first class that
fits a span, in the order of ``SpanTable.order``, decides what becomes of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from goodwatch.core.request import PartKind, Vantage

#: ``Span.kind`` of OTLP (opentelemetry-proto, trace.proto)
INTERNAL, SERVER, CLIENT = 1, 2, 3


class Parse(StrEnum):
    """How an attribute's value is read. What does not fit is null and counted, never bent into shape."""

    TEXT = "text"  # a text
    TEXT_OR_INT = "text_or_int"  # a text; a whole number as its digits
    COUNT = "count"  # a whole number of zero or more: integer, whole double, or either as text
    SECONDS = "seconds"  # a duration as a number, times ``unit_s``; a negative one is absent
    FLAG = "flag"  # a boolean, or "true", "True", "1", "false", "False", "0"
    FINISH = "finish"  # a finish reason, one word
    FINISH_LIST = "finish_list"  # the first of a list of them, or of a JSON text that holds a list
    ROLE = "role"  # the first word, where it names a leg of disaggregated serving
    RATIO = "ratio"  # a sampling probability in (0, 1]
    JSON_COUNT = "json_count"  # a JSON text that holds an object: the first usable one of ``path``
    JSON_SINCE_START = "json_since_start"  # a JSON text that holds an ISO 8601 instant: seconds since the span began


#: How a column is read where its ``Read`` does not say.
DEFAULT_PARSE: Final[Mapping[str, Parse]] = MappingProxyType(
    dict.fromkeys(
        ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "max_tokens", "choices"), Parse.COUNT
    )
    | dict.fromkeys(("ttft_s", "e2e_s", "queue_s", "prefill_s", "decode_s", "kv_transfer_s"), Parse.SECONDS)
    | {"http_status": Parse.COUNT, "rank": Parse.COUNT, "stream": Parse.FLAG, "weight": Parse.RATIO}
    | {"finish_reason": Parse.FINISH, "role": Parse.ROLE}
)

#: Every spelling of a finish reason, in lower case → goodwatch's word. Sources: OpenAI, Anthropic and Gemini APIs,
#: TensorRT-LLM (END_ID, STOP_WORDS, LENGTH, not_finished), vLLM and SGLang (abort).
FINISH_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        word: reason
        for reason, words in {
            "stop": "stop eos end_turn end_id stop_words",
            "length": "length max_tokens",
            "tool": "tool_calls tool_use function_call",
            "filter": "content_filter",
            "abort": "abort cancelled",
            "timeout": "timeout",
            "error": "error",
            "partial": "not_finished",
        }.items()
        for word in words.split()
    }
)

#: The legs of disaggregated serving.
ROLES: Final = ("prefill", "decode", "unified")


@dataclass(frozen=True, slots=True)
class Read:
    """One attribute key that brings a column."""

    key: str
    parse: Parse | None = None  # None: as ``DEFAULT_PARSE`` says, else a text
    unit_s: float = 1.0  # seconds in one unit of the value
    path: tuple[str, ...] = ()  # keys inside a JSON object, most wanted first
    order: int | None = None  # among the keys that several tables share; None: the table's


@dataclass(frozen=True, slots=True)
class Match:
    """What a span must be like; every condition that is given must hold."""

    names: tuple[str, ...] = ()
    name_prefix: str = ""
    scopes: tuple[str, ...] = ()
    scope_prefix: str = ""
    kind: int | None = None
    failed: bool = False  # status ERROR
    has: tuple[str, ...] = ()  # every one of these attributes
    lacks: tuple[str, ...] = ()
    one_of: tuple[str, tuple[str, ...]] | None = None  # an attribute whose text is one of these
    resource_has: str = ""  # a prefix of a resource attribute's key
    resource_lacks: str = ""

    @property
    def needs_attributes(self) -> bool:
        """Whether the span's own attributes decide."""
        return bool(self.has or self.lacks or self.one_of)


@dataclass(frozen=True, slots=True)
class SpanClass:
    """One class of spans: kept as ``kind`` at ``vantage``, or dropped and counted as ``dropped``."""

    match: Match
    kind: PartKind | None = None
    vantage: Vantage = Vantage.ENGINE
    dropped: str = ""
    childless: bool = False  # dropped, and nothing that is kept hangs below it
    duration: str = ""  # the column that takes the span's own duration where no attribute brings it
    fields: Mapping[str, tuple[Read, ...]] = field(default_factory=dict)  # in place of the table's, for these columns
    zero_tokens_unknown: bool = False  # streaming SDKs say 0 for "nobody told me"
    role_in_name: bool = False  # the name begins with the leg ("prefill Req ab12cd34")
    late: bool = False  # tried after the classes of all other tables


@dataclass(frozen=True, slots=True)
class SpanTable:
    """One source of spans."""

    name: str
    docs: str  # where its facts come from
    classes: tuple[SpanClass, ...] = ()
    fields: Mapping[str, tuple[Read, ...]] = field(default_factory=dict)
    order: int = 50  # low ones are tried first; of two keys for one column the lower table's is wanted more
    shares: bool = False  # its keys are also looked for on the spans of tables that ``borrow``
    borrows: bool = False


def keys(*names: str) -> tuple[Read, ...]:
    """Reads of these keys as their column is read by default."""
    return tuple(Read(name) for name in names)
