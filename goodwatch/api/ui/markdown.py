"""The few constructs of Markdown that runbooks use, as safe HTML. Pure.

Headings, paragraphs, numbered and plain lists, fenced code, tables; bold, code and links within a line. Everything else
is text, and all text is escaped.
"""

import re
from collections.abc import Callable
from typing import Final

from markupsafe import Markup, escape

_INLINE: Final = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|\[(?P<text>[^\]]+)\]\((?P<to>[^)\s]+)\)")
_ITEM: Final = re.compile(r"(?:\d+\.|[-*]) +(.*)")
_HEADING: Final = re.compile(r"(#{1,4}) +(.*)")
#: the last step of a path of our own; a link may never lead to a script
_LINK: Final = re.compile(r"(?:https?://|/(?!/)|#)[^\s\"'<>]*|[A-Za-z0-9_-]+(?:\.md)?")


def html_of(text: str, link: Callable[[str], str] = lambda target: target) -> Markup:
    r"""Markdown as HTML; ``link`` says where a link leads.

    Examples
    --------
    >>> html_of("# A < B")
    Markup('<h1>A &lt; B</h1>')
    >>> html_of("1. **one**\n2. `two`")
    Markup('<ol><li><b>one</b></li><li><code class="mono">two</code></li></ol>')
    >>> html_of("[x](javascript:alert)")
    Markup('<p>[x](javascript:alert)</p>')
    """
    lines, parts = text.splitlines(), []
    while lines:
        line = lines[0]
        if not line.strip():
            lines.pop(0)
        elif line.startswith("```"):
            parts.append(_code(lines))
        elif heading := _HEADING.fullmatch(line):
            lines.pop(0)
            level = len(heading[1])
            parts.append(Markup("<h{}>{}</h{}>").format(level, _inline(heading[2], link), level))
        elif line.startswith("|"):
            parts.append(_table(_taken(lines, lambda one: one.startswith("|")), link))
        elif _ITEM.fullmatch(line):
            parts.append(_list(_taken(lines, lambda one: _ITEM.fullmatch(one) is not None), link))
        else:
            parts.append(Markup("<p>{}</p>").format(_inline(" ".join(_taken(lines, _is_prose)), link)))
    return Markup("\n").join(parts)


def _is_prose(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(("```", "|", "#"))


def _taken(lines: list[str], fits: Callable[[str], bool]) -> list[str]:
    """The first line, and those after it that fit; they are removed."""
    found = [lines.pop(0)]
    while lines and fits(lines[0]):
        found.append(lines.pop(0))
    return found


def _code(lines: list[str]) -> Markup:
    lines.pop(0)
    found = []
    while lines and not lines[0].startswith("```"):
        found.append(lines.pop(0))
    if lines:
        lines.pop(0)
    return Markup('<pre class="mono code" tabindex="0">{}</pre>').format("\n".join(found))


def _list(lines: list[str], link: Callable[[str], str]) -> Markup:
    name = "ol" if lines[0][0].isdecimal() else "ul"
    texts = (found[1] for line in lines if (found := _ITEM.fullmatch(line)))
    items = Markup("").join(Markup("<li>{}</li>").format(_inline(text, link)) for text in texts)
    return Markup("<{}>{}</{}>").format(name, items, name)


def _table(lines: list[str], link: Callable[[str], str]) -> Markup:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    head, body = rows[0], [row for row in rows[1:] if not all(set(cell) <= set("-: ") for cell in row)]
    titles = Markup("").join(Markup('<th scope="col">{}</th>').format(_inline(cell, link)) for cell in head)
    lines_of = (Markup("").join(Markup('<td class="wrap">{}</td>').format(_inline(cell, link)) for cell in row) for row in body)  # fmt: skip
    filled = Markup("").join(Markup("<tr>{}</tr>").format(cells) for cells in lines_of)
    table = Markup('<div class="scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>')
    return table.format(titles, filled)


def _inline(text: str, link: Callable[[str], str]) -> Markup:
    parts, at = [], 0
    for found in _INLINE.finditer(text):
        parts.append(escape(text[at : found.start()]))
        if found["code"] is not None:
            parts.append(Markup('<code class="mono">{}</code>').format(found["code"]))
        elif found["bold"] is not None:
            parts.append(Markup("<b>{}</b>").format(found["bold"]))
        elif _LINK.fullmatch(found["to"]):
            parts.append(Markup('<a href="{}">{}</a>').format(link(found["to"]), found["text"]))
        else:
            parts.append(escape(found[0]))
        at = found.end()
    return Markup("").join([*parts, escape(text[at:])])
