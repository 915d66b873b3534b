"""Small pieces of PromQL as text: selectors, ranges, unions that take a name once."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

#: what tells one scraped target from another in every Prometheus
TARGET: Final = "job, instance"


def matcher(label: str, value: str) -> str:
    """One matcher: equal, or a regular expression when the value starts with "~".

    Examples
    --------
    >>> matcher("job", "chat"), matcher("job", "~chat-.*")
    ('job="chat"', 'job=~"chat-.*"')
    """
    operator, text = ("=~", value[1:]) if value.startswith("~") else ("=", value)
    return f"{label}{operator}{quoted(text)}"


def quoted(text: str) -> str:
    """A string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def selector(name: str, matchers: Iterable[str] = ()) -> str:
    """A selector, its matchers sorted and each written once."""
    inner = ",".join(sorted(set(matchers)))
    return f"{name}{{{inner}}}" if inner else name


def matchers_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Matchers of a mapping in its order."""
    return tuple(matcher(label, value) for label, value in labels.items())


def span(seconds: float) -> str:
    """A duration as Prometheus writes it: one unit where it divides, else the smaller one.

    Examples
    --------
    >>> span(300), span(3600), span(259200), span(90), span(0.5)
    ('5m', '1h', '3d', '90s', '500ms')
    """
    millis = round(seconds * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if millis and millis % size == 0:
            return f"{millis // size}{unit}"
    return f"{millis}ms"


def summed(by: Iterable[str], expr: str) -> str:
    """Sum over everything but ``by``."""
    labels = ", ".join(by)
    return f"sum by ({labels}) ({expr})" if labels else f"sum({expr})"


def one_of(alternatives: Iterable[str]) -> str:
    """For each scraped target the first of the alternatives that it has: an old and a new name are never added."""
    return f" or on ({TARGET}) ".join(alternatives)


def labelled(expr: str, value: str) -> str:
    """The same series under a label of their own, so that ``or`` adds them to others and never drops them."""
    return f'label_replace({expr}, "counted_as", {quoted(value)}, "", "")'


def bound_pattern(bound: float) -> str:
    """A pattern for every spelling of a bucket bound that engines and Prometheus write: 1, 1.0, 1e+00.

    Examples
    --------
    >>> bound_pattern(1.0), bound_pattern(0.5), bound_pattern(0.05)
    ('1|1[.]0+|1e[+]0+', '0[.]50*', '0[.]050*')
    """
    text = f"{bound:.12g}"
    if "e" in text or "." not in text:
        whole = re.sub(r"[.+]", lambda found: f"[{found[0]}]", text)
        return whole if "e" in text else f"{whole}|{whole}[.]0+{_exponent(text)}"
    return text.replace(".", "[.]") + "0*"


def _exponent(text: str) -> str:
    return f"|{text}e[+]0+" if len(text) == 1 and text != "0" else ""


def number(value: float) -> str:
    """A number with at most 12 significant digits: binary noise would move a threshold."""
    return f"{value:.12g}"
