"""Pages that engine tables are tested on: cut from running servers, or composed where a comment says so."""

from pathlib import Path

from collector.exposition import parse
from collector.families import Families
from collector.normalise import Reading, read
from goodwatch.core.engine import Engine

_DATA = Path(__file__).parent / "data"


def body(name: str) -> str:
    return (_DATA / f"{name}.prom").read_text()


def families(name: str) -> Families:
    return Families(parse(body(name)))


def reading(engine: Engine, name: str, *, pinned: bool = False) -> Reading:
    return read(families(name), engine, pinned=pinned)


def parts(of: Reading, signal: str) -> dict[str, float]:
    """Value (or number of observations) of a signal by part; several series of a part are an error here."""
    values = of.resolved[signal].values
    by_part = {v.part: v.histogram.total if v.histogram else v.value for v in values}
    assert len(by_part) == len(values), f"{signal}: {values}"
    return {part: value for part, value in by_part.items() if value is not None}


def only(of: Reading, signal: str) -> float:
    """The one value (or number of observations) of a signal without parts."""
    (value,) = parts(of, signal).values()
    return value


def wire(of: Reading, signal: str) -> str:
    """The family that a signal was read from."""
    return of.resolved[signal].source.metric
