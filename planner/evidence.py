"""What a recommendation is made from: a running service as it was measured, and the models that were fitted to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from goodwatch.core.drift import Drift
from planner.estimate import Estimate
from planner.simulate.run import Limits
from planner.simulate.setup import Fleet
from planner.simulate.trace import Trace
from planner.speed.deployment import Named
from planner.vram import Request


@dataclass(frozen=True, slots=True)
class Seen:
    """What was measured in the evidence window; None is "not told", never 0.

    ``attained``: lower and upper end of attainment; ``requests``: that ended; ``ttft_p99_s``, ``tpot_p99_s``: at the
    vantage point that the SLO is judged at; ``usd_per_hour``: of all GPUs that the service holds; the rest are means over
    the window but ``running_peak``; ``off_scale``: latencies that lie above the engine's last bucket.
    """

    requests: int
    attained: tuple[float, float] | None = None
    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None
    usd_per_hour: float | None = None
    running: float | None = None
    running_peak: float | None = None
    waiting: float | None = None
    kv_used_ratio: float | None = None
    prefix_hit_ratio: float | None = None
    preemptions_per_hour: float | None = None
    acceptance_ratio: float | None = None
    longest_tokens: int | None = None
    off_scale: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """One service at one time.

    ``fleet``: replicas with the cost of a step as fitted to this deployment, and its limits; ``sigma``: one-sigma error
    of that cost (log units); ``trace``: requests as they arrived, the whole service's; ``objective``: share that must be
    good. ``settings`` are effective ones by neutral name (``planner.configure``). ``vram`` and ``speed`` say the running
    deployment to the ledger and to the step model; None where model or card is not known. ``card_usd_per_hour``: price
    of other cards that could be had. ``requests_by_hour``: mean
    requests of each UTC hour of the day, 24 of them. ``shared_ratio``: share of input tokens that begin as an earlier
    request did, where that is known although the prefix cache is off. ``small_model_ratio``: share of the requests that a
    smaller model was judged to answer as well; ``input_spare_ratio``: share of input tokens that could be left out.
    """

    service: str
    start_s: float
    end_s: float
    fleet: Fleet
    sigma: float
    trace: Trace
    limits: Limits
    objective: float
    seen: Seen
    settings: Mapping[str, object] = field(default_factory=dict)
    engine: str = "vllm"
    engine_version: str = ""
    vram: Request | None = None
    speed: Named | None = None
    gpus_per_replica: int = 1
    usd_per_gpu_hour: Estimate | None = None
    card_usd_per_hour: Mapping[str, Estimate] = field(default_factory=dict)
    startup_s: float | None = None
    requests_by_hour: tuple[float, ...] = ()
    shared_ratio: float | None = None
    small_model_ratio: float | None = None
    small_usd_per_million: Estimate | None = None
    api_usd_per_million: Estimate | None = None
    input_spare_ratio: float | None = None
    requests_by_tenant: Mapping[str, int] = field(default_factory=dict)
    drift: Drift | None = None
    missing: tuple[str, ...] = ()

    @property
    def hours(self) -> float:
        """Length of the evidence window."""
        return (self.end_s - self.start_s) / 3600

    @property
    def limits_told(self) -> bool:
        """Whether there is any latency target."""
        return self.limits != Limits()
