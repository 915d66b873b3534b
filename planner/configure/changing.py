"""From one configuration to another: what changes, in the engine's own words, what it takes, and whether answers may change."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from goodwatch.core.errors import ConfigError
from planner.configure.spelling import Role, Spelled, spelled
from planner.configure.values import Configuration
from planner.flags import settings


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting that differs.

    ``before``/``after``: neutral values, ``None`` is the engine's default; ``flags_before``/``flags_after``: how the engine
    says it, "" where nothing is said. ``restart``: process, topology or none; ``quality``: answers may change, so measure.
    """

    setting: str
    before: object
    after: object
    flags_before: str
    flags_after: str
    restart: str
    quality: bool
    why: str

    @property
    def text(self) -> str:
        """One line for a person."""
        if self.flags_before or self.flags_after:
            return f"{self.flags_before or 'default'} → {self.flags_after or 'default'}"
        return f"{self.setting} {_shown(self.before)} → {_shown(self.after)}"


_FIELDS: Final = tuple(one.name for one in fields(Configuration))


def diff(before: Configuration, after: Configuration) -> tuple[SettingChange, ...]:
    """What must be changed to come from one configuration to the other, in the order of the fields.

    Raises
    ------
    ConfigError
        Either cannot be said in its engine's version.
    """
    old, new = _flags(before), _flags(after)
    found = []
    for name in _FIELDS:
        was, becomes = getattr(before, name), getattr(after, name)
        said = (old.get(name, ""), new.get(name, ""))
        if was == becomes and said[0] == said[1]:
            continue
        setting = settings()[name]
        value = _shown(becomes)
        found.append(
            SettingChange(
                name, was, becomes, *said, setting.restart, setting.quality,
                setting.why.replace("{value}", value) if becomes not in (None, "", ()) else "back to the engine's default",
            )
        )  # fmt: skip
    return tuple(found)


def with_changes(one: Configuration, changes: Mapping[str, object]) -> tuple[Configuration, tuple[str, ...]]:
    """A configuration with changes by neutral name (``Proposal.changes``), and the names that are no settings of an engine.

    Raises
    ------
    ConfigError
        A value that means nothing.

    Examples
    --------
    >>> found, left = with_changes(Configuration(engine="vllm", model="m"), {"tp": 2, "admitted_ratio": 0.9})
    >>> found.tp, left
    (2, ('admitted_ratio',))
    """
    known: dict[str, Any] = {name: value for name, value in changes.items() if name in _FIELDS}
    left = tuple(name for name in changes if name not in _FIELDS)
    if "speculative_tokens" in known and not known["speculative_tokens"]:
        known |= {"speculative_tokens": None, "speculative_method": None, "draft_model": None}
    if {"tp", "pp", "dp"} & set(known):
        known.setdefault("gpu_count", None)
    if "engine" in known and known["engine"] != one.engine:
        known.setdefault("engine_version", "")
        known.setdefault("memory_fraction", None)  # it means something else in each engine
        known.setdefault("extra", ())
    try:
        return replace(one, **known), left
    except TypeError as error:
        raise ConfigError(f"changes: {error}") from error


def _flags(one: Configuration) -> dict[str, str]:
    """Setting → how the engine says it, of each role."""
    roles: tuple[Role, ...] = ("prefill", "decode") if one.disaggregated else ("",)
    said: dict[str, str] = {}
    for role in roles:
        for setting, text in _said(spelled(one, role)).items():
            if setting not in said:
                said[setting] = text
    return said


def _said(found: Spelled) -> dict[str, str]:
    said: dict[str, list[str]] = {}
    for line in found.lines:
        words = [shlex.join(line.argv)] if line.argv else []
        words += [f"{key}: {'null' if value is None else _shown(value)}" for key, value in line.keys.items()]
        if line.setting and words:
            said.setdefault(line.setting, []).extend(words)
    return {setting: " ".join(words) for setting, words in said.items()}


def _shown(value: object) -> str:
    if value is None or value in ("", ()):
        return "default"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
