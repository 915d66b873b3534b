"""The section ``quality`` of the configuration file, by itself."""

from typing import Any

import pytest
from pydantic import ValidationError

from goodwatch.app._quality_sections import Quality
from goodwatch.app._schema import settings
from goodwatch.core.quality import EvaluatorRule, Price

JUDGE = {"endpoint": "http://127.0.0.1:8000/v1", "model": "judge-1"}


def quality(**keys: Any) -> Quality:
    return Quality.model_validate(keys)


def test_nothing_is_kept_and_nobody_judges_unless_it_is_written() -> None:
    found = quality()
    assert (found.keep_text, found.judge, found.checks) == (False, None, True)


def test_rules_are_read() -> None:
    toxic = {
        "name": "toxicity",
        "better": "lower",
        "pass_from": 0.2,
        "pass_labels": ["None"],
        "fail_labels": ["Severe"],
    }
    rules = quality(pass_from=0.6, evaluators=[toxic]).rules
    assert rules.evaluators["toxicity"] == EvaluatorRule(
        0.2, lower_is_better=True, labels={"none": True, "severe": False}
    )
    assert rules.passes("helpful", 0.55, None) is False


def test_a_judge_has_a_price_and_a_cap() -> None:
    prices = {"usd_per_million_input_tokens": 0.5, "usd_per_million_output_tokens": 0, "usd_per_day": 3}
    judge = quality(keep_text=True, judge=JUDGE | prices).judge
    assert judge is not None
    assert judge.price == Price(0.5, 0.0)


def test_a_key_is_not_shown() -> None:
    judge = quality(keep_text=True, judge=JUDGE | {"key": "sk-very-secret"}).judge
    assert "very-secret" not in repr(judge)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"judge": JUDGE}, "write keep_text: true"),
        ({"keep_text": True, "judge": JUDGE | {"usd_per_day": 3}}, "cannot be held without prices"),
        ({"keep_text": True, "judge": JUDGE | {"usd_per_million_input_tokens": 1}}, "one price is missing"),
        ({"keep_text": True, "judge": JUDGE | {"key": "a", "key_file": "b"}}, "keep one of them"),
        ({"keep_text": True, "judge": {"model": "m"}}, "endpoint"),
        ({"keep_text": True, "judge": JUDGE | {"endpoint": "localhost:8000"}}, "scheme"),
        ({"pass_from": 1.5}, "between 0 and 1"),
        ({"keep_text_ratio": 0}, "above 0"),
        ({"evaluators": [{"name": "x"}, {"name": "x"}]}, "there twice"),
        ({"evaluators": [{"name": "x", "pass_labels": ["Yes"], "fail_labels": ["yes"]}]}, "keep it in one of them"),
        ({"redact": [{"name": "x", "pattern": "("}]}, "not a regular expression"),
        ({"redact": [{"name": "x", "pattern": "a*"}]}, "empty text"),
        ({"redact": [{"name": "x", "pattern": "(a+)+$"}]}, "for ever"),
        ({"keeptext": True}, "Extra"),
    ],
)
def test_what_cannot_work_is_refused(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        quality(**keys)
    assert says in str(caught.value)


def test_every_setting_has_a_row_of_its_own_in_the_table() -> None:
    rows = {row.key: row for row in settings(Quality.model_json_schema(by_alias=True))}
    assert {
        "evaluators[].pass_from",
        "redact[].pattern",
        "judge.usd_per_day",
        "keep_text_for",
        "text_limit",
    } <= rows.keys()
    assert all(row.meaning for row in rows.values())
    assert (rows["text_limit"].default, rows["keep_text_for"].default, rows["judge.key"].type) == (
        "`1GiB`",
        "`7d`",
        "secret",
    )
