"""``goodwatch recommend``: asks the running service, which holds the data, and prints what it says."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from goodwatch.core.errors import ConfigError, TransientError

#: environment variable with the token of goodwatch's own API
TOKEN_VARIABLE: Final = "GOODWATCH_TOKEN"  # noqa: S105  its name
#: a fit and a simulation of every strategy on a busy machine
_TIMEOUT_S: Final = 300.0


def url_of(url: str | None, config: Path | None) -> str:
    """Where the service is: told, or the address that its configuration listens on.

    Raises ``ConfigError`` when neither is told, or the file cannot be used.
    """
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"--url {url}: write http:// or https:// in front")
        return url.rstrip("/")
    if config is None:
        raise ConfigError(
            "which service? name its address with --url http://HOST:PORT, or its file with -c goodwatch.yaml"
        )
    from goodwatch.app.config import load  # noqa: PLC0415  reading every table takes a while
    from goodwatch.app.engines import known_engines  # noqa: PLC0415

    return f"http://{load(config, engines=known_engines(), environ=os.environ).listen}"


def ask(base: str, body: Mapping[str, object], token: str | None) -> dict[str, Any]:
    """The answer of ``POST /api/v1/recommendations``.

    Raises
    ------
    ConfigError
        The service refuses the question; says why.
    TransientError
        Nobody answers.
    """
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(  # noqa: S310  http and https only, see url_of
        f"{base}/api/v1/recommendations", json.dumps(body).encode(), headers, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:  # noqa: S310
            found: dict[str, Any] = json.loads(reply.read())
            return found
    except urllib.error.HTTPError as error:
        told = _detail(error.read())
        if error.code >= 500:
            raise TransientError(f"{base}: {told}") from error
        raise ConfigError(f"{base}: {told}") from error
    except OSError as error:
        raise TransientError(
            f"{base}: nobody answers ({error}); start goodwatch serve, or give the address with --url"
        ) from error


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace") or "no reason was given"


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
