"""A written file into a validated model, or all its problems at once with their lines."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from goodwatch.app._env import Override, interpolated, overrides, placed
from goodwatch.app._fields import SENTENCE, SIBLING, Context
from goodwatch.app._files import read_text
from goodwatch.app._problems import Fault, Loc, Problem, SettingsError, key_text, short
from goodwatch.app._schema import Schema, keys_at, node_at
from goodwatch.app._yaml import UNREAD, Document, parse

M = TypeVar("M", bound=BaseModel)

_SHAPES: Final = {
    "string_type": "not text; put it in quotes",
    "string_sub_type": "not text; put it in quotes",
    "path_type": "not a path; write it as text",
    "bool_type": "not true or false",
    "bool_parsing": "not true or false",
    "too_short": "empty; write at least one entry",
    "tuple_type": "not a list; write entries below it that start with '- '",
    "list_type": "not a list; write entries below it that start with '- '",
    "dict_type": "not a mapping; write 'key: value' lines below it",
    "model_type": "not a mapping; write 'key: value' lines below it",
    "model_attributes_type": "not a mapping; write 'key: value' lines below it",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """What was written: one file, and settings from the environment that take precedence."""

    path: str
    file: Document
    overrides: Sequence[Override]
    data: Any

    def problem(self, fault: Fault, schema: Schema) -> Problem:
        """A fault with its place and the value that it speaks of."""
        loc = fault.loc
        text = fault.text.replace("{value}", self._value(loc, schema)) if "{value}" in fault.text else fault.text
        override = self._override(loc)
        if override is not None:
            return Problem(override.variable, None, key_text(loc), text)
        line = self.file.line(loc) if fault.line is None else fault.line
        return Problem(self.path, line, key_text(loc), text)

    def _override(self, loc: Loc) -> Override | None:
        return next((o for o in reversed(self.overrides) if loc[: len(o.loc)] == o.loc), None)

    def _value(self, loc: Loc, schema: Schema) -> str:
        """The value for a message; secrets, and what came out of variables, are named and not shown."""
        override = self._override(loc)
        raw = override.document.raw(loc[len(override.loc) :]) if override else self.file.raw(loc)
        node = node_at(schema, loc)
        if node is None or node.get("writeOnly"):
            return "the value"
        if override is None and raw is not None and "${" in raw:
            return f"the value of {short(raw)}"
        value = _at(self.data, loc)
        if isinstance(value, str) and node.get("type") in ("object", "array"):
            return "text"  # a secret, where it should have been one level down
        return "the value" if isinstance(value, str) and "@" in value else short(value)  # a URL can hold a password


def _at(data: Any, loc: Loc) -> Any:
    for part in loc:
        if isinstance(data, dict) and isinstance(part, str):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def read_sources(path: Path, environ: Mapping[str, str] | None, schema: Schema) -> Sources:
    """Read a file, and what ``environ`` adds to it; without ``environ`` the text is taken as it is.

    Raises ``SettingsError`` where nothing can be read. Problems of single values are in ``file.faults``.
    """
    try:
        text = read_text(path)
    except ValueError as error:
        raise SettingsError([Problem(str(path), None, "", str(error))]) from None
    file = parse(text, str if environ is None else lambda value: interpolated(value, environ))
    found, problems = overrides(environ or {}, schema)
    fatal = [Problem(str(path), fault.line, "", fault.text) for fault in file.faults if file.root is None]
    if not fatal and not isinstance(file.value, dict):
        known = ", ".join(keys_at(schema, ()))
        # A text may be a secret that the environment put in.
        held = "a text" if isinstance(file.value, str) else short(file.value)
        what = "the file is empty" if file.root is None else f"the file holds {held} and not a mapping"
        fatal = [Problem(str(path), 1, "", f"{what}; write 'key: value' lines, keys: {known}")]
    data: Any = file.value
    for override in found if not fatal else ():
        try:
            data = placed(data, override.loc, override.document.value)
        except ValueError as error:
            problems.append(Problem(override.variable, None, key_text(override.loc), str(error)))
    if fatal or problems:
        raise SettingsError([*fatal, *problems])
    return Sources(str(path), file, found, data)


def validated(model: type[M], data: object, context: Context) -> tuple[M | None, list[Fault]]:
    """The model, or None and all that is wrong with ``data``. Only keys are read, never Python field names."""
    try:
        return model.model_validate(data, context=context, by_alias=True, by_name=False), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    schema = model.model_json_schema()
    return None, [fault for detail in details if (fault := _fault(detail, schema)) is not None]


def _fault(detail: ErrorDetails, schema: Schema) -> Fault | None:
    kind, context = detail["type"], detail.get("ctx", {})
    loc: Loc = detail["loc"]
    if kind == "default_factory_not_called" or detail["input"] is UNREAD:
        return None  # follows from another problem
    if loc[-1:] == ("[key]",):
        return Fault(loc[:-1], f"{short(loc[-2])} {context.get('error', 'is not a key')}")
    if kind == SIBLING:
        return Fault((*loc[:-1], context["key"]) if context["key"] else loc[:-1], context["text"])
    if kind == SENTENCE:
        return Fault(loc, context["text"])
    if kind == "missing":
        meaning = str((node_at(schema, loc) or {}).get("description", "")).rstrip(".")
        return Fault(loc, f"missing; required: {meaning[:1].lower()}{meaning[1:]}")
    if kind == "extra_forbidden":
        return Fault(loc, _unknown_key(str(loc[-1]), keys_at(schema, loc[:-1])))
    if kind == "value_error":
        text = str(context["error"])
        return Fault(loc, text if "{value}" in text else f"{{value}} {text}")
    if detail["input"] is None:
        return Fault(loc, "empty; give it a value or remove the key")
    if kind == "literal_error":
        return Fault(loc, f"{{value}} is not one of {context['expected']}")
    says = _SHAPES.get(kind)
    return Fault(loc, f"{{value}} is {says}" if says else f"{{value}} does not fit: {detail['msg']}")


def _unknown_key(key: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"unknown key; did you mean '{close[0]}'?" if close else f"unknown key; known: {', '.join(known)}"


def settle(sources: Sources, schema: Schema, faults: Iterable[Fault]) -> None:
    """Raise ``SettingsError`` if anything is wrong with what was read or with what it means."""
    replaced = [override.loc for override in sources.overrides]
    unread = [f for f in sources.file.faults if not any(f.loc[: len(loc)] == loc for loc in replaced)]
    everything = [*unread, *faults]
    if everything:
        raise SettingsError(sources.problem(fault, schema) for fault in everything)
