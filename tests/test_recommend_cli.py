"""``goodwatch recommend`` against a service on loopback that answers as the real one does."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from goodwatch.api.recommendation_shapes import AnswerShape, NotChosen, recommendation_shape
from goodwatch.commands.recommend import recommend
from tests.planner.test_recommendations import recommendation

pytestmark = pytest.mark.integration

ANSWER = AnswerShape(
    mode="restore", reason="", attainment_now=None, made=[recommendation_shape(recommendation())], known=[],
    not_chosen=[NotChosen(strategy="replicas", title="replicas 1 → 2", why_not="the gain is inside the band")],
    missing=["no price"], findings=[],
)  # fmt: skip


class Double(BaseHTTPRequestHandler):
    """Answers with what the class holds; keeps what was asked."""

    answer: ClassVar[tuple[int, bytes]] = (200, b"")
    seen: ClassVar[list[tuple[str, str, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append((self.path, self.headers.get("authorization", ""), body))
        status, content = self.answer
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    Double.answer, Double.seen = (200, ANSWER.model_dump_json().encode()), []
    with HTTPServer(("127.0.0.1", 0), Double) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(recommend, [*arguments], env={"GOODWATCH_TOKEN": None, **environment})


def test_advice_is_shown_with_its_bands_and_what_lost(service: str) -> None:
    result = run("chat", "--url", service, "--window", "7d")
    assert result.exit_code == 0, result.output
    for part in ("max num seqs 128 → 8", "attainment_ratio", "replicas 1 → 2: the gain is inside the band", "no price"):
        assert part in result.output
    assert Double.seen == [("/api/v1/recommendations", "", {"service": "chat", "window": "7d", "mode": None})]


def test_json_is_what_the_service_said_and_the_token_goes_along(service: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    result = run("chat", "--url", service, "--json", "--token-file", str(file))
    assert json.loads(result.output) == json.loads(ANSWER.model_dump_json())
    run("chat", "--url", service, GOODWATCH_TOKEN="other")
    assert [seen[1] for seen in Double.seen] == ["Bearer s3cret", "Bearer other"]


def test_the_services_own_word_is_handed_on(service: str) -> None:
    Double.answer = (404, json.dumps({"detail": "service chta: there is none"}).encode())
    result = run("chta", "--url", service)
    assert (result.exit_code, "service chta: there is none" in result.output) == (2, True)
    Double.answer = (503, b"<html>")
    result = run("chat", "--url", service)
    assert (result.exit_code, "<html>" in result.output) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("chat",), 2, "--url http://HOST:PORT"),
        (("chat", "--url", "goodwatch:9220"), 2, "write http:// or https://"),
        (("chat", "--url", "http://127.0.0.1:9"), 1, "nobody answers"),
        (("chat", "--url", "http://127.0.0.1:9", "--token-file", "none"), 2, "--token-file none"),
    ],
)
def test_what_must_be_mended_is_said(arguments: tuple[str, ...], code: int, says: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, says in result.output) == (code, True), result.output
