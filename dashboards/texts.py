"""Documents as texts, and by what an edit shows. Pure, without grafanalib."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def digest(board: Mapping[str, Any]) -> str:
    """A short digest of a document, whatever its build says, and whatever Grafana adds when it stores it."""
    kept = {key: value for key, value in board.items() if key not in ("id", "version", "iteration", "schemaVersion")}
    variables = kept.get("templating", {}).get("list", [])
    kept["templating"] = [variable for variable in variables if variable.get("name") != "goodwatch_build"]
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def text_of(board: Mapping[str, Any]) -> str:
    """A document as the text of a file."""
    return json.dumps(board, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
