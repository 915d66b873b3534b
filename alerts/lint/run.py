"""All checks over all files."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from alerts.lint import checks_names, checks_quantiles, checks_ratios, checks_sense
from alerts.lint.files import queries
from alerts.lint.names import Names
from alerts.lint.values import Finding, Query

Check = Callable[[Query, Names], Iterator[Finding]]

#: checks of single expressions
CHECKS: Final[tuple[Check, ...]] = (
    checks_names.missing_total,
    checks_names.unknown_name,
    checks_names.dead_name,
    checks_names.gauge_rate,
    checks_names.lifetime_counter,
    checks_ratios.lifetime_average,
    checks_ratios.sum_rate,
    checks_ratios.mismatched_labels,
    checks_ratios.sum_of_fractions,
    checks_ratios.fraction_as_percent,
    checks_ratios.kv_over_model_length,
    checks_ratios.sparse_ratio,
    checks_ratios.absent_as_zero,
    checks_quantiles.averaged_quantile,
    checks_quantiles.quantile_without_le,
    checks_quantiles.quantile_at_edge,
    checks_quantiles.bucket_that_is_not_there,
    checks_sense.burn_at_one,
    checks_sense.full_cache_as_fault,
    checks_sense.memory_advice,
    checks_sense.title_mismatch,
    checks_sense.busy_as_efficiency,
)


def lint(files: Mapping[str, str], names: Names, *, scrape_interval_s: float = 15.0) -> list[Finding]:
    """What is wrong in rule files and boards, in the order of files and lines.

    Parameters
    ----------
    files
        Text by path; ``.json`` is a board, anything else rules or Grafana's provisioning in YAML.
    names
        The engines' names, with the versions that are pinned.
    scrape_interval_s
        Seconds between two scrapes of Prometheus.
    """
    found: list[Finding] = []
    read: list[Query] = []
    for path, text in files.items():
        these, unreadable = queries(path, text)
        read += these
        found += unreadable
        found += (finding for query in these for finding in _of(query, names, scrape_interval_s))
    found += checks_sense.up_without_absent(read)
    order = {path: index for index, path in enumerate(files)}
    return sorted(dict.fromkeys(found), key=lambda one: (order[one.path], one.line))


def _of(query: Query, names: Names, scrape_interval_s: float) -> Iterable[Finding]:
    yield from (finding for check in CHECKS for finding in check(query, names))
    yield from checks_names.short_window(query, scrape_interval_s)
