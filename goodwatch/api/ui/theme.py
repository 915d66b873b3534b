"""Colours of the pages and charts, dark and light. One table: the style sheet and the charts both come from it.

Text has a contrast of at least 7:1 on its ground, muted text and states at least 4.5:1 (WCAG 2.2, 1.4.6 and 1.4.3);
``tests/api/test_pages.py`` measures them. States also differ by word and shape, never by colour alone.
"""

from typing import Any, Final

DARK: Final[dict[str, str]] = {
    "ground": "#0b0e14",
    "card": "#131922",
    "raised": "#1b2330",
    "line": "#2a3444",
    "text": "#eef2f7",
    "muted": "#a3b0c2",
    "link": "#7cc0ff",
    "good": "#4ad66d",
    "warning": "#f5b942",
    "bad": "#ff7066",
    "info": "#7cc0ff",
    "grid": "#222b39",
    "p50": "#7fd6e8",
    "p90": "#6aa5ff",
    "p99": "#cf9bff",
    "first": "#7cc0ff",
    "second": "#cf9bff",
    "third": "#f5b942",
    "fourth": "#ff7066",
}
LIGHT: Final[dict[str, str]] = {
    "ground": "#f3f5f8",
    "card": "#ffffff",
    "raised": "#f0f3f7",
    "line": "#d3dae4",
    "text": "#101720",
    "muted": "#4c596b",
    "link": "#0a5cc2",
    "good": "#12722f",
    "warning": "#8a5a00",
    "bad": "#c11f2b",
    "info": "#0a5cc2",
    "grid": "#e6eaf0",
    "p50": "#1593ac",
    "p90": "#2463d6",
    "p99": "#8136d8",
    "first": "#0a6ae0",
    "second": "#8136d8",
    "third": "#8a5a00",
    "fourth": "#c11f2b",
}


def palette_css() -> str:
    """Both palettes as CSS variables ``--NAME`` and classes ``c-NAME``; the browser picks by the reader's preference."""
    dark = "".join(f"--{name}:{colour};" for name, colour in DARK.items())
    light = "".join(f"--{name}:{colour};" for name, colour in LIGHT.items())
    fills = "".join(f".c-{name}{{fill:var(--{name})}}" for name in DARK)
    return (
        f":root{{color-scheme:dark light;{dark}}}\n@media (prefers-color-scheme:light){{:root{{{light}}}}}\n{fills}\n"
    )


def coloured(spec: Any, palette: dict[str, str]) -> Any:
    """A chart with its colour names (``@bad``) replaced; data is left as it is.

    Examples
    --------
    >>> coloured({"mark": {"fill": "@good"}, "datasets": {"a": ["@good"]}}, {"good": "#0f0"})
    {'mark': {'fill': '#0f0'}, 'datasets': {'a': ['@good']}}
    """
    if isinstance(spec, dict):
        return {key: value if key == "datasets" else coloured(value, palette) for key, value in spec.items()}
    if isinstance(spec, list):
        return [coloured(item, palette) for item in spec]
    if isinstance(spec, str) and spec.startswith("@"):
        return palette[spec[1:]]
    return spec
