"""A configuration as text to run: a command, the engine's own file, a Compose file, Kubernetes manifests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from goodwatch.core.errors import ConfigError
from planner.configure.blocks import dumped, remark
from planner.configure.spelling import Line, Role, Spelled, spelled
from planner.configure.values import Configuration

Form = Literal["command", "yaml", "compose", "kubernetes"]
FORMS: Final[tuple[Form, ...]] = ("command", "yaml", "compose", "kubernetes")
_COLUMN: Final = 44


@dataclass(frozen=True, slots=True)
class Server:
    """One kind of server: its role, how many there are, and what it runs."""

    role: Role
    count: int
    spelled: Spelled


def servers(one: Configuration) -> tuple[Server, ...]:
    """The kinds of server of a configuration: one, or prefill and decode. Raises ConfigError where an engine cannot."""
    if one.disaggregated:
        return (
            Server("prefill", one.prefill_replicas or 1, spelled(one, "prefill")),
            Server("decode", one.decode_replicas or 1, spelled(one, "decode")),
        )
    return (Server("", one.replicas or 1, spelled(one)),)


def command(one: Configuration, remarks: Sequence[str] = ()) -> str:
    """A shell script: arguments in an array, a comment beside each.

    Parameters
    ----------
    one
        What to run.
    remarks
        Sentences above it.

    Raises
    ------
    ConfigError
        The engine or its version cannot do what is asked.
    """
    kinds = servers(one)
    parts = []
    for kind in kinds:
        lines = [f"# {remark(text)}" for text in (_title(one, kind), *remarks, *kind.spelled.notes)]
        lines += _file_first(kind.spelled)
        lines += ["args=(", *_array(kind.spelled), ")"]
        lines.append(f'{"exec " if len(kinds) == 1 else ""}{shlex.join(kind.spelled.run)} "${{args[@]}}"')
        parts.append("\n".join(lines) + "\n")
    apart = "# two kinds of server: run each part where its cards are\n" if len(kinds) > 1 else ""
    return f"#!/usr/bin/env bash\n{apart}" + "\n".join(parts)


def own_file(one: Configuration, remarks: Sequence[str] = ()) -> str:
    """The engine's own configuration file. Raises ConfigError where the engine or this version has none."""
    (kind, *more) = servers(one)
    name = kind.spelled.engine
    file = kind.spelled.table.own_file
    if file is None:
        raise ConfigError(
            f"--form yaml: {name} has no configuration file of its own; use command, compose or kubernetes"
        )
    if kind.spelled.version.told and kind.spelled.version.low < file.since:
        since = ".".join(map(str, file.since))
        raise ConfigError(f"--form yaml: {name} has no {file.flag}; it was first read in {since}; use --form command")
    if more:
        raise ConfigError("--form yaml: prefill and decode are two servers; use --form command or kubernetes")
    unable = [
        line.argv[0] for line in kind.spelled.lines if line.argv and file.lacks(line.argv[0], kind.spelled.version)
    ]
    if unable:
        raise ConfigError(f"--form yaml: the file of {name} cannot hold {', '.join(unable)}; use --form command")
    start = f"start: {shlex.join(kind.spelled.run)} {file.flag} {file.name}"
    above = [f"# {remark(text)}\n" for text in (_title(one, kind), start, *remarks, *kind.spelled.notes)]
    return "".join(above) + _file_body(kind.spelled)


def _title(one: Configuration, kind: Server) -> str:
    cards = f"{one.cards} x {one.gpu or 'card'}"
    role = f"{kind.role} " if kind.role else ""
    each = f", {kind.count} {role}replicas" if kind.count > 1 else f", {role}replica" if role else ""
    return f"{one.model} on {kind.spelled.engine}, {cards}{each}"


def _array(found: Spelled) -> Iterator[str]:
    for line in argument_lines(found):
        if line.argv:
            yield f"  {shlex.join(line.argv).ljust(_COLUMN)}  # {remark(line.why)}"


def argument_lines(found: Spelled) -> tuple[Line, ...]:
    """Lines of the command: those whose settings go to the engine's file are replaced by the file."""
    lines = [line for line in found.lines if not line.keys]
    file = found.table.own_file
    if found.keys and file is not None:
        lines.insert(0, Line("", (file.flag, file.name), "the settings above"))
    return tuple(lines)


def _file_first(found: Spelled) -> list[str]:
    file = found.table.own_file
    if not found.keys or file is None:
        return []
    return [f"cat > {file.name} <<'EOF'", *_file_body(found).rstrip("\n").split("\n"), "EOF"]


def _file_body(found: Spelled) -> str:
    """The body of the engine's file: its keys, or its flags by name."""
    value: dict[str, object] = {}
    notes: dict[tuple[str | int, ...], str] = {}
    table = found.table.own_file
    if table is not None and table.holds_all:
        for line in found.lines:
            for key, held in line.keys.items():
                _put(value, key.split("."), held)
                notes[tuple(key.split("."))] = line.why
        return dumped(value, notes)
    for line in found.lines:
        for flag, one in _by_flag(line.argv):
            value[flag] = one
            notes[(flag,)] = line.why
    return dumped(value, notes)


def _by_flag(argv: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Arguments as keys of a file: "--a 1" is a: 1, "--b" is b: true, several values are a list."""
    starts = [at for at, word in enumerate(argv) if word.startswith("--")]
    for start, end in zip(starts, [*starts[1:], len(argv)][: len(starts)], strict=True):
        values = argv[start + 1 : end]
        held: object = True if not values else _number(values[0]) if len(values) == 1 else [*values]
        yield argv[start].removeprefix("--"), held


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if str(value) == text else text
    return text


def _put(held: dict[str, object], path: Sequence[str], value: object) -> None:
    for key in path[:-1]:
        inner = held.setdefault(key, {})
        assert isinstance(inner, dict)
        held = inner
    held[path[-1]] = value


def short_name(model: str) -> str:
    """A name that Kubernetes and Compose take (RFC 1123): "Qwen/Qwen3-32B" is "qwen3-32b".

    Examples
    --------
    >>> short_name("Qwen/Qwen3_32B.gguf")
    'qwen3-32b-gguf'
    """
    bare = re.sub(r"[^a-z0-9]+", "-", model.rstrip("/").rsplit("/", 1)[-1].casefold()).strip("-")
    named = bare[:50].strip("-")
    return named if named[:1].isalpha() else f"model-{named}".strip("-")


def versioned(image: str, one: Configuration, found: Spelled) -> str:
    """The image's name with the version, three parts where two were told."""
    told = (
        one.engine_version.strip().removeprefix("v") if found.version.told else ".".join(map(str, found.table.newest))
    )
    return image.replace("{version}", told + ".0" * max(0, 2 - told.count(".")))


def role_of(one: Configuration, kind: Server) -> Configuration:
    """The configuration of one kind of server alone, its count as replicas."""
    return replace(one, replicas=kind.count, prefill_replicas=None, decode_replicas=None)


def head(one: Configuration, kinds: Sequence[Server], remarks: Sequence[str]) -> str:
    """Comments above a file: what it is, and what must be known."""
    notes = [note for kind in kinds for note in kind.spelled.notes]
    lines = [*(_title(one, kind) for kind in kinds), *remarks, *dict.fromkeys(notes)]
    return "".join(f"# {remark(line)}\n" for line in lines)


def file_in(found: Spelled) -> Mapping[str, str]:
    """Name → text of the engine's file, where settings go to one; else empty."""
    file = found.table.own_file
    return {file.name: _file_body(found)} if found.keys and file is not None else {}
