"""TensorRT-LLM's JSON ``/metrics``: a list of iteration statistics, oldest first.

Source: TensorRT-LLM documentation, trtllm-serve, Metrics Endpoint. Reading that endpoint empties it.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

PREFIX: Final = "trtllm_json:"
_DEPTH: Final = 8  # iteration statistics nest two deep; anything far beyond is something else

NOTHING: Final = object()


def decoded(text: str) -> Any:
    """The JSON value of a body, ``NOTHING`` when it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: brackets nested deeper than the decoder's stack
        return NOTHING


def newest(statistics: Any) -> dict[str, Any] | None:
    """The newest element of a list of iteration statistics, a lone object as itself, else ``None``."""
    element = statistics[-1] if isinstance(statistics, list) and statistics else statistics
    return element if isinstance(element, dict) else None


def numbers(element: dict[str, Any], path: str = PREFIX, depth: int = 1) -> Iterator[tuple[str, float]]:
    """Every number of an element by its dotted path; booleans as 0 and 1. Texts, nulls and lists are left out."""
    for key, value in element.items():
        if isinstance(value, dict) and depth < _DEPTH:
            yield from numbers(value, f"{path}{key}.", depth + 1)
        elif isinstance(value, int | float):
            yield _encodable(f"{path}{key}"), _as_float(value)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond a double's range, read as the text formats read it
        return float("inf") if value > 0 else float("-inf")


def _encodable(name: str) -> str:
    r"""The name with lone surrogates (JSON's ``"\ud800"``) replaced, so that it can be stored."""
    return name if name.isascii() else name.encode("utf-8", "replace").decode("utf-8")
