"""Queries for raw samples: which names are asked for, and of which targets. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from goodwatch.core.engine import Engine

#: series that Prometheus adds to each scrape: whether it worked, and how long it took
SYNTHETIC: Final = ("up", "scrape_duration_seconds")

_STRING: Final = r'(?:"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`[^`]*`)'
_MATCHER: Final = rf"\s*(?P<label>[A-Za-z_]\w*)\s*(?:=~|!~|!=|=)\s*{_STRING}\s*"
_LIST: Final = re.compile(rf"{_MATCHER.replace('?P<label>', '?:')}(?:,{_MATCHER.replace('?P<label>', '?:')})*,?\s*")
_NAME: Final = re.compile(r"[A-Za-z_:][\w:]*")
_WRAPPERS: Final = "(?:ray_|kserve_)*"


def matchers(selector: str) -> str:
    """The matchers of a selector without braces.

    Raises ``ValueError`` with a predicate ("is not …; write …") when it is anything but one or more label matchers.

    Examples
    --------
    >>> matchers('{job="vllm", namespace=~"prod.*"}')
    'job="vllm", namespace=~"prod.*"'
    """
    text = selector.strip()
    inner = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    if not _LIST.fullmatch(inner):
        raise ValueError("""is not a list of label matchers; write for example '{job="vllm"}'""")
    if any(label == "__name__" for label in re.findall(_MATCHER, inner)):
        raise ValueError("""names a metric; goodwatch chooses those, write labels only, as in '{job="vllm"}'""")
    return inner.strip().rstrip(",").strip()


def engine_names(engines: Iterable[Engine], *, pinned: bool) -> str:
    """A regular expression for the series that engine tables read, in either spelling (``vllm:x``, ``vllm_x``).

    Names without an engine's prefix that only a declared engine may claim are in it when ``pinned``.
    """
    prefixes: set[str] = set()
    plain: set[str] = set()
    for engine in engines:
        prefixes.update(engine.prefixes)
        plain.update(n for n in _metrics(engine, pinned=pinned) if not n.startswith(engine.prefixes))
    families = sorted({p.replace(":", "[:_]") for p in prefixes})
    names = sorted(n.replace(":", "[:_]") for n in plain if _NAME.fullmatch(n))
    parts = [f"{_WRAPPERS}(?:{'|'.join(families)}).+"] if families else []
    parts += [f"(?:{'|'.join(names)})(?:_total|_bucket|_sum|_count)?"] if names else []
    return "|".join(parts)


def kernel_names(engines: Iterable[Engine]) -> str:
    """A regular expression for a few cheap series that every target of an engine has: what tells that it was there."""
    wanted = ("requests_running", "requests_waiting", "requests_finished_total")
    metrics = {s.metric for e in engines for n in wanted for s in e.signals.get(n, ()) if not s.declared_only}
    names = sorted(m.replace(":", "[:_]") for m in metrics if _NAME.fullmatch(m))
    return f"{_WRAPPERS}(?:{'|'.join(names)})(?:_total|_count)?"


def raw_query(
    names: str, inner: str, span_s: float, only: Mapping[str, str] | None = None, *, synthetic: bool = True
) -> str:
    """A range vector selector: every stored sample of the last ``span_s`` seconds, with the times of the scrapes.

    ``names`` is a regular expression, ``inner`` the operator's matchers, ``only`` adds equalities. ``synthetic`` takes
    in what Prometheus adds to each scrape. ``_created`` series hold a time that goodwatch does not use, one for each
    counter and histogram; they are left out.
    """
    every = "|".join((*SYNTHETIC, names)) if synthetic else names
    extra = "".join(f",{label}={_quoted(value)}" for label, value in (only or {}).items())
    return f'{{__name__=~{_quoted(every)},__name__!~".+_created",{inner}{extra}}}[{max(1, round(span_s * 1000))}ms]'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _metrics(engine: Engine, *, pinned: bool) -> Iterator[str]:
    """Every family that the table mentions."""
    declared_only: set[str] = set()
    for source in (s for listed in engine.signals.values() for s in listed):
        if source.declared_only and not pinned:
            declared_only.add(source.metric)
            continue
        yield source.metric
        for other in (*source.plus, *source.minus, *source.times, *source.over):
            yield other.partition("{")[0]
    yield from engine.info
    yield from (n for n in (name.partition("{")[0] for name in engine.names) if n not in declared_only)
