"""What runs, read back: a command line, an engine's own file, or the facts that a deployment tells, as a ``Configuration``."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Deployment
from planner.configure.layout import fields_of
from planner.configure.values import Configuration
from planner.flags import EngineFlags, Row, flags_of
from planner.version import Version

#: arguments of the server itself: where it listens, what it loads, where it is run
_AROUND: Final = frozenset({"--host", "--port", "--server-name", "--server-port"})
_HEREDOC: Final = re.compile(r"<<-?\s*'?(\w+)'?[^\n]*\n(.*?)\n\1[ \t]*(?:\n|$)", re.DOTALL)
_NOTHING: Final = ("", "none", "null")
_MOST_CHARACTERS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Found:
    """Settings in the engine's terms and what no row knows."""

    words: dict[str, object]
    extra: tuple[tuple[str, str], ...]


def read_command(text: str, engine: str, engine_version: str = "") -> Configuration:
    """The configuration that a command line runs: one line, continued lines, or the script that ``command`` writes.

    Parameters
    ----------
    text
        The command with the server's arguments; comments and here-documents (the engine's file) are understood.
    engine, engine_version
        Whose it is; "" is the newest that is known.

    Raises
    ------
    ConfigError
        Quotes do not close, no model is named, or a value is no number where one must be.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(f"command: longer than {_MOST_CHARACTERS:,} characters; give the command alone")
    table = flags_of(engine)
    version = table.version(engine_version)
    files = [body for _, body in _HEREDOC.findall(text)]
    bare = _HEREDOC.sub("\n", text)
    try:
        argv = [word for word in shlex.split(bare.replace("\\\n", " "), comments=True) if word.strip()]
    except ValueError as error:
        raise ConfigError(f"command: {error}; check its quotes") from error
    told = [table.synonyms.get(word, word) for word in argv if word != "args=("]
    groups = [*_grouped(told)]
    keys = {key: value for body in files for key, value in _flat(_mapping(body))}
    model, rest = _model(argv, groups, table)
    found = _from_argv(rest, table, version)
    words = found.words | _from_keys(keys, table, version)
    return _configuration(table, engine_version, model, words, found.extra)


def read_file(text: str, engine: str, engine_version: str = "", model: str = "") -> Configuration:
    """The configuration in an engine's own file (YAML): vLLM and SGLang by flag names, TensorRT-LLM by its keys.

    Raises
    ------
    ConfigError
        Not YAML, or no model is named in it and none was given.
    """
    table = flags_of(engine)
    version, keys = table.version(engine_version), _mapping(text)
    named = str(keys.get("model") or keys.get("model-path") or model)
    if table.own_file is not None and table.own_file.holds_all:
        return _configuration(table, engine_version, named, _from_keys(dict(_flat(keys)), table, version), ())
    argv = [word for key, value in keys.items() if key not in ("model", "model-path") for word in _as_argv(key, value)]
    found = _from_argv([*_grouped(argv)], table, version)
    return _configuration(table, engine_version, named, found.words, found.extra)


def read_facts(told: Deployment, gpu: str | None = None) -> Configuration:
    """The configuration that a deployment tells of itself; what it does not tell stays ``None``.

    Facts are what its page and its answers hold: labels such as ``gpu_memory_utilization`` of vLLM's
    ``cache_config_info``, or the arguments that SGLang's ``/server_info`` returns.
    """
    table = flags_of(told.engine)
    version = table.version(told.engine_version if re.match(r"v?\d", told.engine_version) else "")
    words: dict[str, object] = {}
    for row in table.in_version(version):
        for name, off in [*((one, False) for one in row.facts), *((one, True) for one in row.facts_off)]:
            text = told.facts.get(name, "").strip()
            if text.casefold() in _NOTHING or row.setting in words:
                continue
            value = _value_of(row, _lowered(text))
            words[row.setting] = (not value) if off and isinstance(value, bool) else value
    fields: dict[str, Any] = fields_of({name: value for name, value in words.items() if value is not None}, table)
    return Configuration(
        engine=told.engine, engine_version=told.engine_version, model=told.model or "unknown", gpu=gpu, **fields
    )


def _lowered(text: str) -> str:
    return text.lower() if text in ("True", "False") else text


def _value_of(row: Row, text: str) -> object:
    """A fact as the neutral value; None where it says nothing that can be used."""
    if row.kind in {"fixed", "bool"}:
        return {"true": True, "1": True, "false": False, "0": False}.get(text)
    try:
        return _parsed(row, [text])
    except ConfigError:
        return None  # a fact in a form of its own, such as "auto": the engine's default


def _configuration(
    table: EngineFlags, version: str, model: str, words: Mapping[str, object], extra: tuple[tuple[str, str], ...]
) -> Configuration:
    if not model:
        raise ConfigError("command: names no model; give the whole command of the server")
    fields: dict[str, Any] = fields_of(words, table)
    return Configuration(engine=table.engine, engine_version=version, model=model, extra=extra, **fields)


def _grouped(argv: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Words by flag: ("--a", "1"), ("--b",); "--a=1" is taken apart; words before the first flag are left out."""
    group: list[str] = []
    for word in argv:
        if _is_flag(word):
            if group:
                yield tuple(group)
            flag, equals, value = word.partition("=")
            group = [flag, value] if equals and flag.startswith("--") else [word]
        elif group:
            group.append(word)
    if group:
        yield tuple(group)


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word)


def _model(
    argv: Sequence[str], groups: Sequence[tuple[str, ...]], table: EngineFlags
) -> tuple[str, list[tuple[str, ...]]]:
    """The model, and the arguments that are left; a command of the table is looked for in the words."""
    flags = {command.run[-2] for command in table.commands if command.run[-2].startswith("-")}
    flags |= {"--model"} if flags else set()
    rest = [group for group in groups if group[0] not in flags and group[0] != "-m"]
    named = [group[1] for group in groups if group[0] in flags and len(group) > 1]
    if named:
        return named[-1], rest
    for command in table.commands:
        start = [*command.run[:-1]]
        for at in range(len(argv) - len(start)):
            words = [argv[at].rsplit("/", 1)[-1], *argv[at + 1 : at + len(start)]]
            if words == start and not argv[at + len(start)].startswith("-"):
                return argv[at + len(start)], rest
    return "", rest


def _from_argv(groups: Sequence[tuple[str, ...]], table: EngineFlags, version: Version) -> _Found:
    rows = [*table.in_version(version)]
    known = _spellings(rows)
    groups = [(known.get(group[0], group[0]), *_cleaned(group[1:])) for group in groups]
    words: dict[str, object] = {}
    left: list[tuple[str, ...]] = []
    around = _around(table)
    for group in groups:
        hit = _fixed(group, rows)
        if hit is not None:
            words[hit[0]] = hit[1]
        elif not _valued(group, rows, groups, words):
            left.append(group)
    implied = _companions(rows, words)
    extra = [group for group in left if group[0] not in implied and group not in around and group[0] not in _AROUND]
    return _Found(words, tuple((group[0], " ".join(group[1:])) for group in extra))


def _cleaned(values: Sequence[str]) -> tuple[str, ...]:
    """Values without what belongs to the shell around them: the end of an array and what comes after it."""
    kept: list[str] = []
    for word in values:
        if word in (")", "exec", "&&", ";", "|", "&"):
            break
        kept.append(word)
    return tuple(kept)


def _spellings(rows: Sequence[Row]) -> dict[str, str]:
    return {other: row.flag for row in rows for other in row.also}


def _around(table: EngineFlags) -> set[tuple[str, ...]]:
    own = {(table.own_file.flag, table.own_file.name)} if table.own_file else set()
    return {extra.argv for extra in table.always if extra.argv} | own


def _fixed(group: tuple[str, ...], rows: Sequence[Row]) -> tuple[str, object] | None:
    """Setting and value of arguments that a row knows as a whole."""
    for row in rows:
        for value, argv in row.argv.items():
            if argv == group:
                return row.setting, {"true": True, "false": False}.get(value, value)
    return None


def _valued(
    group: tuple[str, ...], rows: Sequence[Row], groups: Sequence[tuple[str, ...]], words: dict[str, object]
) -> bool:
    """Put a flag with a value into ``words``; False where no row knows it."""
    flags = {one[0] for one in groups}
    mine = [row for row in rows if row.flag == group[0] and row.kind != "fixed"]
    if not mine or len(group) < 2:
        return False
    if mine[0].member:
        return _members(group[1], mine, words)
    fits = [row for row in mine if _when(row, groups, rows)]
    if not fits:
        return False
    told = [row for row in fits if row.companions and {argv[0] for argv in row.companions} <= flags]
    row = (told or [row for row in fits if not row.companions] or fits)[0]
    words[row.setting] = _parsed(row, group[1:])
    return True


def _when(row: Row, groups: Sequence[tuple[str, ...]], rows: Sequence[Row]) -> bool:
    for other, kinds in row.when.items():
        of = [one for one in rows if one.setting == other and one.flag]
        told = [_parsed(one, group[1:]) for one in of for group in groups if group[0] == one.flag and len(group) > 1]
        if told and told[0] not in kinds:
            return False
    return True


def _members(text: str, rows: Sequence[Row], words: dict[str, object]) -> bool:
    try:
        held = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{rows[0].flag}: is not JSON: {error}") from error
    members = {row.member: row for row in rows}
    if not isinstance(held, dict) or not set(held) <= set(members):
        return False  # kept whole: a part of it would say something else
    for name, value in held.items():
        words[members[name].setting] = value
    return True


def _companions(rows: Sequence[Row], words: Mapping[str, object]) -> set[str]:
    """Flags that only go along with a setting that was read."""
    return {argv[0] for row in rows if row.setting in words for argv in row.companions}


def _parsed(row: Row, told: Sequence[str]) -> object:
    text = told[0]
    if row.kind == "list":
        return tuple(told)
    if row.kind == "joined":
        return tuple(text.split(","))
    for value, word in row.values.items():
        if word.text == text:
            return value
    if row.kind not in ("int", "number"):
        return text
    try:
        return int(text) if row.kind == "int" else float(text)
    except ValueError as error:
        raise ConfigError(f"{row.flag or row.key} {text}: is no number") from error


def _from_keys(keys: Mapping[str, object], table: EngineFlags, version: Version) -> dict[str, object]:
    found: dict[str, object] = {}
    method = keys.get("speculative_config.decoding_type")
    for row in table.in_version(version):
        if not row.key or row.key not in keys:
            continue
        value = keys[row.key]
        if row.when and _method(table, method) not in row.when.get("speculative_method", ()):
            continue
        if row.kind == "null_if_true":
            found[row.setting] = True if value is None else None
        elif isinstance(value, bool):
            found[row.setting] = value
        elif value is not None:
            found[row.setting] = _parsed(row, [str(value)])
    return {name: value for name, value in found.items() if value is not None}


def _method(table: EngineFlags, told: object) -> str:
    for row in table.all_of("speculative_method"):
        for value, word in row.values.items():
            if word.text == told:
                return value
    return ""


def _mapping(text: str) -> Mapping[str, Any]:
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(f"file: longer than {_MOST_CHARACTERS:,} characters; not an engine's configuration")
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"file: is not YAML: {error}") from error
    if not isinstance(found, Mapping):
        raise ConfigError("file: holds no settings (a mapping is wanted)")
    return found


def _flat(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    for key, value in found.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _as_argv(key: str, value: object) -> list[str]:
    flag = f"--{key}"
    if isinstance(value, bool):
        return [flag] if value else [f"--no-{key}"]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [flag, json.dumps(value) if isinstance(value, Mapping) else str(value)]
