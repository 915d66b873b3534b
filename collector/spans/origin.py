"""What the resource of a batch of spans says: who sent it, and what the configuration says of that sender. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from collector.spans.content import PERSONS, digest
from collector.spans.limits import SpanLimits
from collector.spans.rules import AT, OPERATORS, Rule
from goodwatch.core.request import AttributeNames, Origin

_INSTANCE: Final = ("service.instance.id", "vllm.process_id")  # the first is a new one at each start
_UNNAMED: Final = "unknown_service"  # what SDKs send when nobody named the service


@dataclass(slots=True)
class Sender:
    """A resource, resolved: its columns of every row, and one row to start from per rule."""

    columns: Mapping[str, Any]
    keys: tuple[str, ...]
    rows: dict[int, list[Any]] = field(default_factory=dict)  # by Rule.number

    def row(self, rule: Rule, received_s: float) -> list[Any]:
        """A fresh row of ``PARTS`` for a span of this rule."""
        row = self.rows.get(rule.number)
        if row is None:
            row = [None] * len(AT)
            for column, value in self.columns.items():
                row[AT[column]] = value
            one = rule.span_class
            row[AT["received_s"]] = received_s
            row[AT["kind"]] = str(one.kind)
            row[AT["vantage"]] = str(one.vantage)
            row[AT["source"]] = rule.source
            self.rows[rule.number] = row
        return row.copy()


def sender_of(resource: Resource, origins: Sequence[Origin], names: AttributeNames, limits: SpanLimits) -> Sender:
    """The sender that a resource describes; of several origins that match the first counts.

    A text or whole number of the resource stands for tenant, route, adapter and form where the span has none.
    """
    told = _told(resource, limits)
    origin = next((o for o in origins if all(told.get(key) == value for key, value in o.match)), Origin())
    name = told.get("service.name")
    told_ratio = _ratio(resource, names)
    ratio = told_ratio or origin.sampling_ratio
    columns: dict[str, Any] = {
        "origin": name,
        "instance": next((told[key] for key in _INSTANCE if key in told), None),
        "service": origin.service or (None if name and name.startswith(_UNNAMED) else name),
        "target": origin.target,
        "model": origin.model,
        "weight": 1 / ratio if ratio else None,
        "weight_told": told_ratio is not None,
    }
    for column in OPERATORS:
        columns[column] = next((_named(told, key) for key in getattr(names, column) if key in told), None)
    return Sender(columns, tuple(told))


def _named(told: Mapping[str, str], key: str) -> str:
    return digest(told[key]) if key in PERSONS else told[key]


def _told(resource: Resource, limits: SpanLimits) -> dict[str, str]:
    """Texts and whole numbers of the resource; too long ones are left out."""
    told: dict[str, str] = {}
    for item in resource.attributes[: limits.attributes]:
        kind = item.value.WhichOneof("value")
        if kind == "string_value" and 0 < len(item.value.string_value) <= limits.text_bytes:
            told[item.key] = item.value.string_value
        elif kind == "int_value":
            told[item.key] = str(item.value.int_value)
        else:
            told.pop(item.key, None)  # the last of a repeated key counts
    return told


def _ratio(resource: Resource, names: AttributeNames) -> float | None:
    """A sampling probability in (0, 1] that the resource tells."""
    for key in names.sampling_ratio:
        for item in resource.attributes:
            if item.key == key and 0 < item.value.double_value <= 1:
                return float(item.value.double_value)
            if item.key == key and item.value.int_value == 1:
                return 1.0
    return None
