"""Reading a JSON schema: which keys there are at a path, what a setting means, the table of all settings."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from goodwatch.app._problems import Loc
from goodwatch.core.duration import duration_text
from goodwatch.core.section import size_text

Schema = Mapping[str, Any]


def node_at(schema: Schema, loc: Loc) -> Schema | None:
    """The part of a schema that describes the value at ``loc``, None where nothing does."""
    node: Schema | None = _plain(schema, schema)
    for part in loc:
        if node is None:
            return None
        below = node.get("items") if isinstance(part, int) else _property(node, part)
        node = _plain(schema, below) if isinstance(below, Mapping) else None
    return node


def keys_at(schema: Schema, loc: Loc) -> tuple[str, ...]:
    """Known keys of the mapping at ``loc``; none where any key may be."""
    node = node_at(schema, loc)
    return tuple(node.get("properties", ())) if node else ()


def _property(node: Schema, key: str) -> Any:
    return node.get("properties", {}).get(key, node.get("additionalProperties"))


def _plain(schema: Schema, node: Schema) -> Schema:
    """A node without indirection: references followed, "or null" taken off; what was said beside it stays."""
    beside = {key: value for key, value in node.items() if key not in ("$ref", "anyOf", "allOf")}
    if "$ref" in node:
        return {**_plain(schema, schema["$defs"][node["$ref"].rsplit("/", 1)[1]]), **beside}
    options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
    return {**_plain(schema, options[0]), **beside} if options else node


class Setting(NamedTuple):
    """One row of the table of settings."""

    key: str
    type: str
    default: str
    meaning: str


def settings(schema: Schema, at: Loc = (), prefix: str = "") -> Iterator[Setting]:
    """Every setting below ``at``, in the order of the schema, sections before what is in them."""
    node = node_at(schema, at) or {}
    for key, raw in node.get("properties", {}).items():
        loc = (*at, key)
        below = node_at(schema, loc) or {}
        name = f"{prefix}{key}"
        default = "required" if key in node.get("required", ()) else _default(raw, below)
        yield Setting(name, _type(schema, loc), default, str(below.get("description", "")))
        if "items" in below:
            loc, name = (*loc, 0), f"{name}[]"
        yield from settings(schema, loc, f"{name}.")


def _type(schema: Schema, loc: Loc) -> str:
    node = node_at(schema, loc) or {}
    if "x-type" in node:
        return str(node["x-type"])
    if "enum" in node:
        return " \\| ".join(str(value) for value in node["enum"])
    if node.get("type") == "array":
        return f"list of {_type(schema, (*loc, 0))}"
    if isinstance(node.get("additionalProperties"), Mapping):
        return f"mapping to {_type(schema, (*loc, ''))}"
    if node.get("writeOnly"):
        return "secret"
    names = {"string": "text", "boolean": "true \\| false", "object": "section"}
    return names.get(str(node.get("type")), str(node.get("type")))


def _default(raw: Schema, node: Schema) -> str:
    if "x-default" in node:
        return str(node["x-default"])
    value = raw.get("default")
    if value in (None, "", [], {}) or node.get("type") == "object":
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if node.get("x-type") == "duration":
        return f"`{duration_text(value)}`"
    return f"`{size_text(value) if node.get('x-type') == 'size' else value}`"
