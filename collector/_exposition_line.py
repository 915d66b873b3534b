"""One line of an exposition: where its series text ends, what its labels are, what its number is.

Grammar: Prometheus text 0.0.4 and OpenMetrics 1.0, read leniently where both may be read alike, with the quoted
UTF-8 names of Prometheus 3 (``{"my.metric", "a.b"="c"} 1``).
"""

import re
import sys
from dataclasses import dataclass
from typing import Final, NamedTuple

_QUOTED: Final = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'  # possessive: an unclosed quote costs one pass, not a power of it
_SPACE: Final = r"[ \t]*+"
_NAME: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*+)?(?=[ \t{]|$)" + _SPACE)
_OPEN: Final = re.compile(r"\{" + _SPACE)
_LABEL: Final = re.compile(
    rf"(?:([a-zA-Z_][a-zA-Z0-9_]*+)|{_QUOTED}){_SPACE}(?:={_SPACE}{_QUOTED}{_SPACE})?(?:,{_SPACE}(?=(\}}))?|(?=(\}})))"
)
_ESCAPE: Final = re.compile(r'\\([\\n"])')
_COMMENT: Final = re.compile(rf"#[ \t]++(HELP|TYPE)[ \t]++(?:{_QUOTED}|([a-zA-Z_:][a-zA-Z0-9_:]*+))(?:[ \t]++(.*))?")
_DECLARES: Final = re.compile(r"#[ \t]+(HELP|TYPE)[ \t]")
_SHOWN: Final = 60  # characters of a bad line that its problem repeats

#: metric types of text 0.0.4 and OpenMetrics 1.0 together.
TYPES: Final = frozenset(
    {"counter", "gauge", "histogram", "summary", "untyped", "unknown", "info", "stateset", "gaugehistogram"}
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one body may hold; beyond the first two the body is refused, beyond the others the line is."""

    body_bytes: int = 50_000_000
    samples: int = 200_000  # lines that are, or should have been, samples; families declared, likewise
    labels: int = 64  # on one line
    label_name_bytes: int = 512
    label_value_bytes: int = 4096  # and of a metric's name, which is the value of the label __name__
    line_bytes: int = 1_000_000


class BadLineError(Exception):
    """One line that cannot be read. ``reason`` is the stable word, the message is for a person."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Comment(NamedTuple):
    """A HELP or TYPE line: which of them, the family, and what it says (escapes still in)."""

    kind: str
    family: str
    says: str


def shown(text: str) -> str:
    """The start of a text, quoted and with its control characters made visible."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def byte_length(text: str) -> int:
    """Length in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def number(text: str) -> float | None:
    """A sample's value or timestamp; ``None`` when it is no number. Python's ``1_000`` and ``١`` are none."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def unescaped(text: str) -> str:
    r"""A label value or quoted name with ``\\``, ``\n`` and ``\"`` resolved; other escapes stay as written."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


def scan_series(line: str, limits: Limits) -> tuple[str, dict[str, str], int]:
    """Name, labels and the end of the text that spells them.

    Raises ``BadLineError`` (bad_name, bad_labels, too_long, too_many_labels).
    """
    start = _NAME.match(line)
    if start is None:
        raise BadLineError(
            "bad_name", f"{shown(line)} does not start with a metric name; expected NAME{{LABELS}} VALUE"
        )
    name, end = start[1], start.end(1)
    labels: dict[str, str] = {}
    if line.startswith("{", start.end()):
        quoted, labels, end = _scan_labels(line, start.end(), limits)
        if quoted is not None and name is not None:
            raise BadLineError("bad_name", f"{shown(line)} names its metric twice; expected one name")
        name = quoted if name is None else name
    if not name:
        raise BadLineError("bad_name", f"{shown(line)} has no metric name; expected NAME{{LABELS}} VALUE")
    if byte_length(name) > limits.label_value_bytes:
        raise BadLineError("too_long", f"metric name {shown(name)} is over {limits.label_value_bytes} bytes")
    return sys.intern(name), labels, end


def _scan_labels(line: str, start: int, limits: Limits) -> tuple[str | None, dict[str, str], int]:
    """The quoted metric name among the labels if there is one, the labels, and the end behind the brace."""
    opened = _OPEN.match(line, start)
    position = start if opened is None else opened.end()
    labels: dict[str, str] = {}
    name: str | None = None
    closed = line.startswith("}", position)
    while not closed:
        term = _LABEL.match(line, position)
        if term is None:
            raise BadLineError(
                "bad_labels", f'labels cannot be read at {shown(line[position:])}; expected name="value"'
            )
        bare, quoted, value, closed_after_comma, closed_at_once = term.groups()
        position, closed = term.end(), bool(closed_after_comma or closed_at_once)
        if value is not None:
            _add_label(labels, bare if quoted is None else unescaped(quoted), unescaped(value), limits)
        elif quoted is not None and name is None:
            name = unescaped(quoted)
        else:
            raise BadLineError("bad_labels", f'{shown(term[0])} has no value; expected name="value"')
    return name, labels, position + 1


def _add_label(labels: dict[str, str], label: str, value: str, limits: Limits) -> None:
    if not label or label == "__name__" or label in labels:
        raise BadLineError(
            "bad_labels", f"label {shown(label)} is empty, reserved or given twice; expected distinct names"
        )
    if byte_length(label) > limits.label_name_bytes:
        raise BadLineError("too_long", f"label name {shown(label)} is over {limits.label_name_bytes} bytes")
    if byte_length(value) > limits.label_value_bytes:
        raise BadLineError("too_long", f"value of label {shown(label)} is over {limits.label_value_bytes} bytes")
    if len(labels) >= limits.labels:
        raise BadLineError("too_many_labels", f"over {limits.labels} labels on one line")
    labels[sys.intern(label)] = value


def scan_value(rest: str) -> float:
    """The value behind a series. A timestamp is checked and dropped; an exemplar is dropped unread.

    Raises ``BadLineError`` (bad_value, bad_timestamp, bad_exemplar).
    """
    numbers, mark, exemplar = rest.partition("#")
    if mark and not exemplar.lstrip().startswith("{"):
        raise BadLineError(
            "bad_exemplar", f"{shown(mark + exemplar)} follows the value; expected an exemplar # {{…}} VALUE"
        )
    words = numbers.split()
    value = number(words[0]) if words else None
    if value is None or len(words) > 2:
        raise BadLineError(
            "bad_value", f"value {shown(numbers.strip())} is no number; expected a float, NaN, +Inf or -Inf"
        )
    if len(words) == 2 and number(words[1]) is None:
        raise BadLineError("bad_timestamp", f"timestamp {shown(words[1])} is no number")
    return value


def scan_comment(line: str) -> Comment | None:
    """A HELP or TYPE line; ``None`` for every other comment.

    Raises ``BadLineError`` (bad_help, bad_type) when it starts like one and does not go on like one.
    """
    declares = _DECLARES.match(line)
    if declares is None:
        return None
    whole = _COMMENT.fullmatch(line)
    if whole is None:
        raise BadLineError(
            f"bad_{declares[1].lower()}", f"{shown(line)} names no metric; expected # {declares[1]} NAME …"
        )
    family = whole[3] if whole[2] is None else unescaped(whole[2])
    says = whole[4] or ""
    if declares[1] == "TYPE" and says not in TYPES:
        raise BadLineError(
            "bad_type", f"type {shown(says)} of {shown(family)} is unknown; known: {', '.join(sorted(TYPES))}"
        )
    return Comment(declares[1], sys.intern(family), says)
