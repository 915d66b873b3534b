"""What is looked at and what is found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["alert", "record", "panel"]


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a rule or board, and what stands around it.

    ``line`` is that of the expression's first line; ``multiline`` says that its lines are lines of the file too.
    ``texts`` are what a person reads beside it; ``unit`` and ``thresholds`` are those of a panel.
    """

    path: str
    line: int
    expr: str
    kind: Kind
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    unit: str = ""
    thresholds: tuple[float, ...] = ()
    multiline: bool = False
    tree: Any = None  # the parsed expression; None when it could not be parsed

    def line_of(self, word: str) -> int:
        """The line on which a word of the expression stands."""
        if not self.multiline or word not in self.expr:
            return self.line
        return self.line + self.expr[: self.expr.index(word)].count("\n")

    @property
    def words(self) -> str:
        """Everything a person reads beside the expression."""
        return " ".join((self.name, *self.texts))


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: where, which (a stable code), what is wrong and how to mend it."""

    path: str
    line: int
    code: str
    text: str
    mend: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}; {self.mend} [{self.code}]"
