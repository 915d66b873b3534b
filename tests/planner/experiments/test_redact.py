"""A copy to give away: nothing of the original's sensitive fields is in it, whatever was written there."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.experiments.designs import judge
from planner.experiments.redact import band, percent_band, redacted, redacted_json, redacted_text, secrets_of
from planner.experiments.values import (
    Experiment,
    Factor,
    FixedInput,
    Hardware,
    Metric,
    Prediction,
    QualityConstraint,
)
from tests.planner.experiments.sides import changed

#: no numbers: whether a factor was raised or lowered may be known
TEXT = st.text(min_size=1, max_size=20).filter(
    lambda text: not any(c.isdigit() for c in text) and text.strip().lower() not in ("nan", "inf", "infinity")
)


def owned(*texts: str) -> Experiment:
    """An experiment whose every free field holds one of these texts, each field its own."""
    told = list(texts)

    def one() -> str:
        told.append(told.pop(0))
        return told[-1]

    base = changed(0.7)
    arms = [
        replace(arm, name=one(), intended={one(): one()}, effective={f"k{place}": one()}, targets=(one(),), quality_passed=9.0, quality_judged=10.0)
        for place, arm in enumerate((base.baseline, base.candidate))
    ]  # fmt: skip
    made = replace(
        base, id=one(), question=one(), service=one(), model=one(), engine=one(), engine_version=one(), boundary=one(),
        hardware=Hardware(one(), 8.0, (one(), one()), 2.37, one()), inputs=(FixedInput(one(), one(), one()),),
        notes=(one(), one()), recommendation=one(), factor=Factor(one(), one() + "x", one() + "y"),
        quality=QualityConstraint(one()), predictions=(Prediction("e2e_s", 0.6, 0.8, basis=one()),), created_s=1.8e9,
        baseline=arms[0], candidate=arms[1],
    )  # fmt: skip
    renamed = Metric(one(), one(), "lower", "mean")
    return replace(made, verdict=judge(made, at_s=1.8e9), metrics=(*made.metrics, renamed))


WORDS = [f"zq{chr(97 + place)}xw" for place in range(26)] + [f"qj{chr(97 + place)}vk" for place in range(20)]


def test_nothing_of_the_sensitive_fields_is_in_the_copy() -> None:
    one = owned(*WORDS)
    copy = json.dumps(redacted(one), ensure_ascii=False)
    found = [secret for secret in secrets_of(one) if secret in copy]
    assert found == []
    assert len([secret for secret in secrets_of(one) if secret in WORDS]) >= 25  # the scan looked for something
    assert not any(exact in copy for exact in ("2.37", "1800000000", "1.8e9"))


@settings(max_examples=30)
@given(st.lists(TEXT, min_size=40, max_size=40, unique=True), st.lists(TEXT, min_size=40, max_size=40, unique=True))
def test_a_copy_is_the_same_whatever_was_written_in_the_free_fields(one: list[str], other: list[str]) -> None:
    public = {"vllm", "sglang", "tgi", "dynamo", "load", "dtype", "s", "usd", "ratio"}
    assume(not public & {*one, *other})
    assert redacted(owned(*one)) == redacted(owned(*other))


def test_the_qualitative_result_is_kept_and_synthetic_numbers_are_marked() -> None:
    one = changed(0.7)
    one = replace(
        one, engine="vllm", factor=Factor("max_num_seqs", "256", "64"), predictions=(Prediction("e2e_s", 0.6, 0.8),)
    )
    copy: dict[str, Any] = redacted(replace(one, verdict=judge(one)))
    assert copy["verdict"]["outcome"] == "better"
    assert copy["verdict"]["effects"][0]["change"] == "20 to 50 % less"
    assert (copy["engine"], copy["changed"], copy["direction"]) == ("vllm", "max_num_seqs", "lowered")
    assert copy["verdict"]["predicted_inside"] is True
    assert copy["arms"]["synthetic"] is True
    assert copy["arms"]["baseline"]["e2e_s"][2] == pytest.approx(1.0, abs=0.05)
    assert copy["hardware"] == {"gpus": None, "gpu_hour_usd": None, "hosts": None}


def test_prices_and_machines_are_bands() -> None:
    copy: dict[str, Any] = redacted(owned(*WORDS))
    assert copy["hardware"] == {"gpus": "8 to 16", "gpu_hour_usd": "2 to 4", "hosts": "2 to 4"}


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=5), st.text(max_size=80), st.randoms())
def test_a_secret_never_comes_through_in_free_text(secrets: list[str], around: str, rng: Any) -> None:
    assume(all(secret.strip() for secret in secrets))
    pieces = [around, *secrets, *secrets]
    rng.shuffle(pieces)
    copy = redacted_text(" ".join(pieces), secrets)
    rest = "".join(part.partition("⟧")[2] or ("" if "⟧" in part else part) for part in ("⟧" + copy).split("⟦"))
    assert not [secret for secret in secrets if secret.strip() in rest]


@pytest.mark.parametrize(
    "secret",
    [
        "https://gpu-1.corp.example:8000/v1", "10.1.2.3:8000", "node7.rack.internal", "/data/models/x.gguf", "ann@corp.example",
        "2026-11-30T10:00:00Z", "2026-W48", "$2.37", "2.37 USD", "1,200 元", "550e8400-e29b-41d4-a716-446655440000",
        "meta-llama/Llama-3-70B", "deadbeef42", "8xH100", "tp=8", "gpu-7:8000", "1764547200", "C:\\runs\\secret",
    ],
)  # fmt: skip
def test_what_looks_like_a_place_a_day_or_a_price_goes_without_being_named(secret: str) -> None:
    copy = redacted_text(f"We ran it on {secret} and it was better.")
    assert secret not in copy
    assert copy.startswith("We ran it on ⟦1⟧")
    assert copy.endswith("and it was better.")


def test_the_same_name_is_the_same_place() -> None:
    assert redacted_text("Ann beat Bob; ann won.", ["Ann", "Bob"]) == "⟦1⟧ beat ⟦2⟧; ⟦1⟧ won."


KEYS = frozenset({"service", "outcome", "usd", "hit_ratio", "rows", "at_s"})


@given(st.dictionaries(st.text(min_size=1, max_size=8), TEXT, max_size=4), TEXT)
def test_a_reports_strings_and_foreign_keys_become_roles(tenants: dict[str, str], service: str) -> None:
    body = {
        "service": service,
        "outcome": "better",
        "rows": [tenants],
        "usd": 1234.5,
        "at_s": 1.8e9,
        "hit_ratio": 0.8251,
    }
    copy: Any = redacted_json(body, KEYS)
    assert copy["outcome"] == "better"
    assert copy["usd"] == "1024 to 2048"
    assert copy["at_s"] is None
    assert copy["hit_ratio"] == 0.83
    assert copy["service"] == "service 1"
    for row in copy["rows"]:
        assert all(key in KEYS or key.startswith("name ") or key == "service 1" for key in row)
        assert all(value.rsplit(" ", 1)[0] in {"name", *KEYS} for value in row.values())


def test_an_outcome_is_kept_only_where_outcomes_stand() -> None:
    assert redacted_json({"outcome": "better", "service": "better"}, KEYS) == {
        "outcome": "better",
        "service": "service 1",
    }


def test_bands_hold_their_number() -> None:
    assert [band(x) for x in (1.0, 1.99, 2.0, 0.0, -3.0)] == ["1 to 2", "1 to 2", "2 to 4", "0", "below 0"]
    assert [percent_band(x) for x in (0.03, -0.5, 3.0)] == ["2 to 5 % more", "50 to 100 % less", "100 % and more more"]
