"""What is wrong with a file, in one shape: ``file:line: key.path: what is wrong; what would be right``."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from goodwatch.core.errors import ConfigError

Loc = tuple[int | str, ...]

_PLAIN_KEY: Final = re.compile(r"[\w$-]+")


class Problem(NamedTuple):
    """One thing to mend. ``line`` counts from 1 and is None where there is no file; ``key`` is "" for the whole."""

    path: str
    line: int | None
    key: str
    text: str

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return ": ".join(part for part in (where, self.key, self.text) if part)


class SettingsError(ConfigError):
    """Everything that is wrong, one line each; ``problems`` has the same as values, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        ordered = sorted(problems, key=lambda p: (p.path, p.line or 0))
        self.problems: tuple[Problem, ...] = tuple(dict.fromkeys(ordered))
        super().__init__("\n".join(str(p) for p in self.problems))


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem before its place in the file is known. ``text`` may hold ``{value}``: the value at ``loc``."""

    loc: Loc
    text: str
    line: int | None = None  # known already where a key is written twice


def key_text(loc: Sequence[int | str]) -> str:
    """A path as people write it: ``targets[0].labels."odd key"``."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _PLAIN_KEY.fullmatch(part) and part.isprintable() else short(part)
            text += f".{name}" if text else name
    return text


def short(value: object) -> str:
    """A value for a message: scalars in one short line, the rest as what they are."""
    if value is None:
        return "an empty value"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and abs(value) > 10**60:
        return "a very large number"  # Python refuses to print beyond 4300 digits
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else f"{value}"
    quoted = f"'{text}'" if isinstance(value, str) and value.isprintable() else text
    return quoted if len(quoted) <= 80 else f"{quoted[:77]}…"
