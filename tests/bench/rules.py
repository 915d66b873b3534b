"""What generated rules cost a real Prometheus: recorded series, evaluation time, CPU; against scraping in the same run.

    python -m tests.bench.rules [--quick] [--json] [--check]

A fleet of two replicas a service shows recorded vLLM pages. Two Prometheus scrape it every 15 s; one of them also
evaluates the rules of a joint SLO a service (time to first token, time per output token, served, counted), for the
engines that are met by default and, without ``--quick``, for all that are known. It begins with a history in its blocks:
what the rules read, as far back as they read it, and five-minute counts for the whole period; without it the long windows
would cost nothing.

The CPU of the rules is what one process uses more than the other. ``--check`` exits 1 when a rule fails, when a service
has more than 110 recorded series, or when its rules cost more than forty times what its scrapes cost.
"""

import argparse
import itertools
import json
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from promql_parser import MatrixSelector, SubqueryExpr

from alerts.lint.tree import every, names_in, parsed
from alerts.rules import own
from alerts.rules.build import build
from alerts.rules.burn import BAD, BUDGET_EVERY_S, TILE_S, TOTAL
from alerts.rules.files import prometheus_files
from alerts.rules.promql import span
from alerts.rules.values import Group, Options, Recording, RuleSet
from goodwatch.app.engines import known_accelerators, known_engines
from goodwatch.core.model import Limits
from goodwatch.core.slo import DAY_S, JointGoodput, Period, Slo
from tests.bench.collect import bodies
from tests.bench.scrape import engines
from tests.support.alerting_servers import asked, ruling_prometheus
from tests.support.prometheus_server import MetricsServer, Scraped, fill_prometheus

SCRAPE_S: Final = 15.0
REPLICAS: Final = 2
CPU_AIM_RATIO, SERIES_AIM = 40.0, 110
_LINE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)\{(.*)\} (\S+)$")
_LE: Final = re.compile(r'le="(0\.5|0\.05)"')
_DURATION: Final = re.compile(
    r'^prometheus_rule_group_last_duration_seconds\{rule_group="[^"]*;([^";]+)"\} (\S+)$', re.M
)
_FAILURES: Final = re.compile(r"^prometheus_rule_evaluation_failures_total\{[^}]*\} (\S+)$", re.M)


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many services, over which period, met by which engines' names; ``seconds`` are measured."""

    services: int
    days: float
    seconds: float
    engines: tuple[str, ...] = ()

    @property
    def slos(self) -> list[Slo]:
        """A joint SLO for each."""
        return [
            Slo(f"s{i:03}", f"s{i:03}", 0.99, JointGoodput(Limits(0.5, 0.05)), Period(self.days * DAY_S), engines=self.engines)
            for i in range(self.services)
        ]  # fmt: skip


def jobs_of(fleet: Fleet, ports: Sequence[int]) -> list[Scraped]:
    """A job a service, its replicas one after the other."""
    some = [[f"127.0.0.1:{p}" for p in ports[at : at + REPLICAS]] for at in range(0, len(ports), REPLICAS)]
    return [Scraped(targets, slo.service) for slo, targets in zip(fleet.slos, some, strict=True)]


def ranges(rules: RuleSet) -> dict[str, float]:
    """How far back the rules read each name, in seconds."""
    found: dict[str, float] = {}
    for rule in (rule for group in rules.groups for rule in group.rules):
        for one in every(parsed(rule.expr), MatrixSelector | SubqueryExpr):
            for name in names_in(one):
                found[name] = max(found.get(name, 0.0), one.range.total_seconds())
    return found


def raw_history(rules: RuleSet, fleet: Fleet, jobs: Sequence[Scraped], now_s: float) -> Iterator[str]:
    """The series that the rules read, of every replica and of goodwatch itself: counters that rise, gauges that stay."""
    read = ranges(rules)
    page, _ = bodies("vllm-0.32.0", 1)[0]
    series = [
        (found[1], f'job="{job.job}",instance="{target}",{found[2]}')
        for line in page.splitlines()
        if (found := _LINE.match(line)) and found[1] in read and ("_bucket" not in found[1] or _LE.search(found[2]))
        for job in jobs
        for target in job.targets
    ]
    for slo in fleet.slos:
        here = f'job="goodwatch",service="{slo.service}"'
        series += [(name, f'{here},model="",target=""') for name in (own.USD_PER_HOUR, own.TOKENS_PER_S)]
        series += [(name, f'{here},slo="{slo.name}"') for name in (own.VALID_EVENTS, own.GOOD_EVENTS)]
    for name, labels in series:
        head, rises = f"{name}{{{labels}}}", name.endswith(("_total", "_count", "_sum", "_bucket"))
        count = int(read[name] / SCRAPE_S)
        yield "".join(
            f"{head} {15 * at if rises else 3} {now_s - (count - at) * SCRAPE_S:.3f}\n" for at in range(count)
        )


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, by its threads: finer than the clock's ticks."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def tiles(fleet: Fleet, now_s: float) -> Iterator[str]:
    """Five-minute counts of the whole period, as the rules record them."""
    times = [now_s - at * TILE_S for at in range(int(fleet.days * DAY_S / TILE_S), 0, -1)]
    for slo, target, (name, value) in itertools.product(
        fleet.slos, ("ttft", "tpot", "served", "counted"), ((TOTAL, 300), (BAD, 1))
    ):
        head = f'{name}{span(TILE_S)}{{service="{slo.service}",slo="{slo.name}",target="{target}"}}'
        yield "".join(f"{head} {value} {at_s:.3f}\n" for at_s in times)


def measure(fleet: Fleet) -> dict[str, Any]:
    """What the rules of a fleet cost."""
    options = Options(engines=known_engines(), accelerators=known_accelerators(), scrape_interval_s=SCRAPE_S)
    rules = build(fleet.slos, options)
    with tempfile.TemporaryDirectory() as folder, engines(REPLICAS * fleet.services) as (ports, answered), ExitStack() as stack:  # fmt: skip
        jobs, now_s, home = jobs_of(fleet, ports), time.time(), Path(folder)
        fill_prometheus(
            home / "rules", "".join((*raw_history(rules, fleet, jobs, now_s), *tiles(fleet, now_s), "# EOF\n"))
        )
        written = prometheus_files(rules, options)
        ruling = stack.enter_context(ruling_prometheus(home / "rules", jobs, written, interval=span(SCRAPE_S)))
        plain = stack.enter_context(ruling_prometheus(home / "plain", jobs, {}, interval=span(SCRAPE_S)))
        until = answered() + 2 * len(ports)  # both have met every replica, so all series are born
        while answered() < until:
            time.sleep(0.1)
        used_s, began_s = [cpu_s(one.process.pid) for one in (ruling, plain)], time.monotonic()
        time.sleep(fleet.seconds)
        wall_s = time.monotonic() - began_s
        both = [cpu_s(one.process.pid) - used for one, used in zip((ruling, plain), used_s, strict=True)]
        return {**_size(fleet, rules, ruling), **_durations(rules, ruling), **_cpu(both[0], both[1], wall_s)}


def _size(fleet: Fleet, rules: RuleSet, server: MetricsServer) -> dict[str, Any]:
    made = [rule for group in rules.groups for rule in group.rules]
    recorded = sum(value for _, value in asked(server, 'count({__name__=~"goodwatch:.*"})'))
    scraped = sum(value for _, value in asked(server, 'count({job=~"s.*",__name__!~"goodwatch:.*|ALERTS.*"})'))
    return {
        "services": fleet.services, "engines": ",".join(fleet.engines) or "default", "period_days": fleet.days,
        "recording_rules": sum(isinstance(rule, Recording) for rule in made),
        "alerting_rules": sum(not isinstance(rule, Recording) for rule in made),
        "recorded_series": round(recorded), "recorded_series_a_service": round(recorded / fleet.services, 1),
        "scraped_series": round(scraped),
    }  # fmt: skip


def _durations(rules: RuleSet, server: MetricsServer) -> dict[str, Any]:
    """How long groups took when they were evaluated last, in a Prometheus that shares two cores with its peer."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    took = {name: float(value) for name, value in _DURATION.findall(text)}
    turn = {group.name: group.interval_s for group in rules.groups}

    def kind(group: Group) -> str:
        return "budget" if group.interval_s == BUDGET_EVERY_S else group.name.split("-")[1]

    worst: dict[str, float] = {}
    for group in rules.groups:
        worst[kind(group)] = max(worst.get(kind(group), 0.0), took.get(group.name, 0.0))
    return {
        "slowest_group_ms": {name: round(1e3 * value, 1) for name, value in worst.items()},
        "all_groups_s": round(sum(took.values()), 3),
        "turn_ratio": round(sum(value / turn[name] for name, value in took.items()), 4),
        "failures": sum(float(value) for value in _FAILURES.findall(text)),
    }


def _cpu(ruling_s: float, plain_s: float, wall_s: float) -> dict[str, float]:
    return {
        "rules_cpu_s_per_s": round((ruling_s - plain_s) / wall_s, 4),
        "scrapes_cpu_s_per_s": round(plain_s / wall_s, 4),
        "rules_per_scrapes_ratio": round((ruling_s - plain_s) / plain_s, 2),
    }


def main() -> int:
    """Run and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="under forty seconds: 6 services, a week")
    options.add_argument("--json", action="store_true")
    options.add_argument("--check", action="store_true", help="exit 1 when an aim is missed")
    said = options.parse_args()
    every = tuple(sorted(known_engines()))
    whole = Fleet(100, 30, 120)
    found = [measure(one) for one in ([Fleet(6, 7, 8)] if said.quick else [whole, replace(whole, engines=every)])]
    if said.json:
        print(json.dumps(found, indent=2))
    else:
        for row in found:
            print("\n".join(f"{key:28} {value}" for key, value in row.items()) + "\n")
    missed = any(
        row["rules_per_scrapes_ratio"] > CPU_AIM_RATIO
        or row["recorded_series_a_service"] > SERIES_AIM
        or row["failures"]
        for row in found
    )
    return 1 if said.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
