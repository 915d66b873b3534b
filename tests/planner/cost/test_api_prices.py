import socket
from datetime import UTC, date, datetime

import pytest

from goodwatch.core.errors import ConfigError
from planner.cost.api_prices import api_quote, data_date
from planner.cost.unit import Traffic

AT = datetime(2026, 12, 1, tzinfo=UTC)


def test_a_request_costs_its_input_cached_input_and_output() -> None:
    # OpenAI's price page, read 2026-10-12 by genai-prices: gpt-5-mini 0.25 in, 0.025 cached, 2.00 out per million
    found = api_quote("openai/gpt-5-mini", Traffic(1000, 300, 0.5), AT)
    assert found.usd_per_request == pytest.approx((500 * 0.25 + 500 * 0.025 + 300 * 2) / 1e6)
    assert (found.input_usd, found.cached_usd, found.output_usd) == (0.25, 0.025, 2.0)
    assert found.source.startswith("genai-prices ")
    assert "price changes in it up to 20" in found.source


def test_cached_input_without_a_price_of_its_own_is_other_input_and_said() -> None:
    found = api_quote("groq/llama-3.3-70b-versatile", Traffic(1000, 300, 0.5), AT)
    assert found.usd_per_request == pytest.approx((1000 * 0.59 + 300 * 0.79) / 1e6)  # Groq's price page
    assert any("no price of cached input" in note for note in found.notes)


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("opened a socket")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert api_quote("openai/gpt-4o", Traffic(1000, 300), AT).usd_per_request > 0


def test_a_model_with_a_slash_in_its_name_is_found() -> None:
    assert api_quote("groq/qwen/qwen3-32b", Traffic(10, 10), AT).name == "groq/qwen/qwen3-32b"


def test_a_price_holds_from_its_day_on() -> None:
    name = "openrouter/meta-llama/llama-3.3-70b-instruct"
    before, after = (api_quote(name, Traffic(1e6, 1), datetime(2026, month, 30, tzinfo=UTC)) for month in (9, 11))
    assert before.usd_per_request != after.usd_per_request
    assert after.as_of


def test_announced_prices_do_not_make_the_data_newer() -> None:
    found = data_date(date(2026, 12, 1))
    assert found is not None
    assert found < date(2026, 12, 1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt-5-mini", "write it as provider/model"),
        ("opnai/gpt-5-mini", "no provider opnai; near it: openai"),
        ("openai/gpt-99", "OpenAI has no such model; near it: gpt-"),
        ("openai/", "write it as provider/model"),
    ],
)
def test_unknown_names_say_what_is_near(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        api_quote(name, Traffic(10, 10), AT)
