"""A deployment, a traffic and a load to one page of figures: a month, a million tokens, idle time, phases. Pure.

Where the load is told in requests or tokens, the cost of a token is the bill over what is served, and speed decides
only how many GPUs that takes and how full they are. Where a utilisation is told, speed decides the cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Final

from goodwatch.core.errors import ConfigError
from planner.cost.interval import product, quotient
from planner.cost.phases import Phases, SplitCost, phases, split_cost
from planner.cost.prices import GpuPrice, Overrides, held, price_of
from planner.cost.unit import SECONDS_PER_DAY, Traffic, check_utilisation, good_tokens, per_million, per_month
from planner.estimate import Estimate, exactly
from planner.speed.deployment import Deployment
from planner.speed.efficiency import Fitted, factors
from planner.speed.prediction import Load, predicted
from planner.speed.steps import Lengths

#: share of the rate that is kept free where GPUs are counted for a load and the operator names none
HEADROOM: Final = 0.3
_MOST_GPUS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Demand:
    """What is served; exactly one is told. ``tokens_per_day``: input and output; ``utilisation``: of the full rate."""

    requests_per_s: float | None = None
    tokens_per_day: float | None = None
    utilisation: float | None = None

    def checked(self) -> Demand:
        """The same. Raises ConfigError where none or several are told, or one is absurd."""
        told = {
            "--requests-per-s": self.requests_per_s, "--tokens-per-day": self.tokens_per_day, "--utilisation": self.utilisation,
        }  # fmt: skip
        given = [flag for flag, value in told.items() if value is not None]
        if len(given) != 1:
            what = f"{' and '.join(given)} contradict each other" if given else "how much is served is not told"
            raise ConfigError(f"{what}: give one of {', '.join(told)}")
        value = told[given[0]]
        if given[0] == "--utilisation":
            check_utilisation(value or 0.0, "--utilisation")
        elif value is None or not 0 < value < 1e15:
            raise ConfigError(f"{given[0]} {value:g}: is not above 0")
        return self

    def requests(self, traffic: Traffic) -> float | None:
        """Requests per second; None where a utilisation is told."""
        if self.tokens_per_day is not None:
            return self.tokens_per_day / SECONDS_PER_DAY / traffic.tokens
        return self.requests_per_s


@dataclass(frozen=True, slots=True)
class Asked:
    """One question.

    ``one``: an instance of the engine on ``one.gpus`` cards; ``gpus``: held in all, None is "as many as it takes";
    ``concurrency``: requests at once at which an instance counts as full, None for all that it can do;
    ``measured``: output tokens/s of an instance as the operator measured it, instead of the speed model;
    ``headroom_ratio``: share of the rate that is kept free, None is "not told".
    """

    one: Deployment
    gpu: str
    traffic: Traffic
    demand: Demand
    gpus: int | None = None
    concurrency: float | None = None
    measured: float | None = None
    headroom_ratio: float | None = None
    price_kind: str = "on-demand"
    overrides: Overrides = field(default_factory=Overrides)


@dataclass(frozen=True, slots=True)
class Sheet:
    """The page. Rates are of all instances; ``paid_gpus`` are whole hosts where those are paid whole.

    ``idle_usd`` and ``headroom_usd``: parts of the month's bill for rate that is not used: by chance, and kept on purpose.
    ``full``: per million output tokens if every instance were full all the time. ``instances`` is a range where GPUs were
    counted for a load. ``unknown`` is in the intervals, ``risks`` is not.
    """

    asked: Asked
    price: GpuPrice
    instances: Estimate
    gpus: int
    paid_gpus: int
    usd_per_hour: Estimate
    usd_per_month: Estimate
    most_output_tokens_per_s: Estimate
    served_requests_per_s: Estimate
    utilisation: Estimate
    output: Estimate
    total: Estimate
    good: Estimate | None
    full: Estimate
    idle_usd: Estimate
    headroom_usd: Estimate
    headroom_ratio: float
    phases: Phases
    split: SplitCost
    unknown: tuple[str, ...]
    risks: tuple[str, ...]

    @property
    def most_requests_per_s(self) -> Estimate:
        """Requests per second of every instance full."""
        return self.most_output_tokens_per_s.scaled(1 / self.asked.traffic.output_tokens)

    @property
    def standing_usd_per_hour(self) -> Estimate:
        """Of these GPUs, without the doubt of how many a load takes."""
        return self.price.usd_per_gpu_hour.scaled(self.paid_gpus)

    @property
    def lengths(self) -> Lengths:
        """Lengths of a request as the speed model takes them."""
        return lengths_of(self.asked.traffic)


@dataclass(frozen=True, slots=True)
class _Rate:
    """Output tokens/s of one full instance, and its batch."""

    tokens_per_s: Estimate
    running: float
    unknown: tuple[str, ...]


def lengths_of(traffic: Traffic) -> Lengths:
    """The traffic in the speed model's form."""
    return Lengths(traffic.input_tokens, traffic.output_tokens, traffic.cached_ratio)


def cost_sheet(asked: Asked, fitted: Fitted) -> Sheet:
    """Everything about one question.

    Raises
    ------
    ConfigError
        Figures are absurd or contradict each other, no price is known, or the load is more than the GPUs can do.
    """
    traffic, demand = asked.traffic.checked(), asked.demand.checked()
    kept = _headroom(asked)
    rate = _rate(asked, fitted)
    price = price_of(asked.gpu, asked.price_kind, asked.overrides)
    instances, gpus = _instances(asked, rate, kept)
    most = product(rate.tokens_per_s, exactly(instances.point), basis=rate.tokens_per_s.basis)
    served, use = _use(demand, traffic, most, asked)
    usd, paid = _bill(asked, price, instances, gpus)
    served_tokens = served.scaled(traffic.output_tokens)
    output = _output(usd, most, served_tokens, use, demand)
    month = per_month(usd)
    by = factors(fitted, asked.one)
    each = rate.tokens_per_s.point / traffic.output_tokens
    parts = phases(asked.one, by, lengths_of(traffic), rate.running, each)
    spare = max(0.0, 1 - use.point)
    reserve = min(kept, spare)
    return Sheet(
        asked, price, instances, gpus, paid, usd, month, most, served, use, output, _total(output, traffic),
        good_tokens(output, traffic.good_ratio), per_million(price.usd_per_gpu_hour.scaled(paid), most), _part(month, use, spare - reserve, reserve),
        _reserved(month, reserve), kept, parts,
        split_cost(output, parts.prefill_ratio, lengths_of(traffic)), _unknown(price, rate), _risks(asked, use, gpus, paid, kept),
    )  # fmt: skip


def _headroom(asked: Asked) -> float:
    if asked.headroom_ratio is None:
        return HEADROOM if asked.gpus is None and asked.demand.utilisation is None else 0.0
    if not 0 <= asked.headroom_ratio < 1:
        raise ConfigError(f"--headroom {asked.headroom_ratio:g}: is not a share of 0 to below 1")
    return asked.headroom_ratio


def _rate(asked: Asked, fitted: Fitted) -> _Rate:
    """A full instance: as measured by the operator, else as the speed model says."""
    at_once = asked.concurrency
    if at_once is not None and not 1 <= at_once <= 1_000_000:
        raise ConfigError(f"--concurrency {at_once:g}: is not from 1 to 1,000,000")
    load = Load("closed_loop" if at_once else "max_throughput", lengths_of(asked.traffic), at_once or 1.0)
    found = predicted(asked.one, load, fitted)
    point = found.output_tokens_per_s
    where = f"{at_once:g} requests at once" if at_once else "every request queued"
    if asked.measured is None:
        basis = f"full is {where}: {point.point:,.0f} output tokens/s an instance by the speed model"
        return _Rate(Estimate(point.point, point.low, point.high, basis), found.running, found.unknown)
    if not 0 < asked.measured < 1e9:
        raise ConfigError(f"--measured-tokens-per-s {asked.measured:g}: is not above 0")
    basis = f"full is {asked.measured:,.0f} output tokens/s an instance, measured by you"
    return _Rate(exactly(asked.measured, basis), found.running, ())


def _instances(asked: Asked, rate: _Rate, kept: float) -> tuple[Estimate, int]:
    """How many instances, and cards for them; a range where they are counted for a load."""
    each = asked.one.gpus
    if asked.gpus is not None:
        if not 1 <= asked.gpus <= _MOST_GPUS:
            raise ConfigError(f"--gpus {asked.gpus}: is not from 1 to {_MOST_GPUS:,}")
        if asked.gpus < each:
            raise ConfigError(f"--gpus {asked.gpus}: one instance takes {each} (--tp x --pp x --dp)")
        return exactly(asked.gpus // each, f"--gpus over {each} of an instance"), asked.gpus
    requests = asked.demand.requests(asked.traffic)
    if requests is None:
        return exactly(1, "one instance: no load in requests and no --gpus are told"), each
    wanted = requests * asked.traffic.output_tokens / (1 - kept)
    by = rate.tokens_per_s
    low, point, high = (max(1, ceil(wanted / one)) for one in (by.high, by.point, by.low))
    if point * each > _MOST_GPUS:
        raise ConfigError(f"the load would take {point * each:,} GPUs: is the unit right?")
    return Estimate(point, low, high, f"counted for the load with {kept:.0%} kept free"), point * each


def _use(demand: Demand, traffic: Traffic, most: Estimate, asked: Asked) -> tuple[Estimate, Estimate]:
    """Requests per second that are served, and the share of the full rate that they take."""
    requests = demand.requests(traffic)
    if requests is None:
        use = exactly(demand.utilisation or 0.0, "utilisation given by you")
        served = product(most, use, basis="utilisation times the full rate")
        return served.scaled(1 / traffic.output_tokens), use
    full = most.scaled(1 / traffic.output_tokens)
    use = quotient(exactly(requests), full, f"{_short(requests)} requests/s of {_short(full.point)} at full load")
    if use.point > 1:
        needed = ceil(use.point * ((asked.gpus or 0) // asked.one.gpus)) * asked.one.gpus
        raise ConfigError(
            f"--gpus {asked.gpus}: do at most {_short(full.point)} requests/s of this traffic ({_short(full.low)} to {_short(full.high)}), "
            f"{_short(requests)} are asked: it takes at least {needed:,} GPUs, more with headroom"
        )
    return exactly(requests, "requests served, given by you"), use


def _short(per_s: float) -> str:
    """A rate in words, without exponents."""
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"


def _bill(asked: Asked, price: GpuPrice, instances: Estimate, gpus: int) -> tuple[Estimate, int]:
    """USD per hour of all cards that are paid, and how many those are; a range of cards is in the interval."""
    paid = held(gpus, asked.overrides)
    fewest, most = (held(int(one) * asked.one.gpus, asked.overrides) for one in (instances.low, instances.high))
    cards = Estimate(paid, fewest, most) if fewest < most else exactly(paid)
    usd = product(price.usd_per_gpu_hour, cards)
    basis = f"{paid:,} GPUs at {price.usd_per_gpu_hour.point:.4g} USD/h; {price.usd_per_gpu_hour.basis}"
    return Estimate(usd.point, usd.low, usd.high, basis), paid


def _output(usd: Estimate, most: Estimate, served_tokens: Estimate, use: Estimate, demand: Demand) -> Estimate:
    if demand.utilisation is not None:
        return per_million(usd, most, utilisation=use)
    basis = f"{use.basis}; {most.basis}" if most.basis else use.basis
    told = per_million(usd, served_tokens)  # what is served is known: how fast it could go is not in it
    text = f"per million output tokens, {use.point:.0%} used: {basis}; {usd.basis}"
    return Estimate(told.point, told.low, told.high, text)


def _total(output: Estimate, traffic: Traffic) -> Estimate:
    found = output.scaled(traffic.output_tokens / traffic.tokens)
    mix = f"{traffic.input_tokens:,.0f} in ({traffic.cached_ratio:.0%} cached) to {traffic.output_tokens:,.0f} out"
    basis = output.basis.replace("per million output tokens", f"per million input and output tokens, {mix}", 1)
    return Estimate(found.point, found.low, found.high, basis)


def _part(month: Estimate, use: Estimate, idle: float, reserve: float) -> Estimate:
    """The part of the month's bill for rate that is neither used nor kept on purpose."""
    low, high = (max(0.0, 1 - one - reserve) for one in (use.high, use.low))
    basis = f"{idle:.0%} of the month's bill: rate that is neither used nor kept free"
    return Estimate(month.point * idle, month.low * min(low, idle), month.high * max(high, idle), basis)


def _reserved(month: Estimate, reserve: float) -> Estimate:
    basis = f"{reserve:.0%} of the month's bill: rate kept free on purpose"
    return Estimate(month.point * reserve, month.low * reserve, month.high * reserve, basis)


def _unknown(price: GpuPrice, rate: _Rate) -> tuple[str, ...]:
    return (*price.unknown, *rate.unknown)


def _risks(asked: Asked, use: Estimate, gpus: int, paid: int, kept: float) -> tuple[str, ...]:
    risks = []
    if asked.demand.utilisation is None and use.high > 1:
        risks.append(f"at the slow end of the speed band the load is {use.high:.0%} of what these GPUs can do")
    if left := gpus % asked.one.gpus:
        risks.append(f"{left} of {gpus} GPUs hold no instance ({asked.one.gpus} GPUs each) and are paid")
    if paid > gpus:
        risks.append(f"{paid - gpus} of {paid} GPUs are paid because hosts are paid whole")
    if asked.concurrency is None and asked.measured is None:
        risks.append(
            "full load here is the most that the engine can do; latency targets allow less: give --concurrency"
        )
    if asked.headroom_ratio is None and kept:
        risks.append(f"{kept:.0%} of the rate is kept free because --headroom was not told")
    return tuple(risks)
