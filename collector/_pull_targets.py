"""What the stored pages of a source are made into: targets, readers, scrapes. The same live and for history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from collector._pull_options import Answer, PullOptions
from collector._pull_pages import TargetPages, kept_labels
from collector._pull_query import engine_names, kernel_names, matchers
from collector.pipeline import TargetReader, Understood
from goodwatch.core.engine import Engine
from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Deployment, Scrape, Target
from goodwatch.core.page import Problem

#: labels that goodwatch sets itself on what it exports
_OWN_LABELS: Final = frozenset({"target", "service", "model", "engine", "engine_version", "rank", "le", "quantile"})


@dataclass(frozen=True, slots=True)
class Pulled:
    """One scrape of one target as Prometheus stored it, with what was understood of its page."""

    target: Target
    scrape: Scrape
    understood: Understood | None = None
    deployment: Deployment | None = None


class TargetFactory:
    """Makes targets and readers of one source; one key is one target, live and in history.

    Raises ``ConfigError`` when the selector cannot be used.
    """

    def __init__(self, options: PullOptions, engines: Mapping[str, Engine]) -> None:
        self.options = options
        self.engines = engines
        pinned = None if options.engine is None else engines.get(options.engine)
        tables = engines.values() if pinned is None else (pinned,)
        self.keep = kept_labels(engines.values())
        self.names = engine_names(tables, pinned=pinned is not None)
        self.kernel_names = kernel_names(tables)
        try:
            self.inner = matchers(options.selector)
        except ValueError as error:
            raise ConfigError(f"prometheus: selector: {options.selector!r} {error}") from error

    def target(self, key: Sequence[str], found: Mapping[str, str]) -> Target:
        """The target of a key; its labels are Prometheus', under those of the configuration."""
        options = self.options
        labels = {k: v for k, v in found.items() if k not in _OWN_LABELS} | dict(options.labels)
        return Target(
            "/".join(part for part in key if part), options.url, options.service, options.engine, options.engine_version,
            options.gpus, options.gpu_hour_usd, labels,
        )  # fmt: skip

    def reader(self, target: Target) -> TargetReader:
        """A reader of that target's pages."""
        return TargetReader(target, self.engines)

    def pulled(self, reader: TargetReader, one: TargetPages, at: float, notes: Sequence[Problem] = ()) -> Pulled:
        """What is known of a target at a time, which is one of ``one.times``. CPU-bound."""
        target, duration_s = reader.target, one.duration_s.get(at, 0.0)
        if one.up.get(at) is False:
            return Pulled(
                target, failed(target, at, "target_down", f"{self.options.place} could not scrape {target.name}")
            )
        if at not in one.pages:
            text = f"{self.options.place} scraped {target.name}, and no name of a known engine was on its page"
            return Pulled(target, failed(target, at, "not_metrics", text))
        page = one.pages[at]
        page.problems.extend(notes)
        understood = reader.understand_page(page)
        scrape = reader.scrape(understood, at, duration_s, 0)
        return Pulled(target, scrape, understood, reader.deployment(understood, at))


def interval_of(times: Sequence[float]) -> float | None:
    """The scrape interval that the times show: the median distance; None with fewer than three.

    Examples
    --------
    >>> interval_of([0.0, 15.0, 30.1, 45.0, 105.0])
    15.0
    """
    gaps = [round(b - a, 1) for a, b in pairwise(times)]
    return median(gaps) if len(gaps) > 1 else None


def notes_of(answer: Answer, place: str) -> list[Problem]:
    """What the server said about a partial answer, as problems of the pages that came from it."""
    told = answer.warnings or (("a part of its data was not there",) if answer.partial else ())
    return [Problem(0, "partial_answer", f"{place}: {text}") for text in told]


def failed(target: Target, ts: float, reason: str, error: str) -> Scrape:
    """A scrape that brought nothing, and why."""
    return Scrape(ts, target.name, target.service, up=False, duration_s=0.0, error=error, reason=reason)
