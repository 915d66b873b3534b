"""What a push would do: our boards against those that a Grafana holds. Pure.

A board that a person changed in Grafana has a newest version whose message is not ours; such a board is left alone
unless the caller says otherwise.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from dashboards.texts import digest, text_of

Change = Literal["create", "update", "same", "edited", "provisioned", "orphan", "edited orphan"]

_MESSAGE: Final = "goodwatch dashboards push "


@dataclass(frozen=True, slots=True)
class Held:
    """A board as a Grafana holds it: its document, version, folder, and the message of its newest version."""

    uid: str
    document: Mapping[str, Any]
    version: int
    folder: str
    message: str = ""
    provisioned: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """What would be done with one board; ``ours`` is None for one that we do not have."""

    change: Change
    uid: str
    ours: Mapping[str, Any] | None = None
    held: Held | None = None

    @property
    def text(self) -> str:
        """One line for a person."""
        by = f" by {self.held.by}" if self.held and self.held.by else ""
        said = {
            "create": "new", "update": "changed", "same": "the same", "edited": f"edited in Grafana{by}", "orphan": "no longer ours",
            "provisioned": "provisioned from files", "edited orphan": f"no longer ours, edited in Grafana{by}",
        }  # fmt: skip
        return f"{self.uid}: {said[self.change]}"


def message_of(ours: Mapping[str, Any]) -> str:
    """The message of a version that we push."""
    return f"{_MESSAGE}{digest(ours)}"


def plan(ours: Mapping[str, Mapping[str, Any]], held: Iterable[Held], folder: str = "") -> tuple[Action, ...]:
    """One action for each board, ours and theirs, by uid.

    ``folder`` is the folder that was meant: a board of ours in another one is moved, which is a change.
    """
    there = {one.uid: one for one in held}
    found = [_of(board, there.get(uid), uid, folder) for uid, board in ours.items()]
    for uid in there.keys() - ours.keys():
        mine = there[uid].message.startswith(_MESSAGE)
        change: Change = "provisioned" if there[uid].provisioned else "orphan" if mine else "edited orphan"
        found.append(Action(change, uid, None, there[uid]))
    return tuple(sorted(found, key=lambda action: action.uid))


def _of(board: Mapping[str, Any], there: Held | None, uid: str, folder: str) -> Action:
    if there is None:
        return Action("create", uid, board)
    if there.provisioned:
        return Action("provisioned", uid, board, there)
    if there.message.startswith(_MESSAGE):
        same = there.message == message_of(board) and folder in ("", there.folder)
        return Action("same" if same else "update", uid, board, there)
    # Versions that cannot be read (no right, or an import): only a board with our very content is ours.
    if digest(there.document) == digest(board):
        return Action("same" if folder in ("", there.folder) else "update", uid, board, there)
    return Action("edited", uid, board, there)


def difference(action: Action) -> str:
    """What would change, as a unified diff of the documents; "" when nothing would."""
    if action.change == "same":
        return ""
    before = _lines(action.held.document if action.held else None)
    after = _lines(action.ours)
    return "".join(difflib.unified_diff(before, after, f"grafana/{action.uid}.json", f"ours/{action.uid}.json"))


def _lines(document: Mapping[str, Any] | None) -> list[str]:
    if document is None:
        return []
    kept = {key: value for key, value in document.items() if key not in ("id", "version", "iteration")}
    return text_of(kept).splitlines(keepends=True)
