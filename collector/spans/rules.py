"""Span tables compiled for one pass over the spans: which class a span is of, and which attribute fills which column.

Spans of one source repeat the same keys in the same order, so what their keys mean is worked out once per sequence of
keys (a ``Layout``) and then only looked up. Sequences come from outside: their number and length are bounded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.spans.content import PERSONS
from collector.spans.limits import SpanLimits
from collector.spans.table import DEFAULT_PARSE, Match, Parse, Read, SpanClass, SpanTable
from collector.spans.values import Reader, reader_of
from goodwatch.core.request import AttributeNames
from goodwatch.signals.request_frames import PARTS

#: position of every column in a row
AT: Final[Mapping[str, int]] = {name: position for position, name in enumerate(PARTS)}
_NAMES: Final = tuple(PARTS)
_ERROR: Final = 2  # Status.StatusCode of OTLP
#: parses whose usual values are read without a call; a whole number for a text is no usual one
_OFTEN: Final = {
    Parse.TEXT: Parse.TEXT, Parse.TEXT_OR_INT: Parse.TEXT, Parse.COUNT: Parse.COUNT, Parse.SECONDS: Parse.SECONDS,
}  # fmt: skip
_ZERO_UNKNOWN: Final = ("input_tokens", "output_tokens")

Choice = tuple[int, Reader]  # position of the attribute, how it is read


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read from spans of one class and layout, as (column, attribute) positions; ``choices`` has all, wanted first.

    The usual types have a list of their own: their usual values need no call of a reader.
    """

    texts: tuple[tuple[int, int], ...]
    counts: tuple[tuple[int, int], ...]
    seconds: tuple[tuple[int, int], ...]
    others: tuple[int, ...]
    choices: Mapping[int, tuple[Choice, ...]]


@dataclass(slots=True)
class Layout:
    """One sequence of attribute keys. Of a key that is there twice the last one counts."""

    index: dict[str, int]  # key → position
    repeated: bool
    nameless: bool  # a key is empty: its name is an index into a dictionary that OTLP traces do not have
    plans: dict[int, Plan] = field(default_factory=dict)  # by Rule.number

    @classmethod
    def of(cls, keys: Sequence[str]) -> "Layout":
        """The layout of these keys."""
        index = {key: position for position, key in enumerate(keys)}
        return cls(index, repeated=len(index) < len(keys), nameless="" in index)


@dataclass(frozen=True)
class Rule:
    """One class of spans of one table, ready to be tried."""

    number: int
    source: str
    span_class: SpanClass
    reads: Mapping[int, tuple[tuple[str, Read, Reader], ...]]  # column → keys, most wanted first

    @cached_property
    def needs_attributes(self) -> bool:
        """Whether the span's own attributes decide."""
        return self.span_class.match.needs_attributes

    @cached_property
    def duration_at(self) -> int | None:
        """The column that takes the span's own duration where nothing else filled it."""
        return AT[self.span_class.duration] if self.span_class.duration else None

    @cached_property
    def noise(self) -> bool:
        """Whether a span is known to be dropped by scope and name, and nothing that is kept hangs below it."""
        return self.drops_all and self.span_class.childless

    @cached_property
    def drops_all(self) -> bool:
        """Whether every span of this scope and name is dropped."""
        return self.sure and self.span_class.kind is None

    @cached_property
    def sure(self) -> bool:
        """Whether the scope and the name alone decide."""
        match = self.span_class.match
        return not (self.needs_attributes or match.kind or match.failed or match.name_prefix)

    def fits(self, span: Span, items: Sequence[KeyValue], index: Mapping[str, int]) -> bool:
        """Whether the span is of this class; its scope, its resource and its exact name were looked at before."""
        match = self.span_class.match
        if match.kind is not None and span.kind != match.kind:
            return False
        if match.failed and span.status.code != _ERROR:
            return False
        if match.name_prefix and not span.name.startswith(match.name_prefix):
            return False
        return not self.needs_attributes or _attributes_fit(match, items, index)

    def plan(self, layout: Layout) -> Plan:
        """What to read from a span of this layout."""
        found = layout.plans.get(self.number)
        if found is None:
            found = layout.plans[self.number] = _plan(self, layout.index)
        return found


def _attributes_fit(match: Match, items: Sequence[KeyValue], index: Mapping[str, int]) -> bool:
    if match.one_of is not None:
        key, words = match.one_of
        position = index.get(key)
        if position is None or items[position].value.string_value not in words:
            return False
    return all(key in index for key in match.has) and not any(key in index for key in match.lacks)


def _plan(rule: Rule, index: Mapping[str, int]) -> Plan:
    choices: dict[int, tuple[Choice, ...]] = {}
    by_parse: dict[Parse, list[tuple[int, int]]] = {parse: [] for parse in _OFTEN.values()}
    others: list[int] = []
    for column, reads in rule.reads.items():
        there = [(index[key], read, reader) for key, read, reader in reads if key in index]
        if not there:
            continue
        choices[column] = tuple((position, reader) for position, _, reader in there)
        position, first, _ = there[0]
        parse = _OFTEN.get(first.parse or DEFAULT_PARSE.get(_NAMES[column], Parse.TEXT))
        if parse is None or first.unit_s != 1.0 or first.key in PERSONS:
            others.append(column)
        else:
            by_parse[parse].append((column, position))
    texts, counts, seconds = (tuple(found) for found in by_parse.values())
    return Plan(texts, counts, seconds, tuple(others), choices)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that spans of one scope can fit: by their exact name, and for all other names."""

    by_name: Mapping[str, tuple[Rule, ...]]
    others: tuple[Rule, ...]


def compiled(tables: Sequence[SpanTable], names: AttributeNames, limits: SpanLimits) -> tuple[Rule, ...]:
    """Every class of every table in the order in which they are tried."""
    ordered = sorted(tables, key=lambda table: (table.order, table.name))
    shared = _shared(ordered)
    classes = [(one, table) for table in ordered for one in table.classes]
    classes.sort(key=lambda pair: pair[0].late)
    return tuple(
        Rule(number, table.name, one, _reads(one, table, shared, names, limits) if one.kind else {})
        for number, (one, table) in enumerate(classes)
    )


def _shared(tables: Sequence[SpanTable]) -> Mapping[str, tuple[Read, ...]]:
    found: dict[str, list[tuple[int, Read]]] = {}
    for table in tables:
        for column, reads in table.fields.items() if table.shares else ():
            order = table.order
            found.setdefault(column, []).extend((order if r.order is None else r.order, r) for r in reads)
    return {column: tuple(r for _, r in sorted(reads, key=lambda one: one[0])) for column, reads in found.items()}


def _reads(
    one: SpanClass, table: SpanTable, shared: Mapping[str, tuple[Read, ...]], names: AttributeNames, limits: SpanLimits
) -> Mapping[int, tuple[tuple[str, Read, Reader], ...]]:
    """Keys per column: the operator's, the class's or the table's own, then what other tables share."""
    operators = {column: [Read(key, Parse.TEXT_OR_INT) for key in getattr(names, column)] for column in OPERATORS}
    operators["weight"] = [Read(key) for key in names.sampling_ratio]
    own = {**table.fields, **one.fields}
    wanted: dict[str, list[Read]] = {}
    for column in PARTS:
        # What a table shares is among the shared ones already, at the place that its order gives it.
        mine = () if table.shares and table.borrows and column not in one.fields else own.get(column, ())
        others = shared.get(column, ()) if table.borrows else ()
        wanted[column] = [*operators.get(column, ()), *mine, *others]
    return {AT[column]: _readers(column, reads, one, limits) for column, reads in wanted.items() if reads}


#: columns whose keys the operator names, each a field of ``AttributeNames``
OPERATORS: Final = ("tenant", "route", "adapter", "form")


def _readers(
    column: str, reads: Sequence[Read], one: SpanClass, limits: SpanLimits
) -> tuple[tuple[str, Read, Reader], ...]:
    zero_unknown = one.zero_tokens_unknown and column in _ZERO_UNKNOWN
    unique = {read.key: read for read in reversed(reads)}
    firsts = [read for read in reads if unique[read.key] is read]
    return tuple((read.key, read, reader_of(column, read, limits, zero_unknown=zero_unknown)) for read in firsts)


def rules_of_scope(rules: Sequence[Rule], scope: str, resource_keys: Sequence[str]) -> Rules:
    """The rules that spans of this scope and resource can fit, in order."""
    fitting = [rule for rule in rules if _scope_fits(rule.span_class.match, scope, resource_keys)]
    named = {name for rule in fitting for name in rule.span_class.match.names}
    by_name = {name: _until_sure([r for r in fitting if _named(r, name)]) for name in named}
    return Rules(by_name, _until_sure([rule for rule in fitting if not rule.span_class.match.names]))


def _named(rule: Rule, name: str) -> bool:
    match = rule.span_class.match
    return (not match.names or name in match.names) and name.startswith(match.name_prefix)


def _until_sure(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules up to the first that always fits."""
    for position, rule in enumerate(rules):
        if rule.sure:
            return tuple(rules[: position + 1])
    return tuple(rules)


def _scope_fits(match: Match, scope: str, resource_keys: Sequence[str]) -> bool:
    def has(prefix: str) -> bool:
        return any(key.startswith(prefix) for key in resource_keys)

    return (
        (not match.scopes or scope in match.scopes)
        and scope.startswith(match.scope_prefix)
        and (not match.resource_has or has(match.resource_has))
        and (not match.resource_lacks or not has(match.resource_lacks))
    )
