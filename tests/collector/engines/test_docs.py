"""docs/engines.md shows what the tables say. Rewrite it with GOLDEN=update and read the difference."""

import os
from pathlib import Path

from goodwatch.app.engines import known_engines
from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.engine import Engine

_PAGE = Path(__file__).parents[3] / "docs/engines.md"
_BEGIN, _END = "<!-- engines: begin -->\n", "<!-- engines: end -->"
_ROLES = ("engine", "worker", "router", "gateway")


def shown_engines() -> list[Engine]:
    """Engines first, then what stands around them; both by name."""
    known = [e for e in known_engines().values() if e.role in _ROLES]
    return sorted(known, key=lambda e: (_ROLES.index(e.role), e.name))


def mark(engine: Engine, signal: str) -> str:
    """How an engine tells a signal at its best: read as it is by one of its sources, or always made of other series."""
    sources = engine.signals.get(signal)
    if sources is None:
        return ""
    return "◐" if all(s.derived or s.read in ("sum", "count") for s in sources) else "●"


def table() -> str:
    engines = shown_engines()
    lines = ["| signal | " + " | ".join(f"`{e.name}`" for e in engines) + " |", "| --- |" + " --- |" * len(engines)]
    lines += [
        f"| {'**' * signal.kernel}`{signal.name}`{'**' * signal.kernel} | "
        + " | ".join(mark(engine, signal.name) for engine in engines)
        + " |"
        for signal in CATALOGUE.values()
        if signal.name not in OWN and signal.group != "accelerator"
    ]
    return "\n".join(lines) + "\n\nIn bold: what derived numbers stand on.\n"


def test_the_documentation_has_every_engine_and_every_signal() -> None:
    before, rest = _PAGE.read_text().split(_BEGIN)
    shown, after = rest.split(_END)
    if os.environ.get("GOLDEN") == "update":
        _PAGE.write_text(f"{before}{_BEGIN}{table()}{_END}{after}")
        return
    assert shown == table(), "run this test with GOLDEN=update and read the difference"


def test_every_engine_has_its_role_in_the_documentation() -> None:
    roles = {line.split("|")[1].strip(): line for line in _PAGE.read_text().splitlines() if line.startswith("| ")}
    for engine in shown_engines():
        words = engine.title.replace("Text Generation Inference", "TGI").split()
        assert any(word in roles[engine.role] for word in words), engine.title
