"""A recording folder on disk: scrapes of one engine, phases, and what its clients saw."""

import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from goodwatch.core.errors import ConfigError

_OPEN: Final[dict[str, Callable[..., IO[str]]]] = {".jsonl": open, ".gz": gzip.open, ".xz": lzma.open}


@dataclass(frozen=True, slots=True)
class RecordedScrape:
    """One line of ``metrics.jsonl``; ``body`` is None when the scrape failed."""

    ts: float
    elapsed_s: float
    status: int
    content_type: str | None
    body: str | None
    error: str
    accept: str

    @property
    def done_s(self) -> float:
        """When the page was here: a loaded engine writes it at the end of the scrape, not at its start."""
        return self.ts + self.elapsed_s


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of the load, ``[start_s, end_s)`` in Unix seconds."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Recording:
    """A folder with ``metrics.jsonl``, and where they exist ``phases.jsonl`` and ``client_truth.jsonl``.

    Each may be compressed (``.gz``, ``.xz``).
    """

    folder: Path

    @classmethod
    def open(cls, folder: Path) -> "Recording":
        """Check that the folder is a recording. Raises ConfigError that says what is missing."""
        if not folder.is_dir():
            raise ConfigError(f"{folder}: not a folder; give a recording folder that holds metrics.jsonl")
        if _find(folder, "metrics.jsonl") is None:
            raise ConfigError(f"{folder}: no metrics.jsonl (.gz, .xz) in it; a recording has one scrape a line there")
        return cls(folder)

    def scrapes(self) -> Iterator[RecordedScrape]:
        """Every scrape in order. Raises ConfigError on a line that is not a scrape."""
        for row in self._rows("metrics.jsonl"):
            try:
                yield RecordedScrape(
                    float(row["ts"]), float(row.get("elapsed_s") or 0.0), int(row.get("status") or 0),
                    row.get("content_type"), row.get("body") if row.get("status") == 200 else None,
                    str(row.get("error") or ""), str(row.get("accept") or ""),
                )  # fmt: skip
            except (KeyError, TypeError, ValueError) as error:
                raise ConfigError(
                    f"{self.folder}/metrics.jsonl: a line without a usable ts or status: {error}"
                ) from error

    def phases(self) -> list[Phase]:
        """The phases of the load; empty when the folder names none."""
        return [Phase(str(r["phase"]), float(r["start"]), float(r["end"])) for r in self._rows("phases.jsonl")]

    def client(self) -> list[dict[str, Any]]:
        """One row a request as the client saw it; empty when the folder has none."""
        return list(self._rows("client_truth.jsonl"))

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        path = _find(self.folder, name)
        if path is None:
            return
        try:
            with _OPEN[path.suffix](path, "rt", encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield _json(path, number, line)
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from error


def _find(folder: Path, name: str) -> Path | None:
    return next((p for s in ("", ".gz", ".xz") if (p := folder / f"{name}{s}").is_file()), None)


def _json(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{path}:{number}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{path}:{number}: expected one JSON object a line")
    return row
