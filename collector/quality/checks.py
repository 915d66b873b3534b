"""Built-in checks of an answer that need no judge: empty, cut short, stuck in a loop, garbled, no JSON where JSON was asked.

Pure. Each looks for one fault that has a plain trace in the text, and is silent when in doubt: that nothing was found says
nothing of whether the answer is right. What has no such trace (well-formed nonsense in one script) is for a judge.
"""

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from collector.quality._scripts import LOOK_ALIKE, Word, letter_count, letters_by_family, words
from goodwatch.core.quality import Finding

#: anything but white space and what is as invisible
_VISIBLE: Final = re.compile(r"[^\s\u200b-\u200f\u2060\ufeff\u00ad]")

#: ends of a sentence, a list, a block or a formula in the scripts that have one; anything else may be a cut
_CLOSED: Final = frozenset(".!?…:;)]}>\"'`*_|~”’»›。！？；：）】」』》〉．｡।॥؟۔։።၊។$#/\\=-—")

#: an answer of fewer letters may be a label or a number that was meant to be short
_CUT_LETTERS: Final = 80

#: how much of the end is looked at for a loop: it costs time in proportion
_LOOP_TAIL: Final = 4000
#: (most letters of one round, fewest rounds, fewest characters in all): a short round must come more often
_LOOPS: Final = ((1, 64, 64), (9, 40, 200), (24, 12, 240), (_LOOP_TAIL, 6, 300))
_ROUND_END: Final = 16
#: characters that people repeat to draw, and the zeros of base64
_DRAWN: Final = frozenset("A-=_*.#~+%&@·•─━═│┃|/\\<>^ \t\n0xXoO…,:;░▒▓█▄▀■□●○★☆")

#: UTF-8 that was read as Latin-1 or Windows-1252, and bytes that a tokenizer shows instead of what they stand for
_MOJIBAKE: Final = re.compile(
    r"[ÃÂ][\u0080-\u00bf]|â€[\u0080-\u00bf™œ“”˜¦¢]|[ÐÑ][\u0080-\u00bf]{1}[ÐÑ]|ï¿½|ã[\u0080-\u00bf]{2}"
)
_RAW_TOKENS: Final = re.compile(r"<0x[0-9A-F]{2}>|(?<=[a-z,.])Ġ(?=[A-Za-z])|(?<=[a-z,.])Ċ(?=[A-Z])|(?<=\w)▁(?=\w)")
_CONTROL: Final = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f\x80-\x84\x86-\x9f]")
#: (one of these must be there, what to count, what it is)
_ODD: Final = (
    (_CONTROL, _CONTROL, "control characters"),
    (re.compile("[ÃÂâÐÑïã]"), _MOJIBAKE, "text in a wrong encoding"),
    (re.compile("[ĠĊ▁]|<0x"), _RAW_TOKENS, "tokens that were not turned into text"),
)
_REPLACED: Final = re.compile("\ufffd+")
_ODD_FEWEST: Final = 5

#: words of different scripts side by side, with nothing but white space between: fewest, and their share of all words
_SALAD_FEWEST: Final = 12
_SALAD_RATIO: Final = 0.15
_NEAR: Final = 60
_APART: Final = re.compile(r"[\n,;:/|•()\[\]{}\"“”„«»'‘’、，。；：（）《》–—=→·…<>-]")

#: letters below which nothing is said of an answer's script
_SCRIPT_LETTERS: Final = 60
_ASKED_LETTERS: Final = 20
#: a prompt that names a language or asks for a translation wants another script
_OTHER_LANGUAGE: Final = re.compile(
    r"translat|transliterat|language|romaji|pinyin|chinese|mandarin|cantonese|japanese|korean|arabic|hebrew|russian|"
    r"ukrainian|bulgarian|serbian|greek|hindi|bengali|tamil|telugu|thai|urdu|persian|farsi|georgian|armenian|english|"
    r"french|german|spanish|italian|portuguese|turkish|vietnamese|multilingual|"
    r"übersetz|sprache|tradu|idioma|langue|翻译|翻訳|譯|英文|英語|英语|中文|日本語|日语|汉语|перев|язык|번역|영어|ترجم|अनुवाद",
    re.IGNORECASE,
)

_FENCE: Final = re.compile(r"^[ \t]{0,3}(`{3,})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of the request beside its answer. ``prompt`` None: not known. ``finish_reason`` as in ``PARTS``."""

    prompt: str | None = None
    json: bool = False
    finish_reason: str | None = None
    #: whether the text was cut on its way here (a limit of attributes), so that its end says nothing
    clipped: bool = False


def findings(text: str, asked: Asked = Asked()) -> tuple[Finding, ...]:
    """What is wrong with an answer; nothing for most.

    An empty answer that called a tool or was filtered is as it should be.
    """
    if empty := _empty(text, asked):
        return (empty,)
    found = (
        _truncated(text, asked),
        repetition(text),
        garbled(text),
        wrong_script(text, asked),
        invalid_json(text, asked),
    )
    return tuple(one for one in found if one is not None)


def _empty(text: str, asked: Asked) -> Finding | None:
    if _VISIBLE.search(text) or asked.finish_reason in ("tool", "filter", "abort", "timeout", "error", "partial"):
        return None
    return Finding("empty", 0, len(text), "no visible character")


def _truncated(text: str, asked: Asked) -> Finding | None:
    """Cut at the token limit in the middle of a sentence, or a code block that never ends."""
    body = text.rstrip()
    if asked.clipped or not body:
        return None
    at_limit = asked.finish_reason == "length"
    letters = sum(char.isalpha() for char in body[-2 * _CUT_LETTERS :])
    if at_limit and letters >= _CUT_LETTERS and body[-1] not in _CLOSED:
        return Finding("truncated", len(body) - 1, len(body), "stopped at the token limit in mid-sentence")
    opened = _open_fence(body)
    if opened is not None and (at_limit or asked.finish_reason in (None, "stop")):
        return Finding("truncated", opened, len(body), "a code block is opened and never closed")
    return None


def _open_fence(text: str) -> int | None:
    """Where a fenced code block begins that does not end; a fence closes one not longer than itself.

    Fences of tildes are left out: rows of tildes underline headings.
    """
    opened: tuple[str, int] | None = None
    for match in _FENCE.finditer(text):
        mark = match[1]
        if opened is None:
            opened = (mark, match.start())
        elif len(mark) >= len(opened[0]):
            rest = text[match.end() : (text.find("\n", match.end()) + 1 or len(text) + 1) - 1]
            if not rest.strip():  # with words behind it, it opens one
                opened = None
    if opened is None or opened[1] + len(opened[0]) >= len(text):
        return None
    return opened[1]


def repetition(text: str) -> Finding | None:
    """The same words over and over to the very end.

    Not a list, a poem or a table: a round must come back letter by letter without a break, many times, up to the end.
    Rulers and leaders (-----, .....) are no loop, and nor are rounds without letters, such as zeros of a table.
    """
    body = text.rstrip()
    tail = body[-_LOOP_TAIL:]
    # The last letters of a loop stand in it more than once; looking for them costs next to nothing.
    if len(tail) < _LOOPS[0][2] or tail.rfind(tail[-_ROUND_END:], 0, len(tail) - 1) < 0:
        return None
    for length, period in _periods(tail):
        if _is_loop(tail[-period:], length, period):
            return Finding(
                "repetition", len(body) - length, len(body), f"the last {period} characters {length // period} times"
            )
    return None


def _periods(tail: str) -> list[tuple[int, int]]:
    """(length, period) of ends of ``tail`` that repeat themselves, the longest of each period, long ones first.

    The prefix function of the reversed text (Knuth, Morris and Pratt 1977): its end of length n has the smallest period
    n - border(n).
    """
    turned = tail[::-1]
    border = [0] * len(turned)
    longest: dict[int, int] = {}
    at = 0
    for n in range(1, len(turned)):
        while at and turned[n] != turned[at]:
            at = border[at - 1]
        at += turned[n] == turned[at]
        border[n] = at
        period = n + 1 - at
        if at >= 5 * period:
            longest[period] = n + 1
    return sorted(((length, period) for period, length in longest.items()), reverse=True)


def _is_loop(one: str, length: int, period: int) -> bool:
    letters = [char for char in one if char.isalpha()]
    if period == 1:
        return one not in _DRAWN and length >= _LOOPS[0][2]
    if not letters or set(one) <= _DRAWN:
        return False
    if len(letters) < 0.3 * period and period > 2:  # cells of a table, hexadecimal, rulers with a word in them
        return False
    rounds, least = next((r, c) for most, r, c in _LOOPS[1:] if len(letters) <= most)
    return length >= rounds * period and length >= least


def garbled(text: str) -> Finding | None:
    """Characters that no one writes, raw tokens, or words of many scripts thrown together."""
    for sign, pattern, what in _ODD:
        if sign.search(text) is None:
            continue
        hits = [match.span() for match in pattern.finditer(text)]
        if len(hits) >= _ODD_FEWEST and len(hits) * 200 >= min(len(text), 4000):
            return Finding("garbled", hits[0][0], hits[-1][1], f"{len(hits)} times {what}")
    replaced = [match.span() for match in _REPLACED.finditer(text)]
    count = sum(end - start for start, end in replaced)
    if count >= _ODD_FEWEST and count * 100 >= len(text):
        return Finding("garbled", replaced[0][0], replaced[-1][1], f"{count} characters that could not be decoded")
    return _salad(text) if not text.isascii() else None


def _salad(text: str) -> Finding | None:
    """Words of different scripts in one breath; a list of languages has marks between its words."""
    others = list(words(text, others=True))
    if not others:
        return None
    clashes = [(a.start, b.end) for a, b in pairwise(others) if a.family != b.family and _together(text, a, b)]
    clashes += [match.span() for match in LOOK_ALIKE.finditer(text)]
    if len(clashes) < _SALAD_FEWEST or len(clashes) < _SALAD_RATIO * sum(1 for _ in words(text)):
        return None
    start, end = min(clashes)[0], max(end for _, end in clashes)
    return Finding("garbled", start, end, f"{len(clashes)} times words of different scripts mixed")


def _together(text: str, one: Word, other: Word) -> bool:
    """Whether two words stand in one stretch of text without a mark of a list between them."""
    return other.start - one.end <= _NEAR and _APART.search(text, one.end, other.start) is None


def wrong_script(text: str, asked: Asked) -> Finding | None:
    """An answer in a script that the prompt does not have at all and did not ask for."""
    if asked.prompt is None or text.isascii():
        return None
    ours = letters_by_family(text, others=True)  # Code and formulas are Latin and Greek whatever was asked in.
    if sum(ours.values()) < 0.7 * _SCRIPT_LETTERS:
        return None
    family, count = max(ours.items(), key=lambda item: item[1])
    letters = letter_count(text)
    if letters < _SCRIPT_LETTERS or count < 0.7 * letters:
        return None
    theirs = letters_by_family(asked.prompt)
    if sum(theirs.values()) < _ASKED_LETTERS or family in theirs or _OTHER_LANGUAGE.search(asked.prompt) is not None:
        return None
    first = next(word for word in words(text) if word.family == family)
    return Finding(
        "wrong_script", first.start, len(text.rstrip()), f"the answer is in {family}, the prompt has none of it"
    )


def invalid_json(text: str, asked: Asked) -> Finding | None:
    """No JSON value where the request asked for one. NaN and Infinity are no JSON (RFC 8259)."""
    if not asked.json or asked.clipped:
        return None
    body = text.strip()
    if body.startswith("```"):
        return Finding("invalid_json", 0, len(text), "the JSON is wrapped in a code block")
    try:
        json.loads(body, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        at = text.find(body) + error.pos
        return Finding("invalid_json", min(at, len(text) - 1), len(text), f"no JSON: {error.msg}")
    except RecursionError:
        return Finding("invalid_json", 0, len(text), "nested too deeply to be read")
    except ValueError:  # a number of too many digits, or one of the constants
        return Finding("invalid_json", 0, len(text), "a number that JSON does not have")
    return None


def _no_constant(name: str) -> Any:
    raise ValueError(name)
