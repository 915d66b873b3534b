"""Texts on the disk: redacted, bounded, brought once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.quality.redact import Redactor
from collector.quality.texts import Spent, TextStore, place_of
from collector.spans.texts import SpanText
from goodwatch.core.errors import StoreError

DAY_S = 86_400.0


def text(number: int, output: str | None = "an answer", **more: object) -> SpanText:
    usual = {"input": "a question", "context": ()} | more
    return SpanText(f"{number:032x}", f"{number:016x}", output=output, **usual)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "texts" / "texts.duckdb"


@pytest.fixture
def store(path: Path) -> Iterator[TextStore]:
    opened = TextStore(path, Redactor(), keep_s=DAY_S, keep_bytes=100_000)
    yield opened
    opened.close()


def test_nothing_is_written_before_it_is_redacted(store: TextStore, path: Path) -> None:
    store.append(
        [text(1, "write to ann@mail.example", input="I am ann@mail.example", context=("ann@mail.example",))], 1.0
    )
    (kept,) = store.of_trace(f"{1:032x}")
    assert (kept.input, kept.output, kept.context) == ("I am [email]", "write to [email]", ("[email]",))
    store.close()
    files = [file.read_bytes() for file in path.parent.iterdir()]
    assert files
    assert not any(b"ann@mail" in body for body in files)


def test_only_the_service_may_read_the_texts(store: TextStore, path: Path) -> None:
    store.append([text(1)], 1.0)
    # the journal as well: nobody else comes into the folder
    assert [one.stat().st_mode & 0o077 for one in (path, path.parent)] == [0, 0]


def test_a_span_that_comes_again_replaces_its_text(store: TextStore) -> None:
    store.append([text(1, "first")], 1.0)
    store.append([text(1, "second"), text(1, "third"), text(2)], 2.0)
    assert [one.output for one in store.of_trace(f"{1:032x}")] == ["third"]
    assert store.health().texts == 2


def test_the_oldest_go_when_there_is_no_room(store: TextStore) -> None:
    for n in range(40):
        store.append([text(n + 1, "x" * 5000)], float(n))
    health = store.health()
    assert health.ok
    assert 50_000 < health.text_bytes <= 100_000
    assert store.of_trace(f"{1:032x}") == []
    assert len(store.of_trace(f"{40:032x}")) == 1


def test_texts_go_when_their_time_is_over(store: TextStore) -> None:
    store.append([text(1)], 0.0)
    store.append([text(2)], DAY_S)
    assert store.compact(DAY_S + 1) == 1
    assert store.health().texts == 1


def test_what_was_judged_is_not_brought_again(store: TextStore) -> None:
    store.append([text(n) for n in range(1, 6)] + [text(9, None)], 10.0)
    first = store.waiting(0, 20, 3)
    assert len(first) == 3
    for one in first:
        store.judged(one, 11.0, "scored")
    rest = store.waiting(0, 20, 10)
    assert {one.trace_id for one in [*first, *rest]} == {f"{n:032x}" for n in range(1, 6)}
    assert len(rest) == 2
    assert store.waiting(20, 30, 10) == []


def test_of_spans_that_say_the_same_the_one_with_documents_is_judged(store: TextStore) -> None:
    chain = SpanText(f"{1:032x}", "f" * 16, "a question", "an answer", ("a document",))
    store.append([text(1), chain], 1.0)
    assert [one.context for one in store.waiting(0, 2, 10)] == [("a document",)]


def test_a_share_of_the_traces_is_kept_whole(store: TextStore) -> None:
    spans = [SpanText(f"{n:032x}", f"{k:016x}", "q", "a", ()) for n in range(1, 401) for k in (1, 2)]
    kept = store.append(spans, 1.0, ratio=0.25)
    traces = {n for n in range(1, 401) if store.of_trace(f"{n:032x}")}
    assert kept == 2 * len(traces)
    # binomial of 400 with 0.25: 100, and four standard deviations are 35
    assert 65 <= len(traces) <= 135
    assert traces == {n for n in range(1, 401) if place_of(f"{n:032x}") < 0.25 * 2**63}


def test_what_was_spent_outlives_a_restart_and_a_compaction(store: TextStore, path: Path) -> None:
    store.spend("2026-12-01", Spent(1, 100, 20, 0.25))
    store.spend("2026-12-01", Spent(1, untold_calls=1))
    store.spend("2026-12-02", Spent(1))
    store.compact(0.0)
    store.close()
    again = TextStore(path, Redactor(), keep_s=DAY_S, keep_bytes=100_000)
    assert again.spent("2026-12-01") == Spent(2, 100, 20, 0.25, 1)
    assert again.spent("2026-11-30") == Spent()
    again.close()


def test_odd_texts_are_kept_as_they_are(store: TextStore) -> None:
    odd = "nul \x00, emoji 🎉, right-to-left \u202e, quote ' \" \\"
    store.append([text(1, odd)], 1.0)
    assert store.of_trace(f"{1:032x}")[0].output == odd


def test_a_file_of_somebody_else_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "texts.duckdb"
    path.write_text("these are my notes")
    with pytest.raises(StoreError, match="damaged, or not a store"):
        TextStore(path, Redactor(), keep_s=DAY_S, keep_bytes=1000)
    assert path.read_text() == "these are my notes"


def test_a_closed_store_says_so(store: TextStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.append([text(1)], 1.0)
    assert not store.health().ok
