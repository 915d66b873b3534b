"""Every link of every page of a running service leads somewhere: the menu, what pages name, the API's own documents."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import httpx
import pytest

from goodwatch.api.routes_docs import operations_table
from tests.support.process import running

pytestmark = pytest.mark.integration

#: pages of one kind that are followed: the hundredth request's page is like the first
OF_A_KIND = 3


def kind_of(path: str) -> str:
    """A path without what tells pages of one kind apart."""
    bare = re.sub(r"[0-9a-f]{16,32}", "ID", path.partition("?")[0])
    head = bare.split("/")[:3]
    names = ",".join(sorted(re.findall(r"[?&](\w+)=", path)))
    return "/".join(head[:2] + (["NAME"] if len(head) > 2 else [])) + f"?{names}"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running("demo", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path_factory.mktemp("demo"))) as demo:
        yield demo.url().rstrip("/")


def test_the_documentation_has_every_operation(base: str) -> None:
    path = Path(__file__).parents[2] / "docs" / "api.md"
    table = operations_table(httpx.get(f"{base}/api/openapi.json", timeout=60).json())
    before, rest = path.read_text().split("<!-- operations: begin -->\n")
    shown, after = rest.split("<!-- operations: end -->")
    if os.environ.get("GOLDEN") == "update":
        path.write_text(f"{before}<!-- operations: begin -->\n{table}<!-- operations: end -->{after}")
        return
    assert shown == table, "run this test with GOLDEN=update and read the difference"


def test_every_link_of_the_demo_leads_somewhere(base: str) -> None:
    waiting, seen, kinds, broken = [f"{base}/"], {f"{base}/"}, dict[str, int](), []
    with httpx.Client(timeout=60) as client:
        while waiting:
            at = waiting.pop(0)
            answer = client.get(at)
            if answer.status_code != 200:
                broken.append((at, answer.status_code))
            if "text/html" not in answer.headers.get("content-type", ""):
                continue
            for link in re.findall(r'(?:href|src)="([^"]+)"', answer.text):
                found = urldefrag(urljoin(at, link.replace("&amp;", "&"))).url
                kind = kind_of(found.removeprefix(base))
                if found.startswith(f"{base}/") and found not in seen and kinds.get(kind, 0) < OF_A_KIND:
                    seen.add(found)
                    kinds[kind] = kinds.get(kind, 0) + 1
                    waiting.append(found)
    assert not broken
    for path in (
        "/slos",
        "/alerts",
        "/heatmap",
        "/requests",
        "/costs",
        "/quality",
        "/recommendations",
        "/experiments",
        "/reports",
    ):
        assert f"{base}{path}" in {one.partition("?")[0] for one in seen}, path
