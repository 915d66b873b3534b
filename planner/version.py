"""Versions as people write them: "0.6.4", "~0.13", "0.7.x", "0.10/0.11", "0.2x", "v0.28"; parts that are not told stay open."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Release = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """A version with its doubt: ``low <= release <= high``; ``told`` is False where no number was given at all."""

    release: Release
    low: Release
    high: Release
    told: bool = True
    generation: Literal["V0", "V1", ""] = ""  # vLLM's engine generation, where it is named

    @property
    def text(self) -> str:
        """The release with dots."""
        return ".".join(str(part) for part in self.release)


def parsed(text: str, default: Release) -> Version:
    """The version in a text; ``default`` where it holds no number.

    Examples
    --------
    >>> parsed("0.10/0.11 (V1)", (0, 33)).release
    (0, 10)
    >>> parsed("0.2x (V1)", (0, 33)).high
    (0, 29, 99)
    """
    generation: Literal["V0", "V1", ""] = "V1" if "V1" in text else "V0" if "V0" in text else ""
    bare = re.sub(r"\(.*?\)", " ", text)
    tens = re.search(r"(\d+)\.(\d)x", bare)
    if tens:
        major, tenth = int(tens[1]), int(tens[2]) * 10
        return Version((major, tenth + 5), (major, tenth), (major, tenth + 9, 99), True, generation)
    found = [tuple(int(p) for p in one.split(".")) for one in re.findall(r"\d+(?:\.\d+)+", bare)]
    found = [one for one in found if any(one)]
    if not found:
        return Version(default, (0,), (99,), False, generation)
    doubt = "~" in bare or "x" in bare or "+" in bare
    high = (*found[-1][:2], 99) if doubt or len(found[-1]) < 3 else found[-1]
    return Version(found[0], found[0][:2] if doubt else found[0], high, True, generation)
