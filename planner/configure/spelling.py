"""A configuration in an engine's own words: one line a setting, only flags that the named version has, each with its reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from goodwatch.core.errors import ConfigError
from planner.configure.layout import words
from planner.configure.values import Configuration
from planner.flags import NEWEST, Argv, EngineFlags, Extra, Row, exists, flags_of, settings, shown
from planner.version import Version

Role = Literal["", "prefill", "decode"]
Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Line:
    """Arguments of one setting, or its places in the engine's file (dotted key → value), with the reason.

    Both are empty where nothing has to be said; then ``why`` tells why.
    """

    setting: str
    argv: Argv
    why: str
    keys: Mapping[str, Scalar | Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spelled:
    """What to run: the command's words, its lines, and remarks on the whole. ``table`` and ``version`` say by which flags."""

    table: EngineFlags
    version: Version
    run: Argv
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def argv(self) -> Argv:
        """All arguments, in order."""
        return tuple(word for line in self.lines for word in line.argv)

    @property
    def keys(self) -> dict[str, Scalar | Sequence[str]]:
        """Everything that goes to the engine's file."""
        return {key: value for line in self.lines for key, value in line.keys.items()}

    @property
    def engine(self) -> str:
        """Name and version, for a person."""
        return f"{self.table.engine} {self.version.text if self.version.told else shown(self.table.newest)}"


def spelled(one: Configuration, role: Role = "") -> Spelled:
    """A configuration in the words of its engine and version.

    Parameters
    ----------
    one
        What to run.
    role
        "prefill" or "decode": the server of that role, where the two are apart.

    Raises
    ------
    ConfigError
        The version does not have what is asked; the message names setting, flag and version.
    """
    table = flags_of(one.engine)
    version = table.version(one.engine_version)
    told = words(one, table)
    if one.speculative_tokens is not None and one.speculative_method is None and one.draft_model is None:
        raise ConfigError(f"speculative_tokens {one.speculative_tokens}: say how they are drafted (speculative_method)")
    lines = [_line(setting, table, version, told) for setting in told]
    lines += [*_role(table, version, role)]
    lines = _given(_merged(lines), one.extra, table, version)
    given = {flag for flag, _ in one.extra}
    always = [extra for extra in table.always if exists(extra.since, extra.until, version)]
    lines += [_always(extra) for extra in always if not given & {*extra.argv[:1]}]
    silent = [
        f"{line.setting} {_text(told.get(line.setting))}: {line.why}" for line in lines if not (line.argv or line.keys)
    ]
    notes = (*_notes(one, table, version, role), *silent)
    return Spelled(table, version, _run(one, table, version), tuple(lines), notes)


def _name(table: EngineFlags, version: Version) -> str:
    return f"{table.engine} {version.text if version.told else shown(table.newest)}"


def _run(one: Configuration, table: EngineFlags, version: Version) -> Argv:
    file = one.model.casefold().endswith(".gguf")
    for command in table.commands:
        if exists(command.since, NEWEST, version) and (file or not command.gguf):
            return tuple(word.replace("{model}", one.model) for word in command.run)
    raise ConfigError(f"{_name(table, version)}: how it is started is not known; name a newer version")


def _line(setting: str, table: EngineFlags, version: Version, told: Mapping[str, object]) -> Line:
    """The line of one setting, or a refusal."""
    rows, value, name = table.all_of(setting), told[setting], _name(table, version)
    if not rows:
        raise ConfigError(f"{setting}: {table.engine} has no such setting that is known; leave it away")
    there = [row for row in rows if exists(row.since, row.until, version)]
    if not there:
        raise ConfigError(f"{rows[0].of}: {name} has no {rows[0].flag or rows[0].key}{_elsewhere(rows)}")
    fits = [row for row in there if all(_text(told.get(other)) in kinds for other, kinds in row.when.items())]
    if not fits:
        needed = ", ".join(f"{other} {' or '.join(kinds)}" for other, kinds in there[0].when.items())
        raise ConfigError(f"{setting}: {name} takes it with {needed} only")
    refused = []
    for row in fits:
        found = _written(row, value, version)
        if found is not None:
            return found
        refused += [*row.values, *row.argv, *row.implied]
    known = ", ".join(dict.fromkeys(refused)) or f"{fits[0].implied_prefix}…"
    flag = fits[0].flag or fits[0].key or "no flag"
    raise ConfigError(f"{fits[0].of} {_text(value)}: {name} cannot ({flag}); known are {known}")


def _elsewhere(rows: Sequence[Row]) -> str:
    row = rows[0]
    if row.since > (0,):
        return f"; it was first read in {shown(row.since)}"
    return f"; it was last read in {shown(row.until)}"


def _written(row: Row, value: object, version: Version) -> Line | None:
    """The line of a row; None where the value is none of its."""
    text = _text(value)
    why = (row.why or settings()[row.of].why).replace("{value}", text)
    if text in row.implied:
        return Line(row.of, (), row.implied[text])
    if row.implied_prefix and text.startswith(row.implied_prefix):
        return Line(row.of, (), "the model's file is in it")
    if row.kind == "fixed":
        argv = row.argv.get(text)
        if argv is None:
            return None
        return Line(row.of, argv, _switched(why, text) if argv else "the engine's default, no flag is needed")
    if not (row.flag or row.key):
        return None
    if row.values:
        told = row.values.get(text)
        if told is None or not exists(told.since, told.until, version):
            return None
        return _valued(row, told.text, why)
    return _valued(row, value, why)


def _switched(why: str, text: str) -> str:
    return f"off: {why}" if text == "false" else why


def _valued(row: Row, value: object, why: str) -> Line:
    text = _text(value)
    listed = [*value] if isinstance(value, tuple) else [text]
    if row.kind == "joined":
        listed = [",".join(listed)]
    if row.key:
        place: Scalar | Sequence[str] = None if row.kind == "null_if_true" and value is True else _scalar(value)
        if row.kind == "null_if_true" and value is not True:
            return Line(row.of, (), "the default")
        more = {argv[0]: _scalar(value) for argv in row.companions}
        return Line(row.of, (), why, {row.key: place, **more})
    if row.member:
        return Line(row.of, (row.flag, json.dumps({row.member: value})), why)
    more_argv = [
        word.replace("{value}", text).replace("{next}", _next(value)) for argv in row.companions for word in argv
    ]
    return Line(row.of, (row.flag, *listed, *more_argv), why)


def _next(value: object) -> str:
    return str(value + 1) if isinstance(value, int) else ""


def _scalar(value: object) -> Scalar | Sequence[str]:
    if isinstance(value, tuple):
        return [str(one) for one in value]
    return value if isinstance(value, str | int | float | bool) else str(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _merged(lines: Sequence[Line]) -> list[Line]:
    """Members of one JSON flag joined, switches that several settings ask for said once; two values of one flag refused."""
    found: list[Line] = []
    seen: dict[str, int] = {}
    for line in lines:
        for place, argv in _groups(line.argv):
            flag = argv[0]
            if flag not in seen:
                seen[flag] = len(found)
                why = "goes with the line above" if place else line.why
                found.append(replace(line, argv=argv, why=why, keys={} if place else line.keys))
                continue
            at = seen[flag]
            before = found[at]
            if argv[-1].startswith("{") and before.argv[-1].startswith("{"):
                both = json.dumps(json.loads(before.argv[-1]) | json.loads(argv[-1]))
                found[at] = replace(before, argv=(flag, both), why=f"{before.why}; {line.why}")
            elif argv != before.argv:
                raise ConfigError(f"{before.setting} and {line.setting}: both set {flag}; leave one away")
        if not line.argv:
            found.append(line)
    return found


def _groups(argv: Argv) -> Iterator[tuple[int, Argv]]:
    """Arguments by flag: ("--a", "1"), ("--b",)."""
    starts = [at for at, word in enumerate(argv) if _is_flag(word)]
    for place, (start, end) in enumerate(zip(starts, [*starts[1:], len(argv)][: len(starts)], strict=True)):
        yield place, argv[start:end]


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not word.lstrip("-").replace(".", "").isdigit()


_UNKNOWN: Final = "given as it is; not in the tables, so not checked"


def _given(lines: list[Line], extra: Sequence[tuple[str, str]], table: EngineFlags, version: Version) -> list[Line]:
    """Lines with the flags that were given in the engine's own spelling; those of another version refused."""
    now, ever = table.spellings(version), {flag for row in table.rows for flag in (*row.spellings, *_fixed(row))}
    there = {line.argv[0]: line.setting for line in lines if line.argv}
    for told, value in extra:
        flag = table.synonyms.get(told, told)
        if flag in ever and flag not in now:
            rows = [row for row in table.rows if flag in (*row.spellings, *_fixed(row))]
            raise ConfigError(f"{flag}: {_name(table, version)} does not have it{_elsewhere(rows)}")
        if flag in there:
            raise ConfigError(f"{flag}: is set by {there[flag]} already; leave one away")
        why = "given as it is" if flag in now else _UNKNOWN
        lines.append(Line("extra", (flag, value) if value else (flag,), why))
    return lines


def _fixed(row: Row) -> tuple[str, ...]:
    return tuple(argv[0] for argv in row.argv.values() if argv)


def _role(table: EngineFlags, version: Version, role: Role) -> Iterator[Line]:
    if not role:
        return
    roles = table.roles
    if roles is None:
        raise ConfigError(f"prefill and decode apart: not written for {table.engine}; its own guide has the steps")
    if not exists(roles.since, NEWEST, version):
        raise ConfigError(
            f"prefill and decode apart: {_name(table, version)} is too old; it was first read in {shown(roles.since)}"
        )
    for argv in roles.prefill if role == "prefill" else roles.decode:
        yield Line(f"{role}_replicas", argv, settings()[f"{role}_replicas"].why)


def _always(extra: Extra) -> Line:
    value = extra.value if isinstance(extra.value, str | int | float | bool) else None
    return Line("", extra.argv, extra.why, {extra.key: value} if extra.key else {})


def _notes(one: Configuration, table: EngineFlags, version: Version, role: Role) -> Iterator[str]:
    if version.told and version.release[:3] > table.newest:
        yield f"newer than {shown(table.newest)}, the newest whose flags were read: check them with --help"
    if role and table.roles is not None:
        yield table.roles.note
    if one.replicas is not None and one.replicas > 1:
        yield f"{one.replicas} replicas: put a load balancer in front; one that looks at prefixes keeps the cache's hit rate"
