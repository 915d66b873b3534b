"""Settings to parts: targets, prices, limits. The only place that knows every adapter."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from collector.discovery.kubernetes import InCluster, Kubeconfig, KubernetesSD, Selection, Wanted
from collector.discovery.port import Discovery, OnFailure, ignore
from collector.discovery.prometheus import Choice, PrometheusSD
from collector.scrape import Session
from collector.stores.duckdb import DuckDBStore, Retention
from collector.targets import Defaults, FileSD, ScrapeOptions, TargetSpec
from goodwatch.app._fields import split_listen
from goodwatch.app.accelerators import Holding
from goodwatch.app.config import (
    AcceleratorEntry,
    Credentials,
    DnsSd,
    FileSd,
    KubernetesSd,
    PerTarget,
    PrometheusSd,
    ScrapeSettings,
    Service,
    Settings,
    TargetEntry,
)
from goodwatch.app.prices import PriceBook
from goodwatch.core.clock import Clock
from goodwatch.core.engine import Engine
from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Limits, Target
from goodwatch.signals.cost import Price


@dataclass(frozen=True, slots=True)
class Priced:
    """A target's price, and what speaks against it."""

    price: Price
    doubt: str = ""


def options_of(scrape: ScrapeSettings, entry: Credentials) -> ScrapeOptions:
    """How one target or API is read, secrets opened."""
    auth, basic, tls = entry.authorization, entry.basic_auth, entry.tls
    headers = [(name, value.get_secret_value()) for name, value in entry.headers.items()]
    bearer = None
    if auth is not None and auth.type.lower() == "bearer":
        bearer = auth.credentials.get_secret_value()
    elif auth is not None:
        headers.append(("Authorization", f"{auth.type} {auth.credentials.get_secret_value()}"))
    return ScrapeOptions(
        interval_s=scrape.interval_s,
        timeout_s=scrape.timeout_s,
        body_limit_bytes=scrape.body_limit_bytes,
        sample_limit=scrape.sample_limit,
        label_limit=scrape.label_limit,
        follow_redirects=scrape.follow_redirects,
        bearer=bearer,
        basic=None if basic is None else (basic.username, basic.password.get_secret_value()),
        headers=tuple(headers),
        ca_file=_text(tls.ca_file),
        cert_file=_text(tls.cert_file),
        key_file=_text(tls.key_file),
        server_name=tls.server_name,
        insecure_skip_verify=tls.insecure_skip_verify,
        json_stats=isinstance(entry, PerTarget) and entry.json_stats,
    )


def exporter_of(settings: Settings, entry: AcceleratorEntry) -> TargetSpec:
    """One configured exporter of accelerators."""
    target = Target(entry.name, str(entry.url), "", kind="accelerator")
    return TargetSpec(target, options_of(settings.scrape_of(entry), entry))


def holding_of(settings: Settings) -> Mapping[str, Holding]:
    """What the configuration says of the accelerators of targets, by target."""
    held = ((t.name, t.accelerators) for t in settings.targets)
    return {name: Holding(h.devices, h.host or "") for name, h in held if h.devices or h.host}


def spec_of(settings: Settings, entry: TargetEntry) -> TargetSpec:
    """One configured target."""
    target = Target(
        entry.name, str(entry.url), entry.service, entry.engine, entry.engine_version, entry.gpus, entry.gpu_hour_usd,
        {**entry.labels, **({"gpu": entry.gpu} if entry.gpu else {})}, args=entry.args,
    )  # fmt: skip
    return TargetSpec(target, options_of(settings.scrape_of(entry), entry))


def discoveries_of(
    settings: Settings, engines: Iterable[str], session: Session, *, on_failure: OnFailure = ignore
) -> list[Discovery]:
    """Everything that finds targets, in the order of the file. Nothing is looked up yet.

    ``session`` must be open before the first of them looks. Raises ``ConfigError`` when one cannot work here.
    """
    known = tuple(engines)
    return [
        _discovery(settings, name, entry, engines=known, session=session, on_failure=on_failure)
        for name, entry in settings.discoveries
    ]


def made_from(settings: Settings) -> tuple[object, ...]:
    """All that discoveries are made from: as long as it stays equal, the running ones can go on."""
    return settings.discoveries, settings.scrape


def _discovery(
    settings: Settings,
    name: str,
    entry: PerTarget,
    *,
    engines: tuple[str, ...],
    session: Session,
    on_failure: OnFailure,
) -> Discovery:
    defaults = _defaults(settings, entry)
    match entry:
        case DnsSd():
            return _dns(name, entry, replace(defaults, scheme=entry.scheme, metrics_path=entry.path), on_failure)
        case KubernetesSd():
            return _kubernetes(name, entry, defaults, session, on_failure)
        case PrometheusSd():
            api = options_of(ScrapeSettings(interval_s=entry.api.timeout_s, timeout_s=entry.api.timeout_s), entry.api)
            return PrometheusSD(
                name, str(entry.url), session=session, api=api, choice=Choice(entry.jobs, tuple(entry.match.items())),
                defaults=defaults, refresh_s=entry.refresh_s, on_failure=on_failure,
            )  # fmt: skip
        case FileSd():
            files = tuple(str(f) for f in entry.files)
            return FileSD(files, defaults=defaults, refresh_s=entry.refresh_s, engines=engines, name=name)
        case _:
            raise TypeError(f"{name}: no discovery is wired for a {type(entry).__name__}")


def _dns(name: str, entry: DnsSd, defaults: Defaults, on_failure: OnFailure) -> Discovery:
    try:
        from collector.discovery.dns import DnsSD, Question  # noqa: PLC0415  (an extra: nobody else needs it)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{name}: needs the Python package dnspython; run: pip install dnspython") from error
    servers = tuple(split_listen(one) for one in entry.resolvers)
    question = Question(entry.names, entry.type, entry.port, servers, entry.lookup_timeout_s)
    return DnsSD(
        name, question, defaults=defaults, refresh_s=entry.refresh_s, keep_s=entry.keep_s, on_failure=on_failure
    )  # fmt: skip


def _kubernetes(
    name: str, entry: KubernetesSd, defaults: Defaults, session: Session, on_failure: OnFailure
) -> KubernetesSD:
    try:
        access = Kubeconfig(entry.kubeconfig, entry.context) if entry.kubeconfig else InCluster(os.environ)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error
    wanted = Wanted(entry.port, entry.path, entry.scheme, entry.annotations, entry.ready_only, entry.pod_labels)
    selection = Selection(entry.role, entry.namespaces, entry.selector or "", wanted)
    return KubernetesSD(
        name, access, session=session, selection=selection, defaults=defaults, on_failure=on_failure
    )  # fmt: skip


def _defaults(settings: Settings, entry: PerTarget) -> Defaults:
    """What an entry gives every target that it finds."""
    return Defaults(
        service=entry.service if "service" in entry.model_fields_set else None,
        engine=entry.engine,
        engine_version=entry.engine_version,
        gpus=entry.gpus,
        gpu_hour_usd=entry.gpu_hour_usd,
        labels={**entry.labels, **({"gpu": entry.gpu} if entry.gpu else {})},
        args=entry.args,
        options=options_of(settings.scrape_of(entry), entry),
    )


def price_of(target: Target, book: PriceBook, clock: Clock) -> Priced:
    """What a target holds and what that costs; unknown parts stay None."""
    today = datetime.fromtimestamp(clock.now_s(), UTC).date()
    entry = PerTarget.model_validate(
        {"gpu": target.labels.get("gpu"), "gpu_hour_usd": target.gpu_hour_usd, "gpus": target.gpus}, by_name=True
    )
    found = book.price_of(entry, today=today)
    if found is None:
        return Priced(Price(target.gpus, None))
    dated = f" ({found.as_of})" if found.as_of else ""
    return Priced(Price(target.gpus, found.gpu_hour_usd, f"{found.origin}{dated}"), found.warning or "")


def limits_of(service: Service | None) -> Limits:
    """The latency targets of a service; none when it has no SLO."""
    slo = service.slo if service else None
    return Limits() if slo is None else slo.limits


def services_by_name(settings: Settings) -> Mapping[str, Service]:
    """Configured services by name."""
    return {s.name: s for s in settings.services}


def open_store(settings: Settings, clock: Clock) -> DuckDBStore:
    """The embedded store in ``data_dir``. Raises ``StoreError`` that says what to do."""
    folder = Path(settings.data_dir)
    keep = settings.retention
    return DuckDBStore(
        folder / "goodwatch.duckdb",
        retention=Retention(keep.samples_s, keep.minutes_s, keep.derived_s),
        clock=clock,
    )


def engine_names(engines: Mapping[str, Engine]) -> tuple[str, ...]:
    """Names that ``engine`` may have in the configuration."""
    return tuple(sorted(engines))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


SettingsLoader = Callable[[], Settings]
