"""What reading from a Prometheus is told, what it answers, and how it fails."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from goodwatch.core.errors import ConfigError, TransientError

#: most points per series that Prometheus gives in one answer to a range query; kept for raw samples too
MOST_POINTS: Final = 11_000


@dataclass(frozen=True, slots=True)
class PullOptions:
    """One Prometheus, Thanos, Mimir or VictoriaMetrics, and which of its targets are read.

    ``selector`` is one or more label matchers, with or without braces. ``group_by`` are the labels whose values make
    one target. Raises ``ConfigError`` when a value cannot work.
    """

    url: str  # root of the API: what comes before /api/v1
    selector: str
    service: str = "default"
    group_by: tuple[str, ...] = ("instance",)
    step_s: float = 15.0  # how often it is asked
    lookback_s: float = 300.0  # how far back a poll reads at most; a target without samples for longer is gone
    settle_s: float = 5.0  # samples younger than this are left for the next poll: remote write brings them in pieces
    timeout_s: float = 10.0
    body_limit_bytes: int = 100_000_000
    rate_limit_per_s: float | None = None  # most queries a second; None: no limit
    engine: str | None = None
    engine_version: str | None = None
    gpus: float | None = None  # of each target
    gpu_hour_usd: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    bearer: str | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)  # user name, password
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False

    def __post_init__(self) -> None:
        for name in ("step_s", "lookback_s", "timeout_s", "body_limit_bytes"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"prometheus: {name} is {getattr(self, name)}; it must be more than 0")
        if self.lookback_s < self.step_s + self.settle_s:
            raise ConfigError("prometheus: lookback is shorter than step and settle together; samples would be missed")
        if not self.group_by:
            raise ConfigError("prometheus: group_by is empty; write the labels that make a target, as in [instance]")

    @property
    def place(self) -> str:
        """``host:port`` of the API, for messages."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


class PullError(TransientError):
    """A query failed in a way that time may mend.

    ``reason`` is a stable counter label: "timeout", "unreachable", "overloaded", "server_error", "too_large",
    "malformed". ``retry_after_s`` is what the server asked for, None when it did not.
    """

    def __init__(self, reason: str, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.retry_after_s = retry_after_s


class PullRefusedError(ConfigError):
    """A query failed in a way that the operator can mend.

    ``reason`` is "unauthorized", "bad_query", "not_prometheus" or "tls".
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Answer:
    """Raw series of one query (``{"metric": …, "values": […]}`` each) and what the server said about them.

    ``warnings`` are its own words; ``partial`` is true when it says that a part of its data was not there.
    """

    series: list[Any]
    warnings: tuple[str, ...] = ()
    partial: bool = False
