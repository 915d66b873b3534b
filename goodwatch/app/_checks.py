"""What one section cannot know alone: names that must differ, what a port exposes, what will not work out."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from alerts.spec import SloEntry
from goodwatch.app._alert_sections import advice
from goodwatch.app._discovery_sections import DISCOVERIES
from goodwatch.app._fields import Context, is_loopback, split_listen
from goodwatch.app._problems import Fault
from goodwatch.app._sections import Service, Settings, Token
from goodwatch.app._target_sections import AcceleratorEntry, FileSd, PerPage, PerTarget, ScrapeSettings, TargetEntry
from goodwatch.core.duration import duration_text
from goodwatch.core.section import Section

S = TypeVar("S", bound=Section)
DAY_S = 86400.0
SHORTEST_TOKEN = 16


def between_sections(data: dict[str, Any], context: Context) -> Iterator[Fault]:
    """Faults between sections, from those that are sound by themselves.

    It works on what was written, so that a typo in one target does not hide that two others share a name.
    """
    targets = _sound(TargetEntry, data.get("targets"), context)
    yield from _same_names("targets", ((i, t.name, "name" in t.model_fields_set) for i, t in targets))
    services = _sound(Service, data.get("services"), context)
    yield from _same_names("services", ((i, s.name, True) for i, s in services))
    slos = _sound(SloEntry, data.get("slos"), context)
    yield from _same_names("slos", ((i, s.name, True) for i, s in slos))
    yield from _named_as_a_service(services, slos)
    auth = data.get("auth")
    tokens = _sound(Token, auth.get("tokens") if isinstance(auth, dict) else None, context)
    yield from _same_names("auth.tokens", ((i, t.name, True) for i, t in tokens))
    yield from _exposed(data)
    yield from _untold(data)
    exporters = _sound(AcceleratorEntry, data.get("accelerators"), context)
    yield from _same_names("accelerators", ((i, e.name, "name" in e.model_fields_set) for i, e in exporters))
    yield from _names_of_targets(targets, exporters)
    scrape = dict(_sound(ScrapeSettings, [data.get("scrape", {})], context)).get(0)
    if scrape is not None:
        settings = Settings(scrape=scrape)
        for index, target in targets:
            yield from _unfit(settings, "targets", index, target)
        for index, exporter in exporters:
            yield from _unfit(settings, "accelerators", index, exporter)
        discoveries: dict[str, type[PerTarget]] = {"file_sd": FileSd, **DISCOVERIES}
        for key, model in discoveries.items():
            for index, entry in _sound(model, data.get(key), context):
                yield from _unfit(settings, key, index, entry)


def _sound(model: type[S], items: object, context: Context) -> list[tuple[int, S]]:
    sound: list[tuple[int, S]] = []
    for index, item in enumerate(items if isinstance(items, list) else ()):
        try:
            sound.append((index, model.model_validate(item, context=context, by_alias=True, by_name=False)))
        except ValidationError:  # reported where the whole is validated
            continue
    return sound


def _same_names(key: str, named: Iterable[tuple[int, str, bool]]) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for index, name, written in named:
        if name not in first:
            first[name] = index
            continue
        loc = (*key.split("."), index, *(("name",) if written else ()))
        text = f"the name '{name}' is that of {key}[{first[name]}] already"
        yield Fault(loc, f"{text}; write another name" if written else f"{text}; write a name, or remove one of them")


def _named_as_a_service(
    services: Iterable[tuple[int, Service]], slos: Iterable[tuple[int, SloEntry]]
) -> Iterator[Fault]:
    """The SLO of a service bears its name."""
    taken = {service.name: index for index, service in services if service.slo is not None}
    for index, entry in slos:
        if entry.name in taken:
            text = f"the name '{entry.name}' is that of the slo of services[{taken[entry.name]}]; write another name"
            yield Fault(("slos", index, "name"), text)


def _names_of_targets(
    targets: Iterable[tuple[int, TargetEntry]], exporters: Iterable[tuple[int, AcceleratorEntry]]
) -> Iterator[Fault]:
    """An exporter under the name of a target: both are kept under their names. Triton's page can be both."""
    taken = {target.name: index for index, target in targets}
    for index, exporter in exporters:
        if exporter.name in taken:
            written = "name" in exporter.model_fields_set
            loc = ("accelerators", index, *(("name",) if written else ()))
            text = f"the name '{exporter.name}' is that of targets[{taken[exporter.name]}] already"
            yield Fault(loc, f"{text}; write {'another' if written else 'a'} name")


def _untold(data: dict[str, Any]) -> Iterator[Fault]:
    """Sinks of the weekly report that are not there."""
    report, alerting = data.get("report"), data.get("alerting")
    wanted = report.get("sinks") if isinstance(report, dict) else None
    sinks = alerting.get("sinks") if isinstance(alerting, dict) else None
    listed = sinks if isinstance(sinks, list) else ()
    there = [str(one["name"]) for one in listed if isinstance(one, dict) and "name" in one]
    for index, name in enumerate(wanted if isinstance(wanted, list) else ()):
        if name not in there:
            known = f"there are {', '.join(there)}" if there else "there is none; write it under alerting.sinks"
            yield Fault(("report", "sinks", index), f"no sink of alerting.sinks is named {str(name)[:100]!r}; {known}")


def _exposed(data: dict[str, Any]) -> Iterator[Fault]:
    """An address that others reach, without tokens and without saying that this is meant."""
    auth, otlp = data.get("auth"), data.get("otlp")
    if data.get("insecure", False) is not False or (isinstance(auth, dict) and auth.get("tokens")):
        return
    written = otlp if isinstance(otlp, dict) else {}
    for loc, address in (
        (("listen",), data.get("listen")),
        (("otlp", "http"), written.get("http")),
        (("otlp", "grpc"), written.get("grpc")),
    ):
        try:
            host, _ = split_listen(address) if isinstance(address, str) else ("localhost", 0)
        except ValueError:
            continue
        if not is_loopback(host):
            yield Fault(loc, "{value} is reachable from other machines; add auth.tokens, or write insecure: true")


def _unfit(settings: Settings, key: str, index: int, entry: PerPage) -> Iterator[Fault]:
    """A time-out that is longer than the interval, one of them from ``scrape``."""
    try:
        settings.scrape_of(entry)
    except ValidationError:
        own = entry.timeout_s is not None
        timeout = duration_text(entry.timeout_s if entry.timeout_s is not None else settings.scrape.timeout_s)
        interval = duration_text(entry.interval_s if entry.interval_s is not None else settings.scrape.interval_s)
        text = (
            f"{timeout} is longer than the interval of {interval} (scrape.interval); write at most {interval}"
            if own
            else f"{interval} is shorter than the timeout of {timeout} (scrape.timeout); write a timeout here as well"
        )
        yield Fault((key, index, "timeout" if own else "interval"), text)


def warnings(settings: Settings) -> list[str]:
    """Advice on what is valid and yet probably not meant; one sentence each, empty when there is none."""
    entries = [(f"targets[{i}] ({t.name})", t) for i, t in enumerate(settings.targets)]
    return [
        *_about_access(settings),
        *_about_services(settings),
        *_about_times(settings),
        *(text for where, target in entries for text in _about_target(settings, where, target)),
        *(text for where, entry in settings.discoveries for text in _about_entry(settings, where, entry)),
        *_about_discoveries(settings),
        *_about_accelerators(settings),
        *_about_sources(settings),
        *advice(settings.alerting, prometheus=settings.names_prometheus),
    ]


def _about_access(settings: Settings) -> Iterator[str]:
    if settings.insecure and not is_loopback(settings.listen_host) and not settings.auth.tokens:
        yield f"listen: everyone who reaches {settings.listen} may read and change everything (insecure: true)"
    for index, token in enumerate(settings.auth.tokens):
        if len(token.token.get_secret_value()) < SHORTEST_TOKEN:
            yield (
                f"auth.tokens[{index}] ({token.name}): the token is shorter than {SHORTEST_TOKEN} characters and can "
                "be guessed; make one with: openssl rand -hex 32"
            )
    endpoint = settings.telemetry.otlp_endpoint
    if endpoint and settings.telemetry.headers and _is_open(endpoint):
        yield "telemetry.headers: they are sent unencrypted (http) to another machine; use https"


def _about_services(settings: Settings) -> Iterator[str]:
    found = [entry for _, entry in settings.discoveries]
    if not settings.targets and not found and not settings.prometheus:
        yield "targets: none, and no file_sd, dns_sd, kubernetes_sd, prometheus_sd or prometheus: nothing will be read"
        return
    # Without the key, what is found may say itself to which service it belongs.
    told = [entry for entry in found if "service" in entry.model_fields_set]
    used = dict.fromkeys(entry.service for entry in (*settings.targets, *told))
    used |= dict.fromkeys(entry.service for entry in settings.prometheus)
    promised = {service.name for service in settings.services if service.slo is not None}
    for name in used:
        if name not in promised:
            yield f"services: '{name}' has targets and no slo: no goodput is derived for it"
    for index, service in enumerate(settings.services):
        if service.slo is not None and service.name not in used and len(told) == len(found):
            yield f"services[{index}].slo: no target belongs to the service '{service.name}'"
    for index, entry in enumerate(settings.slos):
        if entry.service not in used and len(told) == len(found):
            yield f"slos[{index}] ({entry.name}): no target belongs to the service '{entry.service}'"


def _about_discoveries(settings: Settings) -> Iterator[str]:
    for index, entry in enumerate(settings.prometheus_sd):
        where = f"prometheus_sd[{index}]"
        if not entry.jobs and not entry.match:
            yield f"{where}: everything that {entry.url} scrapes is scraped here too; write jobs to take the engines only"
        if (entry.api.authorization or entry.api.basic_auth or entry.api.headers) and _is_open(entry.url):
            yield f"{where}.api: credentials are sent unencrypted (http) to another machine; use https"


def _about_sources(settings: Settings) -> Iterator[str]:
    for index, entry in enumerate(settings.prometheus):
        where = f"prometheus[{index}]"
        if (entry.authorization or entry.basic_auth or entry.headers) and _is_open(entry.url):
            yield f"{where}: credentials are sent unencrypted (http) to another machine; use https"
        if entry.tls.insecure_skip_verify:
            yield f"{where}: the certificate is not checked (insecure_skip_verify): anyone in between can read and lie"
        if 2 * entry.step_s > settings.derive.window_s:
            yield f"{where}: derive.window holds fewer than two steps; ask more often or widen the window"
        if (entry.gpu or entry.gpu_hour_usd) and entry.gpus is None:
            yield f"{where}: a GPU is named without gpus (how many each target has): cost cannot be derived"


def _about_times(settings: Settings) -> Iterator[str]:
    periods = [service.slo.period_s for service in settings.services if service.slo is not None]
    periods += [entry.slo().period.length_s for entry in settings.slos]
    needed_s = max(periods, default=0.0) + DAY_S
    if periods and settings.retention.minutes_s < needed_s:
        yield (
            f"retention.minutes: {duration_text(settings.retention.minutes_s)} is shorter than the longest SLO period "
            f"and a day ({duration_text(needed_s)}): the error budget will be incomplete"
        )
    if settings.derive.window_s > settings.retention.samples_s:
        yield "derive.window: longer than retention.samples: windows will be incomplete"
    for url, count in Counter(target.url for target in settings.targets).items():
        if count > 1:
            yield f"targets: {url} is scraped under {count} names: its traffic counts {count} times"


def _about_target(settings: Settings, where: str, target: TargetEntry) -> Iterator[str]:
    yield from _about_credentials(where, target)
    yield from _about_entry(settings, where, target)
    if (target.accelerators.devices or target.accelerators.host) and not settings.accelerators:
        yield f"{where}: accelerators are named, and no exporter tells of any; add its page under accelerators"


def _about_accelerators(settings: Settings) -> Iterator[str]:
    for index, exporter in enumerate(settings.accelerators):
        where = f"accelerators[{index}] ({exporter.name})"
        yield from _about_credentials(where, exporter)
        yield from _about_page(settings, where, exporter)


def _about_credentials(where: str, entry: TargetEntry | AcceleratorEntry) -> Iterator[str]:
    if (entry.authorization or entry.basic_auth or entry.headers) and _is_open(entry.url):
        yield f"{where}: credentials are sent unencrypted (http) to another machine; use https"


def _about_entry(settings: Settings, where: str, entry: PerTarget) -> Iterator[str]:
    yield from _about_page(settings, where, entry)
    if entry.json_stats and entry.engine not in (None, "trtllm"):
        yield f"{where}: json_stats is for TensorRT-LLM and has no effect on {entry.engine}"
    if (entry.gpu or entry.gpu_hour_usd) and entry.gpus is None:
        yield f"{where}: a GPU is named without gpus (how many): cost cannot be derived"


def _about_page(settings: Settings, where: str, entry: PerPage) -> Iterator[str]:
    scrape = settings.scrape_of(entry)
    chosen = entry.timeout_s is not None or "timeout_s" in settings.scrape.model_fields_set
    if chosen and scrape.timeout_s == scrape.interval_s:
        both = duration_text(scrape.interval_s)
        yield f"{where}: the timeout equals the interval ({both}): a slow page costs the next scrape"
    if 2 * scrape.interval_s > settings.derive.window_s:
        yield f"{where}: derive.window holds fewer than two scrapes; scrape more often or widen the window"
    if entry.tls.insecure_skip_verify:
        yield f"{where}: the certificate is not checked (insecure_skip_verify): anyone in between can read and lie"


def _is_open(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
