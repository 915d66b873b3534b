"""The weekly report: both languages, what may be called a saving, files that stand alone, copies that give nothing away."""

import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.report.compose_steps import best_open, saving_cell, verified_total
from planner.report.facts import Advised, Anomaly, Figure, Verified, added, change_ratio, week_worth
from planner.report.render import rendered
from planner.report.words import LANGUAGES, Language, Words, texts
from tests.planner.report.worlds import EMPTY, FULL

DATA = Path(__file__).with_name("data")
AMOUNTS = st.floats(-1e6, 1e6)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("name", "facts"), [("full", FULL), ("empty", EMPTY)])
def test_the_report_reads_as_it_was_agreed(language: Language, name: str, facts: object) -> None:
    golden = DATA / f"{name}-{language}.md"
    found = next(t for n, t in rendered(facts, language).items() if n.endswith(".md"))  # type: ignore[arg-type]
    if os.environ.get("GOLDEN") == "update":
        golden.write_text(found)
    assert found == golden.read_text()


def test_both_languages_have_the_same_texts_with_the_same_places() -> None:
    en, zh = texts("en"), texts("zh")
    assert set(en) == set(zh)
    for key in en:
        assert set(re.findall(r"{(\w+)}", en[key])) == set(re.findall(r"{(\w+)}", zh[key])), key


def test_no_english_is_left_in_the_chinese_texts() -> None:
    names = {"goodwatch", "SLO", "GPU", "USD", "OTLP", "prices", "gpus", "gpu_hour_usd", "KV", "zh", "CN"}
    for key, text in texts("zh").items():
        words = set(re.findall(r"[A-Za-z][A-Za-z_]+", re.sub(r"{\w+}", "", text)))
        assert words <= names, key


def test_nothing_known_is_no_data_and_never_nought() -> None:
    text = next(iter(rendered(EMPTY, "en").values()))
    assert "no data" in text
    assert "$0" not in text


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in {"meta", "path", "rect", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_is_well_formed_without_script_and_needs_nothing_from_elsewhere(language: Language) -> None:
    text = next(t for n, t in rendered(FULL, language).items() if n.endswith(".html"))
    page = Page()
    page.feed(text)
    assert page.open == []
    assert not {tag for tag, _ in page.seen} & {"script", "link", "img", "iframe", "object", "form"}
    attributes = {name for _, given_ in page.seen for name in given_}
    assert not attributes & {"src", "href", "style"}
    assert not [name for name in attributes if name.startswith("on")]
    assert "url(" not in text
    assert "@import" not in text


def test_names_cannot_break_out_of_the_page_or_the_table() -> None:
    evil = replace(FULL, services=(replace(FULL.services[0], service="<script>|x|\n# y"),))
    files = list(rendered(evil, "en").values())
    assert "<script>" not in files[0].replace("\\<", "")
    assert "<script>" not in files[1]
    assert "\n# y" not in files[0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_redacted_copy_holds_nothing_that_names_somebody(language: Language) -> None:
    secret = replace(
        FULL, services=tuple(replace(one, service=f"zq-{one.service}") for one in FULL.services),
        advised=tuple(replace(one, service="zq-chat", id=f"zq-{one.id}", why="zq told me") for one in FULL.advised),
        verified=tuple(replace(one, service="zq-chat", factor="zq-flag", id="zq-9") for one in FULL.verified),
        slos=tuple(replace(one, service="zq-chat", slo="zq-slo") for one in FULL.slos),
        anomalies=tuple(replace(one, service="zq-chat", signal="zq_signal") for one in FULL.anomalies),
    )  # fmt: skip
    files = rendered(secret, language, hidden=True)
    for name, text in files.items():
        body = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
        for part in (
            "zq",
            "acme",
            "2026",
            "W48",
            "Berlin",
            "1,680",
            "1680",
            "4.20",
            "quality first",
            "max_num_seqs = 64",
        ):
            assert part not in name + body, (name, part)


@given(st.lists(st.one_of(st.none(), AMOUNTS), max_size=8))
def test_sums_add_up_and_a_missing_part_is_told(amounts: list[float | None]) -> None:
    total = added(tuple(Figure(one) for one in amounts))
    known = [one for one in amounts if one is not None]
    assert (total.value is None) == (not known)
    if known:
        assert total.value == pytest.approx(sum(known), abs=1e-6)
        assert total.whole == (len(known) == len(amounts))


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.sampled_from(["better", "worse", "no_difference", "inconclusive"]), st.booleans())
def test_nothing_negative_is_called_a_saving(a: float, b: float, c: float, outcome: str, vetoed: bool) -> None:
    low, value, high = sorted((a, b, c))
    figure = Figure(value, low, high)
    one = Verified("x", "s", "f", outcome, realised_usd=figure, vetoed=vetoed)  # type: ignore[arg-type]
    total, count = verified_total(replace(EMPTY, verified=(one,)))
    assert count == (outcome == "better" and not vetoed and low > 0)
    assert total.value is None or total.value > 0
    advice = Advised("x", "s", "replicas", "proposed", figure)
    assert bool(best_open(replace(EMPTY, advised=(advice,)))) == (low > 0)
    assert "−" not in saving_cell(figure, Words()).text


def test_parts_of_weeks_are_not_compared() -> None:
    assert change_ratio(Figure(2.0), Figure(1.0)) == 1.0
    assert change_ratio(Figure(2.0, days=6), Figure(1.0)) is None
    assert change_ratio(Figure(2.0), Figure(0.0)) is None


@given(st.floats(0.1, 10), st.floats(1, 1e6))
def test_a_cheaper_week_is_worth_what_the_old_cost_would_have_been_less_what_was_paid(ratio: float, usd: float) -> None:
    worth = week_worth(Figure(ratio), Figure(usd)).value
    assert worth is not None
    assert (worth + usd) * ratio == pytest.approx(usd)


def test_the_json_has_null_where_nothing_is_known() -> None:
    body = json.loads(next(t for n, t in rendered(FULL, "en").items() if n.endswith(".json")))
    assert body["services"][1]["now"]["per_million_good_usd"]["value"] is None


def test_two_experiments_on_one_change_are_one_saving() -> None:
    def saved(id: str, factor: str, usd: float) -> Verified:
        return Verified(id, "chat", factor, "better", realised_usd=Figure(usd, usd * 0.9, usd * 1.1))

    facts = replace(
        FULL, verified=(saved("a", "replicas", 100.0), saved("b", "replicas", 80.0), saved("c", "kv_dtype", 10.0))
    )
    total, count = verified_total(facts)
    assert (total.value, count) == (90.0, 2)


def test_a_storm_of_drifts_is_cut_and_says_so() -> None:
    many = tuple(Anomaly("chat", "burn", FULL.week.start_s + n) for n in range(40))
    text = next(t for n, t in rendered(replace(FULL, anomalies=many), "en").items() if n.endswith(".md"))
    assert "25 more are not shown" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_copy_names_no_kind_of_our_users_and_draws_no_exact_money(language: Language) -> None:
    own = Advised("a", "chat", "secret_plan", "proposed", Figure(1234.5, 1200.0, 1300.0), "secret_plan")
    anomaly = Anomaly("chat", "secret_plan", FULL.week.start_s)
    two = replace(FULL, advised=(own,), anomalies=(anomaly,))
    more = replace(two, advised=(replace(own, saving_usd=Figure(1111.1, 1030.0, 1290.0)),))
    copies = [rendered(facts, language, hidden=True) for facts in (two, more)]
    assert not any("secret_plan" in text for text in copies[0].values())
    assert copies[0] == copies[1]  # both are of one band
