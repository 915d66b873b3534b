"""Cost for the command line: files and flags to sheets, comparisons and levers.

How they look, as JSON and as a page, is in ``goodwatch.app.plan_cost_page``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from goodwatch.app._cases import read_cases
from goodwatch.app.config import Prices
from goodwatch.app.prices import STALE_AFTER_DAYS, load_prices
from goodwatch.core.errors import ConfigError
from planner.catalogue import engine_budgets
from planner.cost.api_prices import api_quote
from planner.cost.breakeven import Comparison, compared
from planner.cost.cases import rows
from planner.cost.levers import MARGIN, Effect, Quality, Routed, prefix_cache, routed, trimmed
from planner.cost.owned import Owned
from planner.cost.prices import KINDS, GpuPrice, Offer, Overrides, card_name, newest_day
from planner.cost.sheet import Asked, Demand, Sheet, cost_sheet
from planner.cost.unit import Traffic
from planner.estimate import Estimate, exactly
from planner.speed.deployment import Deployment, Named, deployment
from planner.speed.efficiency import factors, shipped
from planner.tensors import Layout

_TENSOR_PARALLEL: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class CostOptions:
    """Flags of ``goodwatch plan cost``; ``None`` is "not given"."""

    model: str
    gpu: str
    gpus: int | None = None
    engine: str = "vllm"
    engine_version: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    tp: int | None = None
    pp: int = 1
    ep: int = 1
    dp: int = 1
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    cached_ratio: float = 0.0
    good_ratio: float | None = None
    requests_per_s: float | None = None
    tokens_per_day: float | None = None
    utilisation: float | None = None
    headroom: float | None = None
    concurrency: float | None = None
    measured_tokens_per_s: float | None = None
    price: str = "on-demand"
    price_list: Path | None = None
    host_gpus: int | None = None
    spot_loss: float | None = None
    capex_usd: float | None = None
    depreciation_years: float | None = None
    power_watts: float | None = None
    pue: float | None = None
    usd_per_kwh: float | None = None
    hosting_usd_per_month: float | None = None
    compare: tuple[str, ...] = ()
    what_if_hit_ratio: float | None = None
    what_if_trim: float | None = None
    route_share: float | None = None
    route_usd_per_m: float | None = None
    route_model: str | None = None
    route_gpu: str | None = None
    route_quantization: str | None = None
    route_utilisation: float | None = None
    route_price: str | None = None
    route_escalated: float = 0.0
    route_quality_loss: float | None = None
    route_quality_margin: float = MARGIN


@dataclass(frozen=True, slots=True)
class Routing:
    """A small model for a share of the tokens: ``small`` per million output tokens; the big GPUs given back, or kept."""

    share: float
    small: Estimate
    given_back: Routed
    kept: Routed | None


@dataclass(frozen=True, slots=True)
class CostAnswer:
    """Everything about one question."""

    options: CostOptions
    sheet: Sheet
    comparisons: tuple[Comparison, ...]
    effects: tuple[Effect, ...]
    routing: Routing | None
    notes: tuple[str, ...]


def cost(options: CostOptions, at: datetime | None = None) -> CostAnswer:
    """The answer to what the flags ask; API prices as of ``at`` (now where it is None).

    Raises
    ------
    ConfigError
        A flag is missing, absurd, contradicts another, or names something unknown.
    """
    one, notes = _instance(options)
    kind, overrides = _price(options)
    traffic = Traffic(options.input_tokens, options.output_tokens, options.cached_ratio, options.good_ratio)
    asked = Asked(
        one, card_name(options.gpu), traffic, Demand(options.requests_per_s, options.tokens_per_day, options.utilisation),
        options.gpus, options.concurrency, options.measured_tokens_per_s, options.headroom, kind, overrides,
    )  # fmt: skip
    sheet = cost_sheet(asked, shipped())
    now = at or datetime.now(UTC)
    comparisons = tuple(
        compared(
            api_quote(name, traffic, now), traffic, usd_per_hour=sheet.usd_per_hour, requests_per_s=sheet.served_requests_per_s,
            most_requests_per_s=sheet.most_requests_per_s, headroom_ratio=sheet.headroom_ratio, instances=sheet.instances.point,
            standing_usd_per_hour=sheet.standing_usd_per_hour,
        )
        for name in options.compare
    )  # fmt: skip
    notes = (*notes, *_stale(sheet.price, now))
    return CostAnswer(options, sheet, comparisons, _effects(options, sheet), _routing(options, sheet), notes)


def case_rows(path: Path) -> list[dict[str, Any]]:
    """One row a case of a file in the schema of cost cases; answers that the file holds are not read.

    Raises
    ------
    ConfigError
        The file cannot be read or holds no cases.
    """
    return rows(read_cases(path))


def _instance(options: CostOptions) -> tuple[Deployment, tuple[str, ...]]:
    """The engine instance that the flags describe; the smallest tensor parallelism that holds it where none is told."""
    if options.engine not in engine_budgets():
        raise ConfigError(f"--engine {options.engine}: unknown; known are {', '.join(sorted(engine_budgets()))}")
    for flag in ("tp", "pp", "ep", "dp"):
        if (ranks := getattr(options, flag)) is not None and ranks < 1:
            raise ConfigError(f"--{flag} {ranks}: is below 1")
    if options.tp is not None:
        found = _deployed(options, options.tp)
        if not _holds(found, options):
            raise ConfigError(
                f"--tp {options.tp}: {options.model} leaves no room for a request on {found.gpus} x {found.card}; "
                "more --tp, a smaller --quantization, or see goodwatch plan vram"
            )
        return found, ()
    most = options.gpus or max(_TENSOR_PARALLEL)
    for tp in (one for one in _TENSOR_PARALLEL if one * options.pp * options.dp <= most):
        found = _deployed(options, tp)
        if _holds(found, options):
            return found, () if tp == 1 else (f"--tp {tp} is taken: the smallest that holds the model",)
    raise ConfigError(
        f"--model {options.model}: does not fit {most} x {options.gpu} with a request of this length; more --gpus, a "
        "smaller --quantization, or see goodwatch plan vram"
    )


def _deployed(options: CostOptions, tp: int) -> Deployment:
    layout = Layout(tp, options.pp, options.ep, options.dp)
    return deployment(
        Named(
            options.model, options.quantization or "bf16", options.gpu, tp * options.pp * options.dp, options.engine,
            options.engine_version or "", layout, None if options.kv_cache_dtype == "auto" else options.kv_cache_dtype,
        )
    )  # fmt: skip


def _holds(one: Deployment, options: CostOptions) -> bool:
    return one.kv_tokens >= options.input_tokens + options.output_tokens


def _price(options: CostOptions) -> tuple[str, Overrides]:
    """Terms of the price and what the operator knows better than the lists."""
    owned = None
    facts = (
        options.depreciation_years,
        options.power_watts,
        options.pue,
        options.usd_per_kwh,
        options.hosting_usd_per_month,
    )
    if options.price != "owned":
        if options.capex_usd is not None or any(one is not None for one in facts):
            raise ConfigError(
                f"--capex-usd and what belongs to it: only with --price owned, not --price {options.price}"
            )
    elif options.capex_usd is not None:
        owned = Owned(options.capex_usd, *facts)
    kind, usd = options.price, None
    if kind not in KINDS:
        kind, usd = "on-demand", _usd(options.price)
    if options.spot_loss is not None and kind != "spot":
        raise ConfigError(f"--spot-loss: only with --price spot, not --price {options.price}")
    if usd is not None and options.price_list is not None:
        raise ConfigError(f"--price {options.price} and --price-list contradict each other: give one")
    source = "given with --price" if usd is not None else ""
    offers = _offers(options.price_list) if options.price_list else ()
    return kind, Overrides(usd, source, "", options.host_gpus, options.spot_loss, owned, offers)


def _usd(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--price {text}: unknown; {', '.join(KINDS)}, or USD per GPU-hour as in 2.49") from None


def _offers(path: Path) -> tuple[Offer, ...]:
    """The operator's own price list, in the form that the configuration takes too."""
    if not path.is_file():
        raise ConfigError(f"--price-list {path}: is no file")
    book = load_prices(Prices(file=path.resolve()))
    return tuple(
        Offer(card_name(row.gpu), row.provider, row.kind, row.gpu_hour_usd, row.as_of.isoformat(), f"{where}: {row.source}", True)
        for where, row in book.rows
    )  # fmt: skip


def _stale(price: GpuPrice, now: datetime) -> tuple[str, ...]:
    day = newest_day(price.as_of)
    age_days = (now.date() - day).days if day else 0
    return (f"the newest of these GPU prices is {age_days} days old",) if age_days > STALE_AFTER_DAYS else ()


def _effects(options: CostOptions, sheet: Sheet) -> tuple[Effect, ...]:
    one, by = sheet.asked.one, factors(shipped(), sheet.asked.one)
    found = []
    if options.what_if_hit_ratio is not None:
        found.append(prefix_cache(one, by, sheet.lengths, sheet.phases.running, options.what_if_hit_ratio))
    if options.what_if_trim is not None:
        found.append(trimmed(one, by, sheet.lengths, sheet.phases.running, options.what_if_trim))
    return tuple(found)


def _routing(options: CostOptions, sheet: Sheet) -> Routing | None:
    """Both ends of what routing does: the big model's GPUs go with its traffic, or they stay and stand emptier."""
    if options.route_share is None:
        if options.route_model or options.route_usd_per_m is not None or options.route_quality_loss is not None:
            raise ConfigError("--route-…: --route-share is missing, the share of tokens for the small model")
        return None
    quality = None
    if options.route_quality_loss is not None:
        quality = Quality(options.route_quality_loss, options.route_quality_margin)
    share, escalated, big = options.route_share, options.route_escalated, sheet.output
    small = _small(options, sheet)
    given_back = routed(small, big, share, escalated=escalated, quality=quality)
    left = 1 - share + share * escalated
    before = min(1.0, sheet.utilisation.point)
    kept = None
    if 0 < left < 1:
        kept = routed(small, big, share, escalated=escalated, big_use=(before, before * left), quality=quality)
    return Routing(share, small, given_back, kept)


def _small(options: CostOptions, sheet: Sheet) -> Estimate:
    """USD per million output tokens of the small model: told, or of its own sheet at the big one's utilisation."""
    if options.route_usd_per_m is not None:
        if options.route_model is not None:
            raise ConfigError("--route-usd-per-m and --route-model contradict each other: give one")
        if not 0 < options.route_usd_per_m < 1e6:
            raise ConfigError(f"--route-usd-per-m {options.route_usd_per_m:g}: is not above 0")
        return exactly(options.route_usd_per_m, "per million output tokens, given with --route-usd-per-m")
    if options.route_model is None:
        raise ConfigError(
            "--route-share: what the small model costs is not told; give --route-model or --route-usd-per-m"
        )
    gpu = options.route_gpu or options.gpu
    use = min(1.0, sheet.utilisation.point) if options.route_utilisation is None else options.route_utilisation
    small = replace(
        options, model=options.route_model, gpu=gpu, quantization=options.route_quantization, tp=None, pp=1, ep=1, dp=1, gpus=None,
        requests_per_s=None, tokens_per_day=None, utilisation=use, measured_tokens_per_s=None, headroom=None, compare=(),
        what_if_hit_ratio=None, what_if_trim=None, route_share=None, route_model=None, route_quality_loss=None,
    )  # fmt: skip
    return cost(_priced_as_told(small, gpu, sheet)).sheet.output


def _priced_as_told(small: CostOptions, gpu: str, sheet: Sheet) -> CostOptions:
    """The small model's question with the price of its own card; a figure for the big one's card is not taken for it."""
    price = small.route_price
    if price is None:
        if small.price not in KINDS[:3] and card_name(gpu) != sheet.asked.gpu:
            raise ConfigError(f"--price {small.price} is of {sheet.asked.gpu}: give --route-price for {gpu}")
        return small
    return replace(
        small, price=price, capex_usd=None, depreciation_years=None, power_watts=None, pue=None, usd_per_kwh=None,
        hosting_usd_per_month=None, spot_loss=small.spot_loss if price == "spot" else None,
        price_list=small.price_list if price in KINDS else None,
    )  # fmt: skip
