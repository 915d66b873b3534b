"""A real HTTP server on loopback that shows the pages of a recording, one after another, as fast as a test wants."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from goodwatch.app.recording import RecordedScrape


@dataclass
class PlayedEngine:
    """Pages and where the play stands; ``step`` moves on, ``status`` other than 200 makes /metrics fail."""

    pages: list[RecordedScrape]
    position: int = 0
    status: int = 200
    version: str = "0.32.0"
    asked: int = 0
    url: str = ""
    _server: ThreadingHTTPServer | None = field(default=None, repr=False)

    def step(self, count: int = 1) -> None:
        """Go to a later page."""
        self.position = min(self.position + count, len(self.pages) - 1)

    def answer(self, path: str) -> tuple[int, str, bytes]:
        if path == "/version":
            return 200, "application/json", f'{{"version": "{self.version}"}}'.encode()
        self.asked += 1
        page = self.pages[self.position]
        if self.status != 200:
            return self.status, "text/plain", b"metrics are broken, the engine is not"
        return 200, page.content_type or "text/plain", (page.body or "").encode()


@contextmanager
def played(pages: list[RecordedScrape]) -> Iterator[PlayedEngine]:
    """Serve ``pages`` on a free loopback port."""
    engine = PlayedEngine(pages)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content_type, body = engine.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    engine.url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
