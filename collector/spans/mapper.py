"""Spans as OTLP brings them become rows of ``PARTS``: one pass, nothing kept between requests but look-ups.

Every span is kept, dropped (recognised or not, and not needed) or refused (no usable id); the three add up to what
came. Of a kept span a field that cannot be true is null and counted as an oddity. What people wrote is not read.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from collector.spans.content import is_content
from collector.spans.limits import SpanLimits
from collector.spans.origin import Sender, sender_of
from collector.spans.rules import AT, OPERATORS, Layout, Plan, Rule, Rules, compiled, rules_of_scope
from collector.spans.table import SpanTable
from collector.spans.tracestate import weight_of
from collector.spans.values import Reader, role_of
from goodwatch.core.errors import ConfigError
from goodwatch.core.request import AttributeNames, Origin
from goodwatch.signals.request_frames import PARTS

_TRACE, _SPAN, _PARENT, _NAME = AT["trace_id"], AT["span_id"], AT["parent_id"], AT["name"]
_STARTED, _ENDED, _STATUS, _ROLE = AT["started_s"], AT["ended_s"], AT["status"], AT["role"]
_WEIGHT, _TOLD = AT["weight"], AT["weight_told"]
_INPUT, _CACHED = AT["input_tokens"], AT["cached_tokens"]
_OUTPUT, _REASONING = AT["output_tokens"], AT["reasoning_tokens"]
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_EMPTY: Final = Layout.of(())
_STATUSES: Final = ("unset", "ok", "error")
_FEW_ROWS: Final = 48  # up to here polars is quicker from rows, above from columns (measured)
_NULLS: Final = {name: pl.Series(name, [None], dtype=dtype) for name, dtype in PARTS.items()}
_ANCESTORS: Final = 64  # how far up a parent is looked for among dropped spans

# Look-ups learnt from what was sent: how many are kept, and how large one may be.
_LAYOUTS, _LAYOUT_KEYS, _LAYOUT_CHARS, _SCOPES, _SCOPE_CHARS = 1024, 96, 4096, 256, 256


@dataclass(frozen=True, slots=True)
class Mapped:
    """Spans of one request as rows: ``spans`` = rows of ``frame`` + all of ``refused`` + all of ``dropped``.

    ``oddities`` counts fields of kept spans that were not used, by reason.
    """

    frame: pl.DataFrame
    spans: int
    refused: Mapping[str, int]
    dropped: Mapping[str, int]
    oddities: Mapping[str, int]


@dataclass(slots=True)
class _Batch:
    received_s: float
    first_ns: int  # instants outside of these are a broken clock's
    last_ns: int
    rows: list[list[Any]] = field(default_factory=list)
    spans: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    passed_over: dict[str, str | None] = field(default_factory=dict)  # trace and span id of a dropped span → its parent


class Mapper:
    """Turns export requests into parts. Not for several threads at once.

    Parameters
    ----------
    tables
        Of ``collector.spans.known``, or fewer.
    origins
        What the configuration says of senders; the first that matches counts.
    names
        The operator's attributes for tenant, route, adapter, form and sampling. ``ConfigError`` when one of them
        holds prompts or answers.
    limits
        What bounds a span.
    """

    def __init__(
        self,
        tables: Iterable[SpanTable],
        origins: Sequence[Origin] = (),
        names: AttributeNames | None = None,
        limits: SpanLimits | None = None,
    ) -> None:
        self._names = names or AttributeNames()
        self._limits = limits or SpanLimits()
        self._origins = tuple(origins)
        _refuse_content(self._names)
        self._all = compiled(tuple(tables), self._names, self._limits)
        matches = [rule.span_class.match for rule in self._all]
        self._prefixes = sorted({p for m in matches for p in (m.resource_has, m.resource_lacks) if p})
        self._rules: dict[tuple[str, tuple[bool, ...]], Rules] = {}
        self._layouts: dict[tuple[str, ...], Layout] = {}

    def parts(self, request: ExportTraceServiceRequest, received_s: float) -> Mapped:
        """Parts of the spans of a request.

        Parameters
        ----------
        request
            As it was sent.
        received_s
            When it came, Unix seconds.

        Returns
        -------
        Mapped
            ``parent_id`` of a part is its nearest ancestor that was not dropped from the same request.
        """
        limits = self._limits
        first_s, last_s = received_s - limits.past_s, received_s + limits.future_s
        batch = _Batch(received_s, int(first_s * 1e9), int(last_s * 1e9))
        for resource_spans in request.resource_spans:
            sender = sender_of(resource_spans.resource, self._origins, self._names, limits)
            for scope_spans in resource_spans.scope_spans:
                self._scope(scope_spans, sender, batch)
        if batch.passed_over:
            _join_over(batch.rows, batch.passed_over)
        return Mapped(_frame(batch.rows), batch.spans, batch.refused, batch.dropped, batch.odd)

    def _scope(self, scope_spans: ScopeSpans, sender: Sender, batch: _Batch) -> None:
        rules = self._rules_of(scope_spans.scope.name, sender)
        by_name, others, dropped = rules.by_name, rules.others, batch.dropped
        batch.spans += len(scope_spans.spans)
        for span in scope_spans.spans:
            candidates = by_name.get(span.name, others)
            if candidates:
                first = candidates[0]
                if first.noise:  # most of what SGLang sends: nothing else of it is looked at
                    dropped[first.span_class.dropped] += 1
                    continue
            self._span(span, candidates, sender, batch)

    def _span(self, span: Span, candidates: tuple[Rule, ...], sender: Sender, batch: _Batch) -> None:
        trace_id, span_id = span.trace_id, span.span_id
        if len(trace_id) != 16 or trace_id == _NO_TRACE:
            batch.refused["bad_trace_id"] += 1
            return
        if len(span_id) != 8 or span_id == _NO_SPAN:
            batch.refused["bad_span_id"] += 1
            return
        items, layout, rule = self._recognised(span, candidates)
        if rule is None or rule.span_class.kind is None:
            batch.dropped[rule.span_class.dropped if rule else "unknown"] += 1
            batch.passed_over[trace_id.hex() + span_id.hex()] = _parent(span)
            return
        row = sender.row(rule, batch.received_s)
        row[_TRACE], row[_SPAN] = trace_id.hex(), span_id.hex()
        row[_PARENT] = _parent(span)
        if len(span.parent_span_id) not in (0, 8):
            batch.odd["bad_parent_id"] += 1
        row[_NAME] = span.name[: self._limits.name_chars]
        lasted_s = _times(row, span, batch)
        self._fill(row, items, rule.plan(layout), span, batch)
        if layout.repeated or layout.nameless or len(span.attributes) > len(items):
            _odd_keys(layout, len(span.attributes) > len(items), batch.odd)
        at = rule.duration_at
        if at is not None and row[at] is None and lasted_s is not None and lasted_s <= self._limits.latency_s:
            row[at] = lasted_s
        if rule.span_class.role_in_name and row[_ROLE] is None:
            row[_ROLE] = role_of(span.name)
        batch.rows.append(row)

    def _recognised(self, span: Span, candidates: tuple[Rule, ...]) -> tuple[list[KeyValue], Layout, Rule | None]:
        """The span's attributes, their layout, and its rule; no attribute is touched where the first rule drops it."""
        if candidates and candidates[0].drops_all:
            return [], _EMPTY, candidates[0]
        items = list(span.attributes)
        if len(items) > self._limits.attributes:
            del items[self._limits.attributes :]
        layout = self._layout(tuple([item.key for item in items]))
        for rule in candidates:
            if rule.fits(span, items, layout.index):
                return items, layout, rule
        return items, layout, None

    def _fill(self, row: list[Any], items: list[KeyValue], plan: Plan, span: Span, batch: _Batch) -> None:
        """Put the attributes into the row: the usual values at once, the others through their readers."""
        limits, unusual = self._limits, list(plan.others)
        chars, tokens, latency_s = limits.text_bytes // 4, limits.tokens, limits.latency_s
        for column, position in plan.texts:
            text = items[position].value.string_value
            if text and len(text) <= chars:
                row[column] = text
            else:
                unusual.append(column)
        for column, position in plan.counts:
            count = items[position].value.int_value
            if 0 < count <= tokens:
                row[column] = count
            else:
                unusual.append(column)
        for column, position in plan.seconds:
            found_s = items[position].value.double_value
            if 0.0 < found_s <= latency_s:
                row[column] = found_s
            else:
                unusual.append(column)
        if unusual:
            start_ns = span.start_time_unix_nano
            for column in unusual:
                _read_unusual(
                    row, column, [(items[at].value, read) for at, read in plan.choices[column]], start_ns, batch.odd
                )
        if span.trace_state:
            _weigh(row, span.trace_state, batch.odd)
        _check_shares(row, batch.odd)

    def _layout(self, keys: tuple[str, ...]) -> Layout:
        layout = self._layouts.get(keys)
        if layout is None:
            layout = Layout.of(keys)
            if len(keys) <= _LAYOUT_KEYS and sum(map(len, keys)) <= _LAYOUT_CHARS:
                if len(self._layouts) >= _LAYOUTS:
                    self._layouts.clear()
                self._layouts[keys] = layout
        return layout

    def _rules_of(self, scope: str, sender: Sender) -> Rules:
        marks = tuple([any(key.startswith(prefix) for key in sender.keys) for prefix in self._prefixes])
        rules = self._rules.get((scope, marks))
        if rules is None:
            rules = rules_of_scope(self._all, scope, sender.keys)
            if len(scope) <= _SCOPE_CHARS:
                if len(self._rules) >= _SCOPES:
                    self._rules.clear()
                self._rules[scope, marks] = rules
        return rules


def _refuse_content(names: AttributeNames) -> None:
    for column in OPERATORS:
        for key in getattr(names, column):
            if is_content(key):
                raise ConfigError(f"attribute names, {column}: {key!r} holds prompts or answers; name another one")


def _parent(span: Span) -> str | None:
    parent = span.parent_span_id
    return parent.hex() if len(parent) == 8 and parent != _NO_SPAN else None


def _times(row: list[Any], span: Span, batch: _Batch) -> float | None:
    """Put start, end and status into the row; returns how long the span lasted, None when nobody can tell."""
    start, end, code = span.start_time_unix_nano, span.end_time_unix_nano, span.status.code
    if 0 <= code <= 2:
        row[_STATUS] = _STATUSES[code]
    else:
        batch.odd["unknown_status"] += 1
    if batch.first_ns <= start <= end <= batch.last_ns:
        row[_STARTED], row[_ENDED] = start / 1e9, end / 1e9
        return (end - start) / 1e9
    if not start or not end:
        batch.odd["no_time"] += 1
    elif end < start:
        batch.odd["end_before_start"] += 1
    if any(at and not batch.first_ns <= at <= batch.last_ns for at in (start, end)):
        batch.odd["far_time"] += 1
    if batch.first_ns <= start <= batch.last_ns:
        row[_STARTED] = start / 1e9
    if start <= end and batch.first_ns <= end <= batch.last_ns:
        row[_ENDED] = end / 1e9
    return (end - start) / 1e9 if 0 < start <= end else None  # a clock may be far off and run evenly


def _read_unusual(
    row: list[Any], column: int, choices: Sequence[tuple[AnyValue, Reader]], start_ns: int, odd: Counter[str]
) -> None:
    """Put the first usable value of a column into the row; what a resource said stays where there is none."""
    for value, reader in choices:
        found = reader(value, odd, start_ns)
        if found is not None:
            row[column] = found
            if column == _WEIGHT:
                row[_TOLD] = True
            return


def _weigh(row: list[Any], tracestate: str, odd: Counter[str]) -> None:
    try:
        weight = weight_of(tracestate)
    except ValueError:
        odd["bad_tracestate"] += 1
        return
    if weight is not None:
        row[_WEIGHT], row[_TOLD] = weight, True


def _check_shares(row: list[Any], odd: Counter[str]) -> None:
    """Cached tokens are among the input, reasoning tokens among the output; a sender that says otherwise counts apart."""
    if row[_CACHED] and row[_INPUT] is not None and row[_CACHED] > row[_INPUT]:
        row[_CACHED] = None
        odd["cached_above_input"] += 1
    if row[_REASONING] and row[_OUTPUT] is not None and row[_REASONING] > row[_OUTPUT]:
        row[_REASONING] = None
        odd["reasoning_above_output"] += 1


def _odd_keys(layout: Layout, too_many: bool, odd: Counter[str]) -> None:
    for reason, there in (
        ("duplicate_key", layout.repeated), ("empty_key", layout.nameless), ("too_many_attributes", too_many),
    ):  # fmt: skip
        if there:
            odd[reason] += 1


def _join_over(rows: list[list[Any]], passed_over: Mapping[str, str | None]) -> None:
    """Give each row the nearest ancestor that was not dropped: the tree must hold where an HTTP library's span was."""
    for row in rows:
        parent = row[_PARENT]
        for _ in range(_ANCESTORS):
            if parent is None or row[_TRACE] + parent not in passed_over:
                break
            parent = passed_over[row[_TRACE] + parent]
        row[_PARENT] = parent


def _frame(rows: list[list[Any]]) -> pl.DataFrame:
    if len(rows) <= _FEW_ROWS:
        return pl.DataFrame(rows, schema=PARTS, orient="row")
    return pl.DataFrame([_series(name, values) for name, values in zip(PARTS, zip(*rows, strict=True), strict=True)])


def _series(name: str, values: tuple[Any, ...]) -> pl.Series:
    """A column; one that nobody told, as most are, is not built value by value."""
    if values[0] is None and values.count(None) == len(values):
        return _NULLS[name].new_from_index(0, len(values))
    return pl.Series(name, values, dtype=PARTS[name])
