"""Which script a letter belongs to, as far as it tells mixed text from a mess. Pure.

Scripts that are written together are one family: Japanese mixes three, and Korean and Chinese share Han. Blocks are
those of the Unicode Standard 15; letters of blocks that are not here belong to no family and say nothing.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

#: family → ranges of its blocks
_BLOCKS: Final = {
    "latin": "A-Za-zªºÀ-ÖØ-öø-ʯḀ-ỿⱠ-ⱿＡ-Ｚａ-ｚ",
    "greek": "Ͱ-Ͽἀ-῿",
    "cyrillic": "Ѐ-ԯ",
    "armenian": "\u0531-\u0587",
    "hebrew": "\u05d0-\u05ea",
    "arabic": "\u0620-\u064a\u066e-\u06d3\u06fa-\u06ff\u0750-\u077f\ufb50-\ufdfb\ufe70-\ufefc",
    "devanagari": "\u0900-\u0963\u0970-\u097f",
    "bengali": "\u0980-\u09e3\u09f0\u09f1",
    "gurmukhi": "\u0a00-\u0a65\u0a70-\u0a75",
    "gujarati": "\u0a80-\u0ae3",
    "tamil": "\u0b80-\u0be5",
    "telugu": "\u0c00-\u0c65",
    "kannada": "\u0c80-\u0ce5",
    "malayalam": "\u0d00-\u0d65",
    "sinhala": "\u0d80-\u0ddf",
    "thai": "\u0e00-\u0e4e",
    "lao": "\u0e80-\u0ece",
    "tibetan": "\u0f40-\u0fbc",
    "burmese": "\u1000-\u103f",
    "georgian": "\u10a0-\u10ff\u1c90-\u1cbf",
    "ethiopic": "\u1200-\u135a",
    "khmer": "\u1780-\u17d3",
    "cjk": "\u1100-\u11ff\u3005\u3041-\u309f\u30a0-\u30ff\u3100-\u312f\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7fb\uf900-\ufaff\U00020000-\U0003134f",
}
#: scripts that stand beside every other one: names, code, units, formulas
EVERYWHERE: Final = ("latin", "greek")


def _run(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile(f"[{''.join(_BLOCKS[name] for name in names)}]+")


#: runs of letters first, then their parts: one set of characters is looked up many times as fast as twenty
_ANY: Final = _run(_BLOCKS)
_OTHERS: Final = _run(name for name in _BLOCKS if name not in EVERYWHERE)
_WORD: Final = re.compile("|".join(f"(?P<{name}>[{ranges}]+)" for name, ranges in _BLOCKS.items()))
#: a Cyrillic letter where a Latin one looks the same, or the other way round: where the two meet in a word
LOOK_ALIKE: Final = re.compile("(?<=[{latin}])[{cyrillic}]|(?<=[{cyrillic}])[{latin}]".format(**_BLOCKS))


class Word(NamedTuple):
    """A run of letters of one family."""

    family: str
    start: int
    end: int


def words(text: str, *, others: bool = False) -> Iterator[Word]:
    """Runs of letters of one family, in order; with ``others`` only those of scripts that are not ``EVERYWHERE``."""
    for run in (_OTHERS if others else _ANY).finditer(text):
        for match in _WORD.finditer(text, run.start(), run.end()):
            yield Word(str(match.lastgroup), match.start(), match.end())


def letters_by_family(text: str, *, others: bool = False) -> dict[str, int]:
    """Letters by family; with ``others`` only those of scripts that are not ``EVERYWHERE``."""
    counts: dict[str, int] = {}
    for word in words(text, others=others):
        counts[word.family] = counts.get(word.family, 0) + word.end - word.start
    return counts


def letter_count(text: str) -> int:
    """Letters of any family."""
    return sum(match.end() - match.start() for match in _ANY.finditer(text))
