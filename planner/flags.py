"""Engines' flags by version: which spelling of a setting exists in the version that is named.

The tables are package data (``planner/flags_by_engine/NAME.yaml``): one row a spelling, with the first and the last
version in which it was read. A flag may be older than its row says, never younger: what is not known to exist is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

import yaml

from goodwatch.core.errors import ConfigError
from planner.version import Release, Version, parsed

Kind = Literal["int", "number", "text", "bool", "list", "joined", "null_if_true", "fixed"]
LayoutStyle = Literal["apart", "inside", "whole", "split", "tensor_only"]
Argv = tuple[str, ...]

OLDEST: Final[Release] = (0,)
NEWEST: Final[Release] = (99_999,)


@dataclass(frozen=True, slots=True)
class Told:
    """The engine's word for a value, and the versions in which it was read."""

    text: str
    since: Release = OLDEST
    until: Release = NEWEST


@dataclass(frozen=True, slots=True)
class Row:
    """One spelling of a setting.

    ``flag`` with its other spellings ``also``; ``member``: key inside the flag's JSON; ``key``: dotted place in the engine's
    own file. ``values``: neutral value → the engine's; empty: taken as it is. ``argv``: value → the whole of the arguments
    (kind "fixed"). ``implied``: values that need no flag, with the reason. ``companions``: arguments that go with it.
    ``when``: other settings that must have one of these values. ``facts``: names under which engines report it.
    """

    setting: str
    kind: Kind
    of: str
    flag: str = ""
    also: tuple[str, ...] = ()
    member: str = ""
    key: str = ""
    since: Release = OLDEST
    until: Release = NEWEST
    values: Mapping[str, Told] = field(default_factory=dict)
    argv: Mapping[str, Argv] = field(default_factory=dict)
    implied: Mapping[str, str] = field(default_factory=dict)
    implied_prefix: str = ""
    companions: tuple[Argv, ...] = ()
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    default: str | None = None
    facts: tuple[str, ...] = ()
    facts_off: tuple[str, ...] = ()
    why: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every spelling of the flag."""
        return (self.flag, *self.also) if self.flag else ()


@dataclass(frozen=True, slots=True)
class Extra:
    """Arguments, or a key of the engine's file, that every server gets; with the reason."""

    argv: Argv
    why: str
    key: str = ""
    value: object = None
    since: Release = OLDEST
    until: Release = NEWEST


@dataclass(frozen=True, slots=True)
class Command:
    """How the server is started from a version on; "{model}" stands for the model. ``gguf``: for a model's file only."""

    run: Argv
    since: Release = OLDEST
    gguf: bool = False


@dataclass(frozen=True, slots=True)
class OwnFile:
    """The engine's own configuration file: its flag, its name, whether all settings go there, and flags that cannot."""

    flag: str
    name: str
    since: Release
    holds_all: bool = False
    without: Mapping[str, tuple[Release, Release]] = field(default_factory=dict)

    def lacks(self, flag: str, version: Version) -> bool:
        """Whether the file cannot hold a flag in some of what the version leaves open."""
        since, until = self.without.get(flag, (NEWEST, OLDEST))
        return since <= version.high and (*version.low, 0, 0)[:3] <= until


@dataclass(frozen=True, slots=True)
class Roles:
    """Prefill and decode apart: arguments of each role, and what stands in front."""

    prefill: tuple[Argv, ...]
    decode: tuple[Argv, ...]
    since: Release
    note: str


@dataclass(frozen=True, slots=True, eq=False)
class EngineFlags:
    """All that is known of one engine's command line.

    ``read_in``: versions whose source was read, ascending. ``entry``: what stands in the image for the command's first word.
    ``check``: what asks the server's health inside the container; empty: Python does.
    ``synonyms``: short spellings of flags that no row has.
    """

    engine: str
    read_in: tuple[Release, ...]
    layout: LayoutStyle
    rows: tuple[Row, ...]
    commands: tuple[Command, ...]
    source: str
    as_of: str
    images: Mapping[str, str] = field(default_factory=dict)
    entry: Argv = ()
    own_file: OwnFile | None = None
    port: int = 8000
    health: str = "/health"
    serving: tuple[Extra, ...] = ()
    always: tuple[Extra, ...] = ()
    roles: Roles | None = None
    check: Argv = ()
    synonyms: Mapping[str, str] = field(default_factory=dict)

    @property
    def newest(self) -> Release:
        """The newest version that was read."""
        return self.read_in[-1]

    def version(self, text: str) -> Version:
        """The version in a text; the newest that was read where it is "".

        Raises
        ------
        ConfigError
            No version, or one older than what was read.
        """
        found = parsed(text, self.newest)
        if text.strip() and not found.told:
            raise ConfigError(f"engine version {text!r}: is not a version; write it as {shown(self.newest)}")
        if found.told and found.high < self.read_in[0]:
            raise ConfigError(
                f"{self.engine} {text}: its flags are known from {shown(self.read_in[0])} on; name a newer version"
            )
        return found

    def all_of(self, setting: str) -> tuple[Row, ...]:
        """Every spelling of a setting, of any version."""
        return tuple(row for row in self.rows if row.setting == setting)

    def in_version(self, version: Version) -> Iterator[Row]:
        """Rows whose flag exists in all that the version leaves open."""
        return (row for row in self.rows if exists(row.since, row.until, version))

    def spellings(self, version: Version) -> frozenset[str]:
        """Every flag of the tables that exists in this version, companions and negations too."""
        return frozenset(flag for row in self.in_version(version) for flag in _flags(row))


def exists(since: Release, until: Release, version: Version) -> bool:
    """Whether something was there in all of ``[low, high]`` of a version; of a patch release the first three parts count."""
    if not version.told:
        return since <= version.release <= until
    low = (*version.low, 0, 0)[:3]
    return since <= low and version.high[:3] <= until


def shown(release: Release) -> str:
    """A release with dots."""
    return ".".join(map(str, release))


def _flags(row: Row) -> Iterator[str]:
    yield from row.spellings
    for argv in (*row.argv.values(), *row.companions):
        if argv and argv[0].startswith("-"):
            yield argv[0]


def flags_of(engine: str) -> EngineFlags:
    """The table of an engine, by its name in ``planner.engines``.

    Raises
    ------
    ConfigError
        No such table.
    """
    found = _tables().get(engine)
    if found is None:
        raise ConfigError(f"--engine {engine}: no flags are known; known are {', '.join(sorted(_tables()))}")
    return found


def engines() -> tuple[str, ...]:
    """Engines whose flags are known, sorted."""
    return tuple(sorted(_tables()))


@dataclass(frozen=True, slots=True)
class Setting:
    """A neutral setting: why it is there, what a change takes (process, topology, none), and whether answers may change."""

    why: str
    restart: str
    quality: bool


@cache
def settings() -> Mapping[str, Setting]:
    """Neutral settings by name."""
    rows = _yaml("_settings.yaml")["settings"]
    return {name: Setting(row["why"], row["restart"], row["quality"]) for name, row in rows.items()}


@cache
def _tables() -> Mapping[str, EngineFlags]:
    folder = files("planner") / "flags_by_engine"
    names = sorted(one.name for one in folder.iterdir() if one.name.endswith(".yaml") and not one.name.startswith("_"))
    raw = {row["engine"]: row for row in map(_yaml, names)}
    return {name: _table(row, raw.get(row.get("flags_of", ""))) for name, row in raw.items()}


def _yaml(name: str) -> Any:
    text = (files("planner") / "flags_by_engine" / name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both loaders are safe


def _table(raw: Mapping[str, Any], parent: Mapping[str, Any] | None) -> EngineFlags:
    own = [_row(one) for one in raw["flags"]]
    replaced = {row.setting for row in own}
    inherited = [_row(one) for one in parent["flags"] if one["setting"] not in replaced] if parent else []
    file, roles = raw.get("file"), raw.get("roles")
    return EngineFlags(
        raw["engine"], tuple(_release(one) for one in raw["read_in"]), raw["layout"], (*own, *inherited),
        tuple(Command(tuple(one["run"]), _release(one["since"]), one.get("gguf", False)) for one in raw["commands"]),
        raw["source"], str(raw["as_of"]), raw.get("images", {}), tuple(raw.get("entry", ())),
        _own_file(file) if file else None,
        raw["port"], raw["health"], tuple(map(_extra, raw.get("serving", ()))), tuple(map(_extra, raw.get("always", ()))),
        Roles(_argvs(roles["prefill"]), _argvs(roles["decode"]), _release(roles["since"]), roles["note"]) if roles else None,
        tuple(raw.get("check", ())), raw.get("synonyms", {}),
    )  # fmt: skip


def _own_file(raw: Mapping[str, Any]) -> OwnFile:
    without = {
        flag: (_release(since), _release(until[0] if until else None, NEWEST))
        for flag, (since, *until) in raw.get("without", {}).items()
    }
    return OwnFile(raw["flag"], raw["name"], _release(raw["since"]), raw.get("all", False), without)


def _row(raw: Mapping[str, Any]) -> Row:
    argv = {str(value).lower(): tuple(one) for value, one in raw.get("argv", {}).items()}
    default = raw.get("default")
    return Row(
        raw["setting"], "fixed" if argv else raw["kind"], raw.get("of", raw["setting"]), raw.get("flag", ""),
        tuple(raw.get("also", ())), raw.get("member", ""), raw.get("key", ""), _release(raw.get("since"), OLDEST),
        _release(raw.get("until"), NEWEST), {name: _told(one) for name, one in raw.get("values", {}).items()}, argv,
        raw.get("implied", {}), raw.get("implied_prefix", ""), _argvs(raw.get("with", ())),
        {name: tuple(values) for name, values in raw.get("when", {}).items()},
        None if default is None else str(default).lower(), tuple(raw.get("facts", ())), tuple(raw.get("facts_off", ())),
        raw.get("why", ""),
    )  # fmt: skip


def _told(raw: Any) -> Told:
    if isinstance(raw, str):
        return Told(raw)
    return Told(raw[0], *(_release(one) for one in raw[1:]))


def _extra(raw: Mapping[str, Any]) -> Extra:
    return Extra(
        tuple(raw.get("argv", ())), raw["why"], raw.get("key", ""), raw.get("value"), _release(raw.get("since"), OLDEST),
        _release(raw.get("until"), NEWEST),
    )  # fmt: skip


def _argvs(raw: Any) -> tuple[Argv, ...]:
    return tuple(tuple(map(str, one)) for one in raw)


def _release(text: str | None, default: Release = OLDEST) -> Release:
    return default if text is None else tuple(int(part) for part in text.split("."))


def mixing_setting(engine: str) -> str:
    """The setting by which pieces of prompts come to share steps with decoding: cutting them, or a switch of its own."""
    try:
        rows = flags_of(engine).rows
    except ConfigError:
        return "chunked_prefill"
    return "mixed_chunk" if any(row.setting == "mixed_chunk" for row in rows) else "chunked_prefill"
