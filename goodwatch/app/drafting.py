"""``goodwatch engine``: a first engine module drafted from a metrics page, and the list of engines that are known."""

import asyncio
import json
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from yarl import URL

from collector._http import shown
from collector.draft import Draft, Guess, draft
from collector.exposition import DEFAULT_LIMITS, PageTooLarge, parse
from collector.families import Families
from collector.scrape import Fetched, Session, fetch
from collector.targets import ScrapeOptions, TargetSpec
from goodwatch.app.inspecting import body_of
from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.clock import SystemClock
from goodwatch.core.engine import Engine
from goodwatch.core.errors import ConfigError, TransientError
from goodwatch.core.model import Target

_TIMEOUT_S: Final = 10.0
#: One byte more than is allowed, so that a longer body is refused as such and never held whole.
_READ_BYTES: Final = DEFAULT_LIMITS.body_bytes + 1
_NOT_HERE: Final = "not on the page it was drafted from"
#: HELP is a sentence; what is longer would hide the next family.
_HELP_CHARACTERS: Final = 160


def drafted(source: str, name: str | None = None) -> str:
    """The text of a first engine module from the page behind ``source``: a URL, a file, or "-" for standard input.

    Raises ``ConfigError`` when there is no such source, nothing on it or no name for it, ``TransientError`` when a URL
    does not answer with a page.
    """
    about, body, content_type = _page(source)
    try:
        page = parse(body, content_type=content_type)
    except PageTooLarge as error:
        raise ConfigError(f"{about}: {error}") from error
    found = draft(Families(page), page.help)
    if not found.prefix or not (found.guesses or found.left):
        raise ConfigError(f"{about}: no engine's series on it; is this the metrics path, and are metrics on?")
    return module_of(found, _name(name, found.prefix), about)


def engine_lines(engines: Mapping[str, Engine]) -> list[str]:
    """One line an engine: name, title, role, versions that were read, what its names begin with."""
    width = max((len(name) for name in engines), default=0)
    return [
        f"{e.name:{width}}  {e.role:7}  {e.title}{_span(e)}; {len(e.signals)} signals; {_told_by(e)}"
        for e in sorted(engines.values(), key=lambda e: (e.role != "engine", e.name))
    ]


def engine_rows(engines: Mapping[str, Engine]) -> list[dict[str, Any]]:
    """The same as plain JSON values."""
    return [
        {
            "name": e.name, "title": e.title, "role": e.role, "versions": list(e.versions), "prefixes": list(e.prefixes),
            "declared_only": _declared(e), "signals": sorted(e.signals), "docs": e.docs,
        }
        for e in sorted(engines.values(), key=lambda e: e.name)
    ]  # fmt: skip


def module_of(found: Draft, name: str, about: str) -> str:
    """A draft as the source of an engine module, as ruff formats it."""
    placed = {g.signal for g in found.guesses}
    engine_signals = [s.name for s in CATALOGUE.values() if s.name not in OWN and s.group != "accelerator"]
    sometimes = {g.signal for g in found.guesses if g.where}
    guesses = sorted(found.guesses, key=lambda g: engine_signals.index(g.signal))
    lines = [
        f'"""{name}\'s metrics in goodwatch\'s words.',
        "",
        f"Drafted from one page ({_safe(about)}). Every line below a guess must be held against the engine's own",
        "documentation; then the remark goes.",
        '"""',
        "",
        "from typing import Final",
        "",
        "from goodwatch.core.engine import Absent, Engine, Source",
        "",
        "_SIGNALS: Final = {",
        *(line for guess in guesses for line in _source(guess)),
        "}",
        "",
        "# To be completed: why the engine has no such series, and what a person can look at instead.",
        "_ABSENT: Final = {",
        *(f'    "{s}": Absent(why="{_NOT_HERE}"),' for s in engine_signals if s not in placed or s in sometimes),
        "}",
        "",
        *_unplaced(found),
        *_engine(found, name),
    ]
    return "\n".join(lines) + "\n"


def _source(guess: Guess) -> Iterator[str]:
    yield f"    # guess: {_safe(guess.why)[:_HELP_CHARACTERS]}".rstrip()
    yield f'    "{guess.signal}": ('
    yield "        Source("
    yield f"            {_quoted(guess.family)},"
    yield f'            "{guess.kind}",'
    for label, pattern in guess.where.items():
        yield f'            where={{"{label}": r"{pattern}"}},'
    if guess.scale != 1.0:
        yield f"            scale={guess.scale!r},"
    if guess.read != "value":
        yield f'            read="{guess.read}",'
    if guess.read == "label":
        yield f"            labels=({_quoted(guess.part)},),"
    elif guess.part:
        yield f"            part={_quoted(guess.part)},"
    yield "        ),"
    yield "    ),"


def _unplaced(found: Draft) -> Iterator[str]:
    if not found.left:
        return
    yield "# Families that no rule placed: type, labels, and what the page says of them."
    for one in found.left:
        labels = f" {{{', '.join(one.labels)}}}" if one.labels else ""
        help_text = f": {_safe(one.about)[:_HELP_CHARACTERS]}" if one.about else ""
        yield f"#   {_safe(one.family)}  {one.kind}{labels}{help_text}".rstrip()
    yield ""


def _engine(found: Draft, name: str) -> Iterator[str]:
    yield "ENGINE: Final = Engine("
    yield f'    name="{name}",'
    yield f'    title="{name}",'
    yield '    docs="not named yet: the page of the engine\'s documentation that explains its metrics",'
    yield f"    prefixes=({_quoted(found.prefix)},),"
    yield "    signals=_SIGNALS,"
    yield '    role="engine",  # or router, gateway, worker: what stands around engines and sees the same requests'
    yield "    absent=_ABSENT,"
    for option, labels in (
        ("model_labels", found.model_labels),
        ("sum_labels", found.sum_labels),
        ("repeat_labels", found.repeat_labels),
    ):
        if labels or option == "model_labels":
            yield f"    {option}={_tuple(labels)},  # guess: by the labels' names"
    yield "    hints={"
    yield '        "off": "Not known yet: what switches its metrics on.",'
    yield "    },"
    yield ")"


def _tuple(names: tuple[str, ...]) -> str:
    quoted = ", ".join(map(_quoted, names))
    return f"({quoted},)" if len(names) == 1 else f"({quoted})"


def _page(source: str) -> tuple[str, bytes, str | None]:
    """What to call a source, its body, and the content type where one is told."""
    if source.lower().startswith(("http://", "https://")):
        return asyncio.run(_fetched(source))
    if source == "-":
        return "standard input", sys.stdin.buffer.read(_READ_BYTES), None
    path = Path(source)
    if not path.is_file():
        raise ConfigError(f"{source}: no such file, and no URL; give a saved metrics page or http://HOST:PORT/metrics")
    return path.name, body_of(path), None


async def _fetched(url: str) -> tuple[str, bytes, str | None]:
    try:
        whole = URL(url)
        if not whole.host:
            raise ValueError("it names no host")
    except ValueError as error:
        raise ConfigError(f"{url}: not a URL: {error}; write http://HOST:8000/metrics") from error
    whole = whole if whole.path.strip("/") else whole.with_path("/metrics")
    target = Target("draft", str(whole), "draft")
    spec = TargetSpec(target, ScrapeOptions(interval_s=_TIMEOUT_S, timeout_s=_TIMEOUT_S))
    async with Session() as session:
        answer: Fetched = await fetch(session, spec, SystemClock())
    if not answer.up:
        raise TransientError(f"{shown(whole)}: {answer.error}")
    return shown(whole), answer.body, answer.content_type


def _name(given: str | None, prefix: str) -> str:
    name = given if given is not None else re.sub(r"\W+", "_", prefix.lower()).strip("_")
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower() or name.startswith("_"):
        raise ConfigError(
            f"--name {name or '(none)'}: must be the name of a module: small letters, digits, underscores"
        )
    return name


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _safe(text: str) -> str:
    """Text from outside that can neither end a comment or a docstring nor steer a terminal."""
    return "".join(c if c.isprintable() and c not in '"\\' else "?" for c in " ".join(text.split()))


def _span(engine: Engine) -> str:
    return f" {engine.versions[0]} to {engine.versions[-1]}" if engine.versions else ""


def _declared(engine: Engine) -> bool:
    """Whether the engine is only ever read where the operator set it."""
    own = [s for listed in engine.signals.values() for s in listed if s.metric.startswith(engine.prefixes)]
    return not own


def _told_by(engine: Engine) -> str:
    return "only where it is set as engine" if _declared(engine) else f"names in {', '.join(engine.prefixes)}"
