"""Requests over the API: null with a reason and never 0, problems for what is wrong, files that say their limit."""

import csv
import io
from typing import Any

import httpx
import polars as pl
import pytest

from goodwatch.api import request_files
from goodwatch.api.request_files import FORMS, form_of, pieces
from goodwatch.api.request_shapes import ROW_COLUMNS
from goodwatch.signals.cost import Price
from tests.api.test_request_pages import app_of, got, hundred
from tests.support.request_views import RequestWorld, fact, part_of, recorded_world, score_of, traffic

ROOT = "/api/v1/requests"


async def answer_of(world: RequestWorld, path: str) -> Any:
    answer = await got(world, ROOT + path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refusal(world: RequestWorld, path: str, status: int) -> str:
    answer = await got(world, ROOT + path)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.status_code == answer.json()["status"] == status
    detail: str = answer.json()["detail"]
    return detail


class TestList:
    async def test_pages_follow_each_other_without_gap_or_repeat(self) -> None:
        world = RequestWorld(traffic(25))
        first = await answer_of(world, "?limit=10")
        seen, cursor = first["requests"], first["next"]
        while cursor:
            same = f"from={first['start_s']}&to={first['end_s']}"
            page = await answer_of(world, f"?limit=10&cursor={cursor}&{same}")
            seen, cursor = seen + page["requests"], page["next"]
        by_hand = sorted(world.rows, key=lambda r: -r["engine_e2e_s"])
        assert [r["trace_id"] for r in seen] == [r["trace_id"] for r in by_hand]
        assert first["total"] == 25

    async def test_what_nobody_told_is_null(self) -> None:
        (row,) = (await answer_of(RequestWorld([fact(1, output_tokens=None)]), ""))["requests"]
        assert row["output_tokens"] is row["engine_tpot_s"] is row["client_e2e_s"] is row["tenant"] is None
        assert set(row) == set(ROW_COLUMNS)
        assert row["verdict"] == "undetermined"  # TPOT has a target and is not known

    @pytest.mark.parametrize(
        ("query", "where"),
        [
            ("?order=best", "order"), ("?input=x", "input"), ("?over=soon", "over"), ("?verdict=ok", "verdict"),
            ("?cursor=x", "cursor"), ("?format=xml", "format"), ("?from=now", "from"), ("/heatmap?measure=x", "measure"),
            ("/heatmap?q=p42", "q"), ("/cost?by=colour", "by"), ("/attainment?by=colour", "by"),
        ],
    )  # fmt: skip
    async def test_a_wrong_part_is_a_problem_that_names_it(self, query: str, where: str) -> None:
        assert (await refusal(RequestWorld([fact(1)]), query, 400)).startswith(f"{where}: ")

    async def test_an_unknown_service_and_a_missing_one_name_the_known(self) -> None:
        world = RequestWorld([fact(1), fact(2, service="code")])
        assert "known: chat, code" in await refusal(world, "?service=chta", 404)
        assert "known: chat, code" in await refusal(world, "", 400)

    async def test_a_broken_store_is_503_and_to_be_tried_again(self) -> None:
        world = await RequestWorld([fact(1)]).ready()
        world.break_store()
        transport = httpx.ASGITransport(app=app_of(world))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9470") as client:
            for path in ("", "/heatmap", "/attainment", "/cost", "/" + "0" * 32):
                answer = await client.get(ROOT + path)
                assert answer.status_code == 503, path
                assert answer.headers["retry-after"]


class TestFiles:
    ROWS = tuple(traffic(60))

    async def read(self, name: str) -> pl.DataFrame:
        answer = await got(RequestWorld(self.ROWS), f"{ROOT}?format={name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(FORMS[name].media)
        assert answer.headers["goodwatch-rows"] == answer.headers["goodwatch-rows-total"] == "60"
        assert f".{FORMS[name].suffix}" in answer.headers["content-disposition"]
        body = io.BytesIO(answer.content)
        if name == "csv":
            rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
            return pl.DataFrame([{"trace_id": r["trace_id"], "output_tokens": r["output_tokens"]} for r in rows])
        return pl.read_parquet(body) if name == "parquet" else pl.read_ipc_stream(body)

    @pytest.mark.parametrize("name", list(FORMS))
    async def test_every_form_has_the_same_requests_in_the_same_order(self, name: str) -> None:
        found = await self.read(name)
        by_hand = sorted(self.ROWS, key=lambda r: -r["engine_e2e_s"])
        assert found["trace_id"].to_list() == [r["trace_id"] for r in by_hand]
        untold = found.filter(pl.col("output_tokens").is_null() | (pl.col("output_tokens").cast(pl.String) == ""))
        assert untold.height == sum(r["output_tokens"] is None for r in self.ROWS) > 0

    async def test_a_long_csv_comes_in_pieces_with_one_head(self) -> None:
        frame = pl.DataFrame({"a": range(12_000), "missed": [["ttft", "e2e"]] * 12_000})
        found = [piece async for piece in pieces(frame, FORMS["csv"])]
        assert len(found) == 3
        lines = b"".join(found).decode().split("\r\n")
        assert (lines[0], lines[1], lines[12_000], lines[12_001]) == ("a,missed", "0,ttft e2e", "11999,ttft e2e", "")

    async def test_no_request_is_a_file_with_its_head_only(self) -> None:
        answer = await got(RequestWorld([fact(1)]), f"{ROOT}?format=csv&tenant=none")
        assert answer.text == ",".join(ROW_COLUMNS) + "\r\n"

    def test_the_accept_header_chooses_too_and_the_word_wins(self) -> None:
        assert form_of("", "text/csv;q=1") is FORMS["csv"]
        assert form_of("parquet", "text/csv") is FORMS["parquet"]
        assert form_of("json", "text/csv") is None

    async def test_more_than_the_limit_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert request_files.MAX_ROWS == 100_000
        monkeypatch.setattr("goodwatch.api.routes_requests.MAX_ROWS", 10)
        answer = await got(RequestWorld(self.ROWS), f"{ROOT}?format=csv")
        assert (answer.headers["goodwatch-rows"], answer.headers["goodwatch-rows-total"]) == ("10", "60")


class TestSums:
    async def test_a_map_has_a_cell_for_every_pair_of_bands_with_a_number_or_a_reason(self) -> None:
        found = await answer_of(RequestWorld(hundred()), "/heatmap?q=p99")
        assert len(found["cells"]) == len(found["inputs"]) * len(found["outputs"])
        (cell,) = [c for c in found["cells"] if c["requests"]]
        assert cell["number"]["value"] == 0.099  # the 99th of 1 to 100 ms
        assert cell["number"]["basis"] == "estimated"  # no counter says that these are all
        for empty in found["cells"]:
            if not empty["requests"]:
                assert empty["number"]["value"] is None
                assert empty["number"]["absence"] == "no traffic"

    async def test_attainment_is_split_and_says_its_basis(self) -> None:
        rows = [fact(n, tenant="a" if n % 4 else "b", engine_ttft_s=0.9 if n % 4 == 0 else 0.1) for n in range(100)]
        found = await answer_of(RequestWorld(rows), "/attainment?by=tenant")
        assert found["attainment"]["value"] == 0.75  # by the TTFT set above, against 0.5 s
        assert {g["key"]: g["attainment"]["value"] for g in found["groups"]} == {"a": 1.0, "b": 0.0}
        assert found["unaccounted"]["value"] is None
        assert found["unaccounted"]["absence"] == "not measurable"

    async def test_requests_that_agree_with_the_counter_are_counted(self) -> None:
        world = recorded_world()
        found = await answer_of(world, "/attainment")
        assert found["reconciled"]["finished"] == 552
        assert found["reconciled"]["by_class"]["missing"] == 56
        assert found["attainment"]["basis"] == "estimated"

    async def test_the_bill_adds_up(self) -> None:
        found = await answer_of(recorded_world(price=Price(1, 2.5)), "/cost?by=model")
        parts = sum(found["whole"]["usd_by_class"].values()) + found["idle_usd"]["value"]
        # one GPU for seven recorded minutes, the one in which it started, and the newest, which is not folded yet
        assert found["usd"]["value"] == pytest.approx(2.5 * 9 / 60)
        assert parts == pytest.approx(2.5 * 9 / 60)
        assert found["reconciled"]["gap_ratio"] == pytest.approx(56 / 552)

    async def test_without_a_price_the_bill_is_null_with_a_reason(self) -> None:
        found = await answer_of(RequestWorld(hundred(), price=None), "/cost")
        assert found["usd"]["value"] is found["whole"]["usd_by_class"] is None
        assert "no price" in found["usd"]["note"]


async def test_a_trace_has_its_requests_spans_scores_and_link() -> None:
    one = fact(5)
    world = RequestWorld([one], [part_of(one)], [score_of(one, 0.25)], trace_url="https://t.example/{trace_id}")
    found = await answer_of(world, f"/{one['trace_id'].upper()}")
    assert [r["fact_id"] for r in found["requests"]] == [one["fact_id"]]
    assert [s["name"] for s in found["spans"]] == ["llm_request"]
    assert [s["score"] for s in found["scores"]] == [0.25]
    assert found["link"] == f"https://t.example/{one['trace_id']}"
    assert "no trace" in await refusal(world, "/ffff", 404)


async def test_every_operation_is_documented() -> None:
    schema = (await got(RequestWorld([fact(1)]), "/api/openapi.json")).json()
    paths = {p: one["get"] for p, one in schema["paths"].items() if p.startswith(ROOT)}
    assert set(paths) == {ROOT, *(f"{ROOT}/{name}" for name in ("heatmap", "attainment", "cost", "{trace_id}"))}
    for path, one in paths.items():
        assert one["summary"], path
        assert one["description"], path
        assert "503" in one["responses"], path
        for parameter in one["parameters"]:
            assert parameter.get("description") or parameter["in"] == "path", (path, parameter["name"])
