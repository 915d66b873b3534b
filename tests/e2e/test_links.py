"""Every link of every page of a running service leads somewhere: the menu, what pages name, the API's own documents."""

import re
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import httpx
import pytest

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


def test_every_link_of_the_demo_leads_somewhere(tmp_path: Path) -> None:
    with running("demo", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)) as demo:
        base = demo.url().rstrip("/")
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
