"""Queries of other SLO tools into ours: counts over ``$window``, never rates or levels."""

import re
from typing import Any, Final

import promql_parser

from goodwatch.core.errors import ConfigError

_WINDOW: Final = re.compile(r"\[\s*\{\{\s*\.?window\s*\}\}\s*\]")
_RATE: Final = re.compile(r"\brate\s*\(")


def counted(query: str, where: str) -> str:
    """A query as a count over ``$window``.

    ``rate`` over the window becomes ``increase`` (a factor that all ratios lose); counters that are written without a
    range get one. Raises ``ConfigError`` for a query with a fixed range: it cannot be asked over other windows.
    """
    text = _RATE.sub("increase(", _WINDOW.sub("[$window]", query.strip()))
    try:
        tree = promql_parser.parse(text.replace("$window", "5m"))
    except ValueError as error:
        raise ConfigError(f"{where}: not PromQL: {str(error).splitlines()[0]}") from None
    if "$window" in text:
        return text
    selectors = _selectors(tree)
    if any(isinstance(node, promql_parser.MatrixSelector) for node in selectors):
        raise ConfigError(f"{where}: has a fixed range; write [{{{{.window}}}}] or [$window] in its place")
    found = "|".join(re.escape(str(node.prettify())) for node in selectors)
    ranged = re.compile(rf"(?<![\w:])(?:{found})(?![\w:{{\[(])")
    return ranged.sub(lambda one: f"increase({one[0]}[$window])", str(tree.prettify()))


def _selectors(tree: Any) -> list[Any]:
    """Selectors of the tree, the longest text first: one name can begin another."""
    found: list[Any] = []

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.MatrixSelector | promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(tree, visit)
    return sorted(found, key=lambda node: -len(str(node.prettify())))
