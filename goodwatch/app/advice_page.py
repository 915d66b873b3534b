"""Advice for a terminal."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def show(console: Console, answer: Mapping[str, Any]) -> None:
    """Advice for a person: each recommendation with its diff and its bands, or why there is none."""
    for one in (*answer["made"], *answer["known"]):
        _show_one(console, one)
    if answer["reason"]:
        console.print(answer["reason"], markup=False)
    for label, texts in (("not known", answer["missing"]), ("found beside it", answer["findings"])):
        for text in texts:
            console.print(f"  {label}: {text}", markup=False, style="dim")
    lost = [one for one in answer["not_chosen"] if one["title"]]
    if lost:
        console.print("tried, and no advice:", style="dim")
    for one in lost[:8]:
        console.print(f"  {one['title']}: {one['why_not']}", markup=False, style="dim")


def _show_one(console: Console, one: Mapping[str, Any]) -> None:
    console.print(
        f"{one['title']}  [{one['id']}, {one['state']}, confidence {one['confidence']}]", markup=False, style="bold"
    )
    console.print(f"  {one['reason']}", markup=False)
    for line in one["diff"]:
        before = line["flags_before"] or line["before"] or "default"
        console.print(
            f"  {line['setting']}: {before} → {line['flags_after'] or line['after'] or 'default'}", markup=False
        )
    table = Table(box=box.SIMPLE)
    for heading in ("metric", "now", "then", "80 % interval"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for p in one["predicted"]:
        then = p["then"]
        table.add_row(
            p["metric"],
            _figure(p["now"]["point"]),
            _figure(then["point"]),
            f"{_figure(then['low'])} to {_figure(then['high'])}",
        )
    saving = one["saving_usd_per_week"]
    if saving is not None:
        table.add_row(
            "saving, USD per week",
            "",
            _figure(saving["point"]),
            f"{_figure(saving['low'])} to {_figure(saving['high'])}",
        )
    console.print(table)
    needs = ["a restart" if one["restart"] else "no restart"]
    if one["gate"]:
        needs.append(f"first a quality check: {one['gate']}")
    console.print(f"  needs {'; '.join(needs)}. Back: {one['rollback']}.", markup=False)
    for risk in one["risks"]:
        console.print(f"  could go wrong: {risk}", markup=False)
    console.print(f"  checked by the first {one['check_requests']} requests after it is applied", markup=False)


def _figure(value: float) -> str:
    return f"{value:.4g}"
