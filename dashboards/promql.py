"""PromQL as text: selectors of goodwatch's own series, intervals as lines, ratios that cannot divide by zero."""

from collections.abc import Iterable, Mapping
from typing import Final

from goodwatch.core.model import Limits

#: range of rates: Grafana widens it to four scrape intervals at least
RATE: Final = "[$__rate_interval]"
SERVICE: Final = 'service=~"$service"'
#: one scope: a service as a whole, or the models that were picked; never both, they are views of the same requests
WHOLE: Final = f'{SERVICE},model=~"$model",target=""'
FLEET: Final = f'{SERVICE},model="",target=""'
EACH_TARGET: Final = f'{SERVICE},model="",target=~"$target",target!=""'


def selector(name: str, matchers: str = "") -> str:
    """A selector.

    Examples
    --------
    >>> selector("up", 'job="chat"'), selector("up")
    ('up{job="chat"}', 'up')
    """
    return f"{name}{{{matchers}}}" if matchers else name


def quoted(text: str) -> str:
    """A string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def at_least(name: str, matchers: str) -> str:
    """The number where it is known exactly, else the lower end of its interval."""
    return f"{selector(name, matchers)} or {selector(f'{name}_low', matchers)}"


def at_most(name: str, matchers: str) -> str:
    """The number where it is known exactly, else the upper end of its interval; an open end gives nothing."""
    return f"{selector(name, matchers)} or {selector(f'{name}_high', matchers)}"


def ratio(above: str, below: str) -> str:
    """A quotient of two sums with the same labels; without events no value, instead of 0 or NaN.

    The parentheses matter: in ``a or b > 0`` only ``b`` is compared.
    """
    return f"({above}) / (({below}) > 0)"


def summed(by: Iterable[str], expr: str) -> str:
    """A sum that keeps the labels."""
    labels = ", ".join(by)
    return f"sum by ({labels}) ({expr})" if labels else f"sum({expr})"


def target_lines(limits: Mapping[str, Limits], name: str) -> str:
    """A constant for each picked service that promised ``name`` ("ttft", "tpot", "e2e"); "" when none did.

    The objective's series carries it, so the line is there only where goodwatch watches the service.
    """
    lines = []
    for service, limit in sorted(limits.items()):
        seconds = {"ttft": limit.ttft_s, "tpot": limit.tpot_s, "e2e": limit.e2e_s}[name]
        if seconds is not None:
            series = selector("goodwatch_objective_ratio", f"{SERVICE},service={quoted(service)}")
            lines.append(f"0 * max by (service) ({series}) + {seconds:.12g}")
    return " or ".join(lines)
