"""Draws every board, with Grafana's own front-end packages and real data: ``make render-boards``.

Usage: ``python -m tests.render.draw [--out FOLDER] [--theme light] [UID ...]``. Needs Chromium, Prometheus, and ``npm install`` and
``node build.mjs`` in this folder (README.md). Exit code 1: a panel threw, a query failed, a unit, transformation or
variable is not known, or a panel is empty that has no reason to be.
"""

import argparse
import asyncio
import functools
import http.server
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from dashboards.build import boards, documents
from dashboards.texts import text_of
from tests.dashboards.stage import OPTIONS, everything, openmetrics
from tests.support.browser import Tab, browser
from tests.support.prometheus_server import fill_prometheus, prometheus_server
from tests.support.views import AT_S

HERE: Final = Path(__file__).parent
BOARDS: Final = HERE.parents[1] / "deploy" / "grafana" / "boards"
#: pixels of a line of Grafana's grid
LINE_PX: Final = 38
#: the recordings of an overload are some 100 s long
HOURS: Final = 0.03


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _height_px(board: Path) -> int:
    panels = json.loads(board.read_text())["panels"]
    inner = sum(max((one["gridPos"]["h"] for one in panel.get("panels", ())), default=0) for panel in panels)
    return (max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) + inner) * LINE_PX + 120


async def _draw(tab: Tab, address: str, board: Path, picture: Path) -> dict[str, Any]:
    """Draw one board; the whole of it is in view, because panels out of view are not drawn."""
    await tab.open(address, width=1460, height=_height_px(board))
    await tab.until("document.getElementById('report')")
    report: dict[str, Any] = json.loads(await tab.evaluate("document.getElementById('report').textContent"))
    await tab.screenshot(picture)
    return report


def _written(uids: list[str], site: Path) -> Iterator[Path]:
    """The boards as files, those that ship as they ship."""
    for uid, made in documents(boards(OPTIONS)).items():
        if uids and uid not in uids:
            continue
        shipped, file = BOARDS / f"{uid}.json", site / f"{uid}.json"
        file.write_text(shipped.read_text() if shipped.exists() else text_of(made))
        yield file


async def drawn(uids: list[str], out: Path, theme: str) -> list[str]:
    """Draw the boards into ``out``; returns what is wrong."""
    reasons = {(board.uid, panel.title) for board in boards(OPTIONS) for panel in board.panels if panel.why_empty}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        site = folder / "site"
        site.mkdir()
        for name in ("index.html", "out.js", "out.css"):
            shutil.copy(HERE / name, site / name)
        fill_prometheus(folder / "prometheus", openmetrics(everything()))
        with prometheus_server(folder / "prometheus") as server, _served(site) as page:
            async with browser(folder / "profile") as tab:
                for board in _written(uids, site):
                    address = (
                        f"{page}/index.html?dash={board.name}&prom={server.url}&end={AT_S}&hours={HOURS}&theme={theme}"
                    )
                    report = await _draw(tab, address, board, out / f"{board.stem}.png")
                    empty = [title for title in report["nothing"] if (board.stem, title) not in reasons]
                    wrong += [f"{board.stem}: {problem}" for problem in report["problems"]]
                    wrong += [f"{board.stem}: '{title}' is empty" for title in empty]
                    print(
                        f"{board.stem}: {len(report['panels'])} panels, {len(report['nothing'])} without data, "
                        f"{len(report['ours'])} drawn by us"
                    )
    return wrong


def main() -> None:
    """Draw, print, exit."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("uids", nargs="*", metavar="UID", help="boards to draw; all without it")
    options.add_argument("--out", type=Path, default=HERE / "pictures", help="folder of the pictures")
    options.add_argument("--theme", choices=("dark", "light"), default="dark")
    given = options.parse_args()
    if not (HERE / "out.js").exists():
        sys.exit(
            f"{HERE / 'out.js'} is not there; run npm install --legacy-peer-deps --ignore-scripts and node build.mjs in {HERE}"
        )
    given.out.mkdir(parents=True, exist_ok=True)
    wrong = asyncio.run(drawn(given.uids, given.out, given.theme))
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
