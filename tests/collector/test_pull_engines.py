"""Every recorded engine reads the same from a Prometheus as from its own page: signals, models, facts, version."""

import re
from pathlib import Path
from typing import Any

import pytest

from collector._pull_pages import pages_of, parsed
from collector.exposition import Parser
from collector.pipeline import TargetReader, Understood
from collector.pull import PullOptions, TargetFactory
from goodwatch.app.engines import known_engines
from goodwatch.app.recording import Recording
from goodwatch.core.model import Target

DATA = Path(__file__).parents[1] / "truth" / "data"
AT_S = 1_700_000_000.0


def page_of(name: str) -> tuple[str, str | None]:
    """A page from the middle of a recording's load."""
    found = [s for s in Recording.open(DATA / name).scrapes() if s.body and "openmetrics" not in s.accept]
    one = found[len(found) // 3]
    return one.body or "", one.content_type


def stored(body: str, content_type: str | None, names: str) -> list[dict[str, Any]]:
    """The page as a Prometheus has it: no types, OpenMetrics' names, labels of the target; what the query asks for."""
    rows: list[dict[str, Any]] = [{"metric": {"__name__": "up"}, "values": [[AT_S, "1"]]}]
    for sample in Parser().parse(body, content_type=content_type).samples:
        wire = sample.name.replace("sglang:", "sglang_")
        if re.fullmatch(names, wire) and not wire.endswith("_created"):
            rows.append({"metric": {"__name__": wire, **sample.labels}, "values": [[AT_S, repr(sample.value)]]})
    for row in rows:
        row["metric"] |= {"job": "llm", "instance": "gpu-1:8000", "namespace": "prod"}
    return rows


def told(understood: Understood | None) -> dict[str, Any]:
    assert understood is not None
    assert understood.reading is not None
    reading = understood.reading
    return {
        "engine": reading.engine.name, "version": understood.version.text, "models": reading.models,
        "facts": reading.facts, **{name: (r.values, r.repeated) for name, r in reading.resolved.items()},
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.iterdir() if path.is_dir()))
def test_a_stored_page_says_what_the_page_itself_says(name: str) -> None:
    body, content_type = page_of(name)
    own = TargetReader(Target("a", "http://a/metrics", "chat"), known_engines()).understand(body, content_type)
    factory = TargetFactory(PullOptions("http://prom:9090", '{job="llm"}'), known_engines())
    (one,) = pages_of(parsed(stored(body, content_type, factory.names)), ("instance",), factory.keep, {})
    pulled = factory.pulled(factory.reader(factory.target(one.key, one.labels)), one, AT_S)
    assert told(pulled.understood) == told(own)
