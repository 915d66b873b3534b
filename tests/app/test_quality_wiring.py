"""What becomes of the texts of trace requests."""

from pathlib import Path
from typing import Any

from collector.stores.memory_requests import MemoryRequestStore
from goodwatch.app._quality_sections import Quality
from goodwatch.app.quality_wiring import AnswerIntake, judge_endpoint, judge_terms, open_texts
from tests.collector.spans.build import RECEIVED_S, TRACE, request, span

ANSWER = {"openinference.span.kind": "LLM", "input.value": "who?", "output.value": "ann@mail.example"}


def quality(**keys: Any) -> Quality:
    return Quality.model_validate(keys)


def test_checks_give_scores_and_nothing_is_kept_by_default(tmp_path: Path) -> None:
    store = MemoryRequestStore()
    assert open_texts(quality(), tmp_path) is None
    commit = AnswerIntake(quality(), store, None).beside(request(span("llm", ANSWER)), RECEIVED_S)
    assert commit is not None
    commit()
    assert store.scores(0, RECEIVED_S * 2)["evaluator"].to_list() == ["goodwatch.checks"]
    assert list(tmp_path.iterdir()) == []


def test_kept_texts_are_redacted_by_built_in_and_own_rules(tmp_path: Path) -> None:
    settings = quality(keep_text=True, checks=False, redact=[{"name": "who", "pattern": "who"}])
    texts = open_texts(settings, tmp_path)
    assert texts is not None
    store = MemoryRequestStore()
    commit = AnswerIntake(settings, store, texts).beside(request(span("llm", ANSWER)), RECEIVED_S)
    assert commit is not None
    commit()
    (kept,) = texts.of_trace(TRACE.hex())
    assert (kept.input, kept.output) == ("[who]?", "[email]")
    assert store.scores(0, RECEIVED_S * 2).is_empty()
    texts.close()


def test_spans_without_texts_leave_nothing_to_commit() -> None:
    intake = AnswerIntake(quality(), MemoryRequestStore(), None)
    assert intake.beside(request(span("llm_request", {"gen_ai.usage.prompt_tokens": 3})), RECEIVED_S) is None
    assert (
        AnswerIntake(quality(checks=False), MemoryRequestStore(), None).beside(request(span("x", ANSWER)), 1.0) is None
    )


def test_texts_that_cannot_be_kept_do_not_hold_up_what_they_belong_to(tmp_path: Path) -> None:
    settings = quality(keep_text=True)
    texts = open_texts(settings, tmp_path)
    assert texts is not None
    texts.close()
    store = MemoryRequestStore()
    intake = AnswerIntake(settings, store, texts)
    commit = intake.beside(request(span("llm", ANSWER)), RECEIVED_S)
    assert commit is not None
    commit()
    assert not store.scores(0, RECEIVED_S * 2).is_empty()
    assert intake.lost_texts == 1
    assert "closed" in intake.problem


def test_a_judge_is_made_of_its_settings(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-1\n")
    judge = {"endpoint": "http://h:1/v1", "model": "m", "key_file": str(tmp_path / "key"), "calls_per_day": 7}
    settings = quality(keep_text=True, judge=judge).judge
    assert settings is not None
    assert judge_endpoint(settings).key == "sk-1"
    assert judge_terms(settings).calls_per_day == 7
