"""Settings to parts: targets, prices, limits. The only place that knows every adapter."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from collector.stores.duckdb import DuckDBStore, Retention
from collector.targets import Defaults, FileSD, ScrapeOptions, TargetSpec
from goodwatch.app.config import FileSd, PerTarget, ScrapeSettings, Service, Settings, TargetEntry
from goodwatch.app.prices import PriceBook
from goodwatch.core.clock import Clock
from goodwatch.core.engine import Engine
from goodwatch.core.model import Limits, Target
from goodwatch.signals.cost import Price


@dataclass(frozen=True, slots=True)
class Priced:
    """A target's price, and what speaks against it."""

    price: Price
    doubt: str = ""


def options_of(scrape: ScrapeSettings, entry: PerTarget) -> ScrapeOptions:
    """How one target is scraped, secrets opened."""
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
        json_stats=entry.json_stats,
    )


def spec_of(settings: Settings, entry: TargetEntry) -> TargetSpec:
    """One configured target."""
    target = Target(
        entry.name, str(entry.url), entry.service, entry.engine, entry.engine_version, entry.gpus, entry.gpu_hour_usd,
        {**entry.labels, **({"gpu": entry.gpu} if entry.gpu else {})},
    )  # fmt: skip
    return TargetSpec(target, options_of(settings.scrape_of(entry), entry))


def discovery_of(settings: Settings, entry: FileSd, engines: Iterable[str]) -> FileSD:
    """One ``file_sd`` entry."""
    given = entry.model_fields_set
    defaults = Defaults(
        service=entry.service if "service" in given else None,
        engine=entry.engine,
        engine_version=entry.engine_version,
        gpus=entry.gpus,
        gpu_hour_usd=entry.gpu_hour_usd,
        labels={**entry.labels, **({"gpu": entry.gpu} if entry.gpu else {})},
        options=options_of(settings.scrape_of(entry), entry),
    )
    return FileSD(
        tuple(str(f) for f in entry.files), defaults=defaults, refresh_s=entry.refresh_s, engines=tuple(engines)
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
    return Limits() if slo is None else Limits(slo.ttft_s, slo.tpot_s, slo.e2e_s)


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
