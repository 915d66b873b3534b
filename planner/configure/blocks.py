"""YAML in block form with a comment beside the lines that have a reason; what is written parses to the value again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import yaml

Path = tuple[str | int, ...]


def dumped(value: object, notes: Mapping[Path, str] | None = None) -> str:
    """A value as YAML.

    Parameters
    ----------
    value
        Mappings, lists, texts, numbers, booleans, ``None``.
    notes
        Path (keys and list places) → comment beside its line.

    Examples
    --------
    >>> print(dumped({"a": {"b": 1}}, {("a", "b"): "why"}), end="")
    a:
      b: 1  # why
    """
    if not _nested(value):
        return f"{_scalar(value)}\n"
    return "".join(f"{line}\n" for line in _lines(value, (), notes or {}, 0))


def _lines(value: object, path: Path, notes: Mapping[Path, str], depth: int) -> Iterator[str]:
    pad = "  " * depth
    if isinstance(value, Mapping):
        for key, one in value.items():
            at = (*path, str(key))
            if _nested(one):
                yield f"{pad}{_scalar(key)}:{_note(at, notes)}"
                yield from _lines(one, at, notes, depth + 1)
            elif isinstance(one, str) and _literal(one):
                yield f"{pad}{_scalar(key)}: |{_note(at, notes)}"
                yield from (f"{pad}  {line}".rstrip() for line in one.rstrip("\n").split("\n"))
            else:
                yield f"{pad}{_scalar(key)}: {_scalar(one)}{_note(at, notes)}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for place, one in enumerate(value):
            at = (*path, place)
            if _nested(one):
                inner = [*_lines(one, at, notes, depth + 1)]
                yield f"{pad}- {inner[0].strip()}"
                yield from inner[1:]
            else:
                yield f"{pad}- {_scalar(one)}{_note(at, notes)}"


def _literal(text: str) -> bool:
    """Whether a text can stand as lines of its own: a file, with nothing that such a block would lose."""
    lines = text.removesuffix("\n").split("\n")
    kept = all(line.isprintable() and line == line.rstrip() for line in lines)
    return text.endswith("\n") and kept and bool(lines[0].strip()) and not lines[0].startswith(" ") and bool(lines[-1])


def remark(text: str) -> str:
    """A text as one comment: no line break or control character ends it early.

    Examples
    --------
    >>> remark("a" + chr(10) + "b")
    'a b'
    """
    return "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))


def _nested(value: object) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str) and len(value) > 0


def _note(path: Path, notes: Mapping[Path, str]) -> str:
    return f"  # {remark(notes[path])}" if path in notes else ""


def _scalar(value: object) -> str:
    """One value on one line, quoted where YAML would read something else."""
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[]"
    if isinstance(value, str) and not value.isprintable():
        return _escaped(value)
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...")


def _escaped(text: str) -> str:
    """A text with control characters, in double quotes; each as YAML's escape of eight digits."""
    words = {'"': r"\"", "\\": r"\\"}
    inner = [words.get(one, one if one.isprintable() else rf"\U{ord(one):08x}") for one in text]
    return '"' + "".join(inner) + '"'
