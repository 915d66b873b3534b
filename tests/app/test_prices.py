from datetime import date
from pathlib import Path

import pytest

from goodwatch.app.config import Prices, SettingsError, TargetEntry, load
from goodwatch.app.prices import PriceBook, load_prices

TODAY = date(2026, 6, 30)
LIST = """\
prices:
  - {gpu: H100 SXM, provider: acme, gpu_hour_usd: 2.49, as_of: 2026-06-01, source: https://acme.example/p, kind: spot}
  - {gpu: h100 sxm, provider: acme, gpu_hour_usd: 3.99, as_of: 2025-06-01, source: a letter}
  - {gpu: A100, provider: acme, gpu_hour_usd: 1.1, as_of: "2026-01-01", source: a letter}
  - {gpu: L4, provider: acme, gpu_hour_usd: 0.4, as_of: 2026-06-01, source: a letter}
  - {gpu: L4, provider: other, gpu_hour_usd: 0.7, as_of: 2026-06-01, source: a letter}
  - {gpu: B200, provider: acme, gpu_hour_usd: 5, as_of: 2026-07-01, source: a letter}
"""


@pytest.fixture
def book(tmp_path: Path) -> PriceBook:
    path = tmp_path / "prices.yaml"
    path.write_text(LIST)
    return load_prices(Prices(gpu_hour_usd={"H200": 3.5}, file=path))


def of(gpu: str | None, usd: float | None = None) -> TargetEntry:
    return TargetEntry.model_validate({"url": "http://a:1", "gpu": gpu, "gpu_hour_usd": usd})


def test_the_price_of_the_target_comes_first(book: PriceBook) -> None:
    price = book.price_of(of("H200", 1.5), today=TODAY)
    assert price is not None
    assert (price.gpu_hour_usd, price.origin, price.as_of, price.warning) == (
        1.5,
        "gpu_hour_usd of the target",
        None,
        None,
    )


def test_the_configured_price_of_the_type_comes_before_the_list(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(LIST)
    book = load_prices(Prices(gpu_hour_usd={"h100 SXM": 9.0}, file=tmp_path / "p.yaml"))
    price = book.price_of(of("H100 sxm"), today=TODAY)
    assert price is not None
    assert (price.gpu_hour_usd, price.origin) == (9.0, "prices.gpu_hour_usd of h100 SXM")


def test_the_newest_row_is_taken_in_any_case_with_its_place_and_date(book: PriceBook) -> None:
    price = book.price_of(of("h100 SXM"), today=TODAY)
    assert price is not None
    assert (price.gpu_hour_usd, price.as_of, price.warning) == (2.49, date(2026, 6, 1), None)
    assert price.origin == "prices.yaml:2: acme, spot, https://acme.example/p"


@pytest.mark.parametrize("target", [of(None), of("MI300X")])
def test_an_unknown_price_is_none_and_not_zero(book: PriceBook, target: TargetEntry) -> None:
    assert book.price_of(target, today=TODAY) is None


@pytest.mark.parametrize(
    ("gpu", "today", "warning"),
    [
        ("A100", date(2026, 6, 30), None),  # 180 days
        ("A100", date(2026, 7, 1), "the price of A100 is 181 days old"),
        ("B200", TODAY, "the price of B200 is dated 2026-07-01, in the future"),
        ("L4", TODAY, "rows of the same day say 0.4 to 0.7 USD for L4; the first was taken"),
    ],
)
def test_a_doubtful_price_is_used_with_a_warning(book: PriceBook, gpu: str, today: date, warning: str | None) -> None:
    price = book.price_of(of(gpu), today=today)
    assert price is not None
    assert price.warning == warning


def test_all_problems_of_a_list_come_at_once_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "prices:\n"
        "  - {gpu: L4, provider: a, gpu_hour_usd: 0, as_of: 2026-01-01, source: x}\n"
        "  - {gpu: L4, provider: a, gpu_hour_usd: 1, as_of: 20260101, source: x}\n"
        "  - {gpu: L4, provider: a, gpu_hour_usd: 1, as_of: 2026-01-01, sorce: x}\n"
        "  - {gpu: L4, provider: a, gpu_hour_usd: 1, as_of: 2026-01-01T10:00:00, source: x}\n"
    )
    with pytest.raises(SettingsError) as caught:
        load_prices(Prices(file=path))
    assert str(caught.value).replace(str(path), "p.yaml").split("\n") == [
        "p.yaml:2: prices[0].gpu_hour_usd: 0 is not above 0; leave the key out when it is not known",
        "p.yaml:3: prices[1].as_of: 20260101 is not a date; write year-month-day, as in 2026-01-31",
        "p.yaml:4: prices[2].source: missing; required: where it was read: a URL or a sentence",
        "p.yaml:4: prices[2].sorce: unknown key; did you mean 'source'?",
        "p.yaml:5: prices[3].as_of: 2026-01-01 10:00:00 is not a date; write year-month-day, as in 2026-01-31",
    ]


def test_the_file_is_found_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "goodwatch.yaml").write_text("prices: {file: p.yaml}")
    (tmp_path / "p.yaml").write_text(LIST)
    settings = load(tmp_path / "goodwatch.yaml", engines=(), environ={})
    assert load_prices(settings.prices).price_of(of("A100"), today=TODAY) is not None


def test_a_list_that_is_gone_is_an_error_of_the_same_shape(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"p\.yaml: does not exist"):
        load_prices(Prices(file=tmp_path / "p.yaml"))
