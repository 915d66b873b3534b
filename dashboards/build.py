"""All boards of a set of options, as files: the same options give the same bytes."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from dashboards.boards.budget import budget
from dashboards.boards.cost import cost
from dashboards.boards.fleet import fleet
from dashboards.boards.incident import incident
from dashboards.boards.native import accelerator_board, engine_board
from dashboards.boards.planner import planner
from dashboards.boards.service import service
from dashboards.panels import document
from dashboards.texts import digest
from dashboards.values import Board, Options

_OWN: Final[tuple[Callable[[Options], Board], ...]] = (fleet, service, budget, incident, cost, planner)


def boards(options: Options) -> tuple[Board, ...]:
    """The boards of goodwatch's own series, of each engine, and of each exporter of accelerators."""
    return (
        *(make(options) for make in _OWN),
        *(engine_board(options, name) for name in sorted(options.engines)),
        *(accelerator_board(options, name) for name in sorted(options.accelerators)),
    )


def documents(made: Iterable[Board]) -> dict[str, dict[str, Any]]:
    """Classic Grafana JSON by uid. A hidden variable keeps the digest of the rest, by which an edit shows."""
    return {board.uid: document(board, digest(document(board, ""))) for board in made}
