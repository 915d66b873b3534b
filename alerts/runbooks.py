"""A page for every kind of alert: what it means, where to look, one safe first step, and what not to do."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from alerts.rules.promql import span
from alerts.rules.text import pretty
from alerts.rules.values import Alert


@dataclass(frozen=True, slots=True)
class Runbook:
    """The prose of one kind of alert; everything else on its page comes from the rule itself.

    ``users`` says what users feel, ``look`` are questions in the order in which they decide, ``first`` is one safe
    action, ``never`` what makes it worse, ``silent`` when it is no incident.
    """

    kind: str
    title: str
    users: str
    look: tuple[str, ...]
    first: str
    never: str = ""
    silent: str = ""


_SCOPE: Final = (
    "How wide is it? Split by model, replica, tenant and input length. One replica only: go to replica-outlier."
)
_CHANGE: Final = "What changed in the hour before it began: deployment, flags, image, template, router, autoscaler?"

RUNBOOKS: Final[dict[str, Runbook]] = {
    book.kind: book
    for book in (
        Runbook(
            "error-budget-burn-fast", "The error budget burns fast",
            "Requests fail or miss their latency targets, now, at a pace that ends the budget in hours or days.",
            (
                "Is it real? Under some fifty requests a share is noise; look at the number of requests and at gaps in scrapes.",
                _SCOPE,
                "Which target is missed? goodwatch:slo_error:ratio1h by target: ttft points at queue and prefill, tpot at "
                "decode, served at errors and refusals.",
                "Did the traffic change: rate, prompt length, output length, one tenant's share?",
                "Where inside a request: queue, prefill or decode? Queue up with the KV cache full: see kv-cache-thrash. "
                "Queue up with everything else normal: plain overload, see queue-growing.",
                _CHANGE,
            ),
            "Roll back a change from the ten minutes before it began. Without one: shed or move the lowest class of traffic.",
            "Do not restart replicas that serve: a cold prefix cache and a warm-up make it worse.",
        ),
        Runbook(
            "error-budget-burn-slow", "The error budget burns slowly but steadily",
            "A small share of requests is bad for hours or days; nobody has to get up.",
            (
                "Which target and which model eat the budget? goodwatch:slo_bad:increase1d by target.",
                "Is it the traffic (longer prompts, more of them) or the service (same traffic, slower)?",
                _CHANGE,
            ),
            "Plan capacity or a change for the next working day; correct the objective if it promises what nobody needs.",
        ),
        Runbook(
            "slo-no-data", "An SLO has no data",
            "Nothing that this alert can tell: its budget and its pages are blind.",
            (
                "Do the targets' pages still have the series? `goodwatch inspect URL` says which names are there.",
                "Was the engine upgraded? Names change between versions; `goodwatch alerts lint` finds dead ones.",
                "Did someone switch statistics off, change the frontend, or relabel job and instance in Prometheus?",
            ),
            "Build the rules again with the version that runs: goodwatch alerts build.",
            "Do not add `or vector(0)`: it would turn blindness into a good number.",
        ),
        Runbook(
            "service-down", "No target of a service can be scraped",
            "Requests most likely fail; if only the scrape is broken, users feel nothing and all other alerts are blind.",
            (
                "Does the service answer a request by hand? Then it is the scrape: network policy, port, TLS, credentials.",
                "Are there targets at all in Prometheus (Status, Targets)? None: discovery or relabelling lost them.",
                "What do the orchestrator and the last log lines of the engine say: out of memory, failed probe, no node?",
            ),
            "If requests fail: roll back the last change, or start replicas on other nodes.",
            "Do not delete failed pods before their last log lines are kept.",
            "During planned maintenance: silence it by service.",
        ),
        Runbook(
            "target-down", "Some targets cannot be scraped",
            "Perhaps nothing: the other replicas carry the traffic, at less headroom.",
            (
                "Is the replica gone, or only its metrics page?",
                "Is the rest overloaded by now? Look at waiting requests and at the time to first token.",
            ),
            "Replace the replica; keep its logs.",
            silent="While replicas are replaced one after the other.",
        ),
        Runbook(
            "engine-stalled", "An engine has work and makes no progress",
            "Requests on these replicas hang until their client gives up. Histograms filled at the end do not show it.",
            (
                "Which replicas? Those with requests running and no new tokens.",
                "Is the engine's process at 100 % of a core, or waiting (a collective operation, a KV transfer, a lock)?",
                "Did a GPU report a fault (gpu-fault), or did one rank of a tensor-parallel group die?",
            ),
            "Take these replicas out of the router. Restart them once their stacks and logs are kept.",
            "Do not raise time-outs: hung requests only pile up.",
            "An answer longer than the window on an engine that counts tokens when a request ends.",
        ),
        Runbook(
            "kv-cache-thrash", "Running requests are thrown out for lack of KV space",
            "Answers stutter: a request that is thrown out waits again and its prompt is computed again.",
            (
                "Are prompts or outputs longer than usual? One tenant?",
                "How many requests run at once against the length of their contexts?",
                "Does throughput fall while the GPUs are busy? That is the recomputation.",
            ),
            "Lower max_num_seqs (or its like), cap max_tokens, or add replicas.",
            "Do not lower the engine's memory fraction: fewer KV blocks mean more of the same. A full cache by itself is normal.",
        ),
        Runbook(
            "queue-growing", "Requests wait, and ever more of them",
            "The time to first token grows with the queue.",
            (
                "Did arrivals rise, or did the service get slower?",
                "Do running requests stand at their cap with KV space left? Then the cap binds, not the memory.",
                "Do retries of clients double the arrivals?",
            ),
            "Scale out, or shed the lowest class of traffic; requests that nobody waits for any more should be cancelled.",
        ),
        Runbook(
            "prefix-cache-collapse", "The prefix cache finds far less than it did",
            "The time to first token rises: prompts are computed that used to be found.",
            (
                "Did a prompt template or a list of tools change? A time stamp or an id in front ends all reuse.",
                "Did the router lose its affinity, or did replicas restart?",
                "Is the KV cache full, so that prefixes are evicted before they are used again?",
            ),
            "Undo the change of the template or the router.",
            silent="Another kind of traffic (batch jobs without shared prompts).",
        ),
        Runbook(
            "replica-outlier", "Some replicas are much slower than the others",
            "The share of users whose requests land there waits longer.",
            (
                "Same load as the others? An unfair router looks the same.",
                "GPU clock, temperature, throttling, ECC and link errors against its neighbours.",
                "Another version, image or flags than the rest?",
            ),
            "Drain the replica and keep it for evidence.",
        ),
        Runbook(
            "gpu-fault", "Accelerators report a hardware fault",
            "Requests on it fail or hang, now or soon.",
            (
                "Which code? NVIDIA's XID list says whether the application, the driver or the card is at fault.",
                "Are other devices of the same machine affected? Then it is power, cooling or the bus.",
            ),
            "Drain the machine; reset or replace the device by the vendor's instructions.",
            silent="The last code stays on the page; the alert looks at new ones only.",
        ),
        Runbook(
            "gpu-throttled", "Busy accelerators run below their clock",
            "The same work takes longer; the time per token rises.",
            (
                "Temperature against its neighbours: cooling. All of a rack: the room.",
                "A power cap that somebody set?",
            ),
            "Move load off the machine and have cooling and power looked at.",
        ),
        Runbook(
            "cost-drift", "Tokens cost more than they did",
            "Nothing.",
            (
                "Fewer tokens for the same GPUs (less traffic, more idle time), or more GPUs for the same tokens?",
                "Did prompts get longer, or did the prefix cache lose its hits?",
            ),
            "Look at the service's utilisation; scale in where replicas idle.",
            silent="Holidays and other quiet days.",
        ),
        Runbook(
            "quality-drop", "Fewer answers pass than usual",
            "Answers are worse, though perhaps quick.",
            (
                "Did the model, its quantisation, the KV cache's type, a template or sampling change?",
                "Did the judge or its prompt change? Score a fixed set of answers again.",
            ),
            "Roll back the change that touches answers; hold back further ones.",
        ),
        Runbook(
            "goodwatch-down", "goodwatch itself is down",
            "Nothing. Pages from engines' own series go on; counted goodput, cost and quality are blind.",
            ("Does its process run, and does its store have room?",),
            "Start it again; it picks up where it was.",
        ),
        Runbook(
            "watchdog", "The watchdog",
            "Nothing: this alert always fires.",
            ("If it stopped: does Prometheus evaluate rules, does it reach Alertmanager, does Alertmanager send?",),
            "Route it to a receiver that calls when it stays away.",
        ),
    )
}  # fmt: skip


def page(book: Runbook, alerts: Iterable[Alert]) -> str:
    """The page of one kind of alert, with an example of each rule of that kind."""
    parts = [f"# {book.title}\n", f"**What users feel.** {book.users}\n"]
    for alert in alerts:
        waits = f", after {span(alert.for_s)}" if alert.for_s else ""
        parts.append(f"## {alert.name}\n")
        if alert.description:
            parts.append(f"{alert.description}\n")
        parts.append(
            f"It fires while this has a result{waits} (severity `{alert.severity}`, here for an example service):\n"
        )
        parts.append(f"```promql\n{pretty(alert.expr)}\n```\n")
    parts.append("## Where to look\n")
    parts.append("\n".join(f"{number}. {question}" for number, question in enumerate(book.look, 1)) + "\n")
    parts.append(f"## First safe step\n\n{book.first}\n")
    parts += [f"## What makes it worse\n\n{book.never}\n"] if book.never else []
    parts += [f"## When it is no incident\n\n{book.silent}\n"] if book.silent else []
    return "\n".join(parts)


def pages(alerts: Iterable[Alert]) -> dict[str, str]:
    """Markdown by file name, and an index. Each kind shows its first rule of each name."""
    by_kind: dict[str, dict[str, Alert]] = {}
    for alert in alerts:
        by_kind.setdefault(alert.kind, {}).setdefault(alert.name, alert)
    made = {f"{kind}.md": page(RUNBOOKS[kind], found.values()) for kind, found in by_kind.items()}
    rows = "\n".join(
        f"| [{RUNBOOKS[kind].title}]({kind}.md) | {', '.join(f'`{name}`' for name in found)} | {next(iter(found.values())).severity} |"
        for kind, found in by_kind.items()
    )
    head = "# Runbooks\n\nOne page for each kind of alert that goodwatch generates, made from the same source as the rules.\n"
    return {**made, "README.md": f"{head}\n| page | alerts | severity |\n| --- | --- | --- |\n{rows}\n"}
