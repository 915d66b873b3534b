"""A document as one HTML file: no script, nothing from elsewhere, right on a dark or light screen and on A4. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from html import escape
from typing import Final

from planner.report.document import Bars, Block, Cell, Document, Section, Sentence, Table, Tiles
from planner.report.svg import bars_svg

#: draws a figure as an SVG element
Charts = Callable[[Bars], str]

STYLE: Final = """
:root{color-scheme:light dark;--ground:#f3f5f8;--card:#fff;--line:#d3dae4;--text:#101720;--muted:#4c596b;--good:#12722f;
--warning:#8a5a00;--bad:#c11f2b;--now:#0a6ae0;--before:#b4bfcd}
@media screen and (prefers-color-scheme:dark){:root{--ground:#0b0e14;--card:#131922;--line:#2a3444;--text:#eef2f7;
--muted:#a3b0c2;--good:#4ad66d;--warning:#f5b942;--bad:#ff7066;--now:#4a9cf5;--before:#4d5b70}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Noto Sans","Noto Sans CJK SC","PingFang SC","Microsoft YaHei",sans-serif}
main{max-width:1000px;margin:0 auto;padding:28px 20px}
h1{font-size:26px;line-height:1.25;margin:0}
h2{font-size:18px;margin:0 0 10px}
h3{font-size:13px;font-weight:600;margin:14px 0 4px;color:var(--muted)}
.sub{color:var(--muted);margin:4px 0 20px}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:18px 20px;margin:0 0 16px}
p{margin:8px 0}
.good{color:var(--good)}.warning{color:var(--warning)}.bad{color:var(--bad)}.muted{color:var(--muted)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:10px;margin:0 0 12px}
.tile{border:1px solid var(--line);border-radius:6px;padding:10px 12px}
.tile b{display:block;font-size:22px;line-height:1.3;font-variant-numeric:tabular-nums}
.tile span,small{color:var(--muted);font-size:12px}
small{display:block;line-height:1.35}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;margin:8px 0}
th,td{text-align:left;vertical-align:top;padding:6px 10px 6px 0;border-bottom:1px solid var(--line)}
td.n+td:not(.n),th.n+th:not(.n){padding-left:14px}
th{font-size:12px;font-weight:600;color:var(--muted)}
tr:last-child td{border-bottom:0}
.n{text-align:right;font-variant-numeric:tabular-nums}
td{overflow-wrap:anywhere}td.n{white-space:nowrap}td.n small{white-space:normal}
svg.bars{display:block;width:100%;max-width:760px;height:auto;font-size:12px}
.label{fill:var(--text)}text.muted{fill:var(--muted)}rect.now{fill:var(--now)}rect.before{fill:var(--before)}
.span{fill:none;stroke:var(--text);stroke-width:1.5}
.key{font-size:12px;color:var(--muted)}
.key i{display:inline-block;width:10px;height:10px;margin:0 5px 0 12px}.key .now{background:var(--now)}
.key .before{background:var(--before)}
footer{color:var(--muted);font-size:12px}
@page{size:A4;margin:14mm 12mm}
@media print{:root{--ground:#fff;--card:#fff}body{font-size:10.5pt}main{max-width:none;padding:0}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
section{border:0;border-top:1px solid var(--line);border-radius:0;padding:10px 0;margin:0}
.scroll{overflow:visible}table{font-size:8.5pt}th,small,.tile span{font-size:7.5pt}
.tiles{grid-template-columns:repeat(5,1fr)}.tile{padding:6px 8px}.tile b{font-size:13pt}
tr,svg,.tile,.figure{break-inside:avoid}h2,h3{break-after:avoid}thead{display:table-header-group}}
"""
#: what a page may load: nothing but this style
POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    + "'"
)


def html(document: Document, charts: Charts = bars_svg) -> str:
    """The whole file."""
    sections = "\n".join(_section(one, charts) for one in document.sections)
    return (
        f'<!doctype html>\n<html lang="{escape(document.language)}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(document.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(document.title)}</h1>\n<p class="sub">{escape(document.subtitle)}</p>\n{sections}\n'
        f"<footer>{escape(document.footer)}</footer>\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section, charts: Charts) -> str:
    body = "\n".join(_block(one, charts) for one in section.blocks)
    return f'<section id="{escape(section.key)}">\n<h2>{escape(section.title)}</h2>\n{body}\n</section>'


def _block(block: Block, charts: Charts) -> str:
    if isinstance(block, Sentence):
        return f"<p{_class(block.tone)}>{escape(block.text)}</p>"
    if isinstance(block, Tiles):
        tiles = "".join(
            f'<div class="tile"><span>{escape(one.title)}</span><b{_class(one.tone)}>{escape(one.value)}</b>'
            f"<span>{escape(one.small)}</span></div>"
            for one in block.tiles
        )
        return f'<div class="tiles">{tiles}</div>'
    if isinstance(block, Bars):
        names = zip(("now", "before"), block.names, strict=True)
        keys = "".join(f'<i class="{kind}"></i>{escape(name)}' for kind, name in names if name)
        key = f'<span class="key">{keys}</span>' if keys else ""
        return f'<div class="figure"><h3>{escape(block.title)}{key}</h3>{charts(block)}</div>'
    return _table(block)


def _table(table: Table) -> str:
    right = [bool(table.rows) and table.rows[0][place].number for place in range(len(table.headings))]
    head = "".join(
        f'<th scope="col"{" class=n" if number else ""}>{escape(text)}</th>'
        for number, text in zip(right, table.headings, strict=True)
    )
    rows = "\n".join(f"<tr>{''.join(_cell(one) for one in row)}</tr>" for row in table.rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>'


def _cell(cell: Cell) -> str:
    small = f"<small>{escape(cell.small)}</small>" if cell.small else ""
    names = " ".join(name for name in ("n" if cell.number else "", cell.tone) if name)
    return f"<td{_class(names)}>{escape(cell.text)}{small}</td>"


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""
