"""What labels must be for something to be about an alert: matchers as in Alertmanager. Pure."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, get_args

Op = Literal["=", "!=", "=~", "!~"]

#: a pattern of an operator runs on the event loop: it must not be able to take for ever
_MOST_PATTERN, _MOST_REPEATS, MOST_MATCHERS = 256, 3, 32
#: what is looked at of a value where a pattern must fit
_MOST_VALUE: Final = 512
_TEXT: Final = re.compile(
    r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*(?:"((?:[^"\\]|\\.)*)"|([^"\s]*))\s*', re.DOTALL
)
#: escapes of a quoted value; any other backslash is the pattern's
_ESCAPE: Final = re.compile(r'\\(["\\n])')
_FORMS: Final = 'write label="value", label!="value", label=~"pattern" or label!~"pattern"'


@dataclass(frozen=True, slots=True)
class Matcher:
    """What a label must be; one that is missing is "". Patterns must fit the whole value."""

    label: str
    op: Op
    value: str

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether labels are as asked."""
        held = labels.get(self.label, "")
        if self.op in ("=", "!="):
            return (held == self.value) == (self.op == "=")
        return (_compiled(self.value).fullmatch(held[:_MOST_VALUE]) is not None) == (self.op == "=~")

    def __str__(self) -> str:
        value = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.label}{self.op}"{value}"'


@lru_cache(1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def matcher_of(text: str) -> Matcher:
    """A matcher from text as in Alertmanager: ``service="chat"``, ``alertname=~"Llm.*"``.

    Raises ``ValueError`` with a predicate ("is not a matcher; …").

    Examples
    --------
    >>> matcher_of('alertname=~"Llm.*"').fits({"alertname": "LlmTargetDown"})
    True
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"is not a matcher; {_FORMS}")
    op: Op = next(one for one in get_args(Op) if one == found[2])
    value = found[4] if found[3] is None else _ESCAPE.sub(lambda one: "\n" if one[1] == "n" else one[1], found[3])
    if op in ("=~", "!~"):
        _check_pattern(value)
    return Matcher(found[1], op, value)


def matchers_of(texts: Sequence[str]) -> tuple[Matcher, ...]:
    """All must fit. Raises ``ValueError`` where one is no matcher, or all of them fit an alert without labels."""
    if len(texts) > MOST_MATCHERS:
        raise ValueError(f"has more than {MOST_MATCHERS} matchers; write fewer, a pattern can name several values")
    found = tuple(matcher_of(text) for text in texts)
    if all(one.fits({}) for one in found):
        raise ValueError('would silence everything; name at least one label that must be there, as service="chat"')
    return found


def _check_pattern(pattern: str) -> None:
    """Refuse what is no pattern and what could run for ever."""
    if len(pattern) > _MOST_PATTERN:
        raise ValueError(f"has a pattern of more than {_MOST_PATTERN} characters; write a shorter one")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # what Python means to read differently one day
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise ValueError(f"has a pattern that cannot be read: {error}; {_FORMS}") from error
    bare = re.sub(r"\[(?:\\.|[^\]\\])+\]", "c", re.sub(r"\\[^1-9]", "c", pattern))
    if "\\" in bare or re.search(r"\(\?(?!:)", bare) or re.search(r"\)[*+{?]", bare):
        raise ValueError("has a pattern that repeats a group, looks around or refers back; write it without")
    if len(re.findall(r"[*+{]", bare)) > _MOST_REPEATS:
        raise ValueError(f"has a pattern with more than {_MOST_REPEATS} repeats; write fewer * and +")
