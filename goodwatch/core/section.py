"""What a part of the configuration is made of: a frozen model whose keys are checked, and the types of its values.

A field carries its unit in its name (``interval_s``, ``body_limit_bytes``); its key in the file does not
(``interval``, ``body_limit``), because there the value carries it: ``15s``, ``50MB``.

Validators raise ``ValueError`` with a predicate ("is not a duration; write …") that is printed after the value, or a
sentence with ``{value}`` in it. The value itself is never put in: it may be a secret.
"""

import math
import re
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema

from goodwatch.core.duration import duration_s, duration_text

_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_SIZE_UNITS: Final = {
    "": 1,
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
    "TIB": 1024**4,
}


def key_of(field_name: str) -> str:
    """The key in the file of a field: its name without the unit suffix ``_s`` or ``_bytes``."""
    return field_name.removesuffix("_bytes").removesuffix("_s")


class Section(BaseModel):
    """One mapping of the configuration: frozen, unknown keys are errors.

    In Python a section is built by field names; files are read by keys only.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=key_of,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,  # an input can be a secret
    )


def size_bytes(value: object) -> int:
    """Bytes of a size: ``50MB`` (powers of 1000), ``64MiB`` (powers of 1024) or a plain number of bytes.

    Raises ``ValueError`` for anything that is not at least one byte and below 2^63.
    """
    wrong = ValueError("is not a size; write for example 50MB, 64MiB or a number of bytes above 0")
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str_of(value)) > 64:
        raise wrong
    match = _SIZE.fullmatch(str_of(value).strip())
    if match is None or match[2].upper() not in _SIZE_UNITS:
        raise wrong
    size = float(match[1]) * _SIZE_UNITS[match[2].upper()]
    if not 1 <= size < 2**63:
        raise wrong
    return int(size)


def str_of(value: float | str) -> str:
    """Text of a scalar; numbers too large to print are cut short rather than refused by the interpreter."""
    if isinstance(value, int) and abs(value) > 10**60:
        return "a number above 10^60" if value > 0 else "a number below -10^60"
    return str(value)


def number(value: object) -> float:
    """A finite number, or text that is one. Raises ``ValueError`` otherwise; true and false are not numbers."""
    wrong = ValueError("is not a number")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong
    try:
        result = float(value)
    except (ValueError, OverflowError):
        raise wrong from None
    if not math.isfinite(result):
        raise wrong
    return result


def _positive(value: object) -> float:
    result = number(value)
    if result <= 0:
        raise ValueError("is not above 0; leave the key out when it is not known")
    return result


def _count(value: object) -> int:
    result = number(value)
    if result < 1 or result != int(result) or result >= 2**63:
        raise ValueError("is not a whole number above 0")
    return int(result)


def _duration(value: object) -> float:
    seconds = duration_s(value)
    if seconds == 0:
        raise ValueError("is not above zero; write for example 15s")
    return seconds


def _share(value: object) -> float:
    percent = isinstance(value, str) and value.strip().endswith("%")
    result = number(value.strip().removesuffix("%") if isinstance(value, str) else value)
    if 0 < result < 1 and not percent:
        return result
    ratio = result / 100
    hint = f"write {ratio:.12g} for {result:.12g} %" if 0 < ratio < 1 and (percent or result > 1) else "write 0.99"
    raise ValueError(f"is not between 0 and 1; {hint}")


def size_text(size: int) -> str:
    """Bytes as the largest unit that divides them: ``50MB``, ``64MiB``, ``1025B``."""
    for unit, factor in sorted(_SIZE_UNITS.items(), key=lambda item: -item[1]):
        if factor > 1 and size % factor == 0:
            return f"{size // factor}{unit.replace('I', 'i')}"
    return f"{size}B"


def _schema(kind: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({**more, "x-type": kind})


#: seconds above 0, written as text with units
Duration = Annotated[
    float,
    BeforeValidator(_duration),
    PlainSerializer(duration_text, when_used="json"),
    _schema("duration", type=["string", "number"]),
]
#: bytes above 0, written as text with units
Size = Annotated[
    int,
    BeforeValidator(size_bytes),
    PlainSerializer(size_text, when_used="json"),
    _schema("size", type=["string", "integer"]),
]
#: a finite number above 0
Positive = Annotated[float, BeforeValidator(_positive), _schema("number above 0", type="number", exclusiveMinimum=0)]
#: a whole number above 0
Count = Annotated[int, BeforeValidator(_count), _schema("whole number above 0", type="integer", minimum=1)]
#: a ratio strictly between 0 and 1
Share = Annotated[
    float,
    BeforeValidator(_share),
    _schema("number between 0 and 1", type="number", exclusiveMinimum=0, exclusiveMaximum=1),
]
