"""Where facts of a model that is neither in a folder nor in the catalogue may come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class ModelHub(Protocol):
    """A place that keeps models' configurations. Never needed: without one, a folder or the catalogue answers."""

    def config(self, name: str) -> Mapping[str, Any] | None:
        """The ``config.json`` of a model; None when the hub does not have it.

        Raises ``TransientError`` when the hub does not answer.
        """
        ...
