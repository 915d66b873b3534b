"""Metrics bodies for ``goodwatch inspect``: from a URL, a file, standard input, or a folder."""

import asyncio
import gzip
import json
import lzma
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import IO, Any, Final

from yarl import URL

from collector._http import shown
from collector.capability import Capability, capability
from collector.exposition import DEFAULT_LIMITS, PageTooLarge
from collector.pipeline import TargetReader, Understood
from collector.probe import probe
from collector.targets import ScrapeOptions, TargetSpec
from goodwatch.app.engines import known_accelerators
from goodwatch.app.recording import RecordedScrape, Recording
from goodwatch.core.engine import Engine
from goodwatch.core.errors import ConfigError, TransientError
from goodwatch.core.model import Limits, Target

_BODY_SUFFIXES: Final = (".prom", ".txt", ".metrics", ".om", ".json")
_OPEN: Final[Mapping[str, Callable[..., IO[Any]]]] = {".gz": gzip.open, ".xz": lzma.open}
_RECORDING: Final = ("metrics.jsonl", "metrics.jsonl.gz", "metrics.jsonl.xz")
#: The usual cause with several API servers: their shards lie on network storage.
_SHARDS: Final = "; with several API servers, is PROMETHEUS_MULTIPROC_DIR a folder on a local disk?"
#: One byte more than is allowed, so that a longer body is refused as such and never held whole.
_READ_BYTES: Final = DEFAULT_LIMITS.body_bytes + 1


@dataclass(frozen=True, slots=True)
class Inspected:
    """One body and its report. ``about`` says what the body is, when that is not plain."""

    name: str
    capability: Capability
    about: str = ""


@dataclass(frozen=True, slots=True)
class How:
    """How to read: the engines that are known, what the operator pins, the targets to hold against the buckets."""

    engines: Mapping[str, Engine]
    limits: Limits
    now_s: float
    engine: str | None = None
    version: str | None = None
    timeout_s: float = 10.0

    def target(self, name: str, url: str) -> Target:
        """A target for one body."""
        return Target(name, url, "inspect", engine=self.engine, engine_version=self.version)


def inspect(source: str, how: How) -> Iterator[Inspected]:
    """Reports of every body behind ``source``.

    Raises ``ConfigError`` when there is no such source, ``TransientError`` when a URL does not answer with a page.
    """
    if source.lower().startswith(("http://", "https://")):
        yield asyncio.run(_of_url(source, how))
        return
    if source == "-":
        yield _of_body("standard input", sys.stdin.buffer.read(_READ_BYTES), how, how.now_s)
        return
    path = Path(source)
    if path.is_dir():
        yield from _of_folder(path, how)
    elif path.name in _RECORDING and path.is_file():
        yield _of_recording(path.parent, how)
    elif path.is_file():
        yield _of_body(source, body_of(path), how, None)
    else:
        hint = f"; for a host write http://{source}" if ":" in source and not source.startswith(("/", ".")) else ""
        raise ConfigError(f"{source}: no such file or folder, and no URL{hint}")


async def _of_url(url: str, how: How) -> Inspected:
    try:
        whole = URL(url)
        if not whole.host:
            raise ValueError("it names no host")
    except ValueError as error:
        raise ConfigError(f"{url}: not a URL: {error}; write http://HOST:8000/metrics") from error
    if not whole.path.strip("/"):
        whole = whole.with_path(how.engines[how.engine].metrics_paths[0] if how.engine else "/metrics")
    name = shown(whole)
    target = how.target(name, str(whole))
    spec = TargetSpec(target, ScrapeOptions(interval_s=how.timeout_s, timeout_s=how.timeout_s))
    probed = await probe(spec, how.engines)
    if not probed.fetched.up:
        hint = _SHARDS if (probed.fetched.status or 0) >= 500 else ""
        raise TransientError(f"{name}: {probed.fetched.error}{hint}")
    reader = TargetReader(target, how.engines, told_version=probed.version)
    understood = _or_devices(reader, reader.understand(probed.fetched.body, probed.fetched.content_type))
    about = f"read in {probed.fetched.duration_s * 1e3:.0f} ms"
    return Inspected(name, capability(understood, how.limits, now_s=how.now_s), about)


def _of_body(name: str, body: bytes | str, how: How, now_s: float | None, content_type: str | None = None) -> Inspected:
    """The report of a body that was saved; ``now_s`` is None when nobody knows when, so no uptime is told."""
    try:
        reader = TargetReader(how.target(name, name), how.engines)
        understood = _or_devices(reader, reader.understand(body, content_type))
    except PageTooLarge as error:
        raise ConfigError(f"{name}: {error}") from error
    return Inspected(name, capability(understood, how.limits, now_s=now_s))


def _or_devices(reader: TargetReader, understood: Understood) -> Understood:
    """The page as an exporter of accelerators wrote it, when no engine did."""
    if understood.engine is not None:
        return understood
    return TargetReader(reader.target, known_accelerators()).understand_page(understood.page)


def _of_folder(folder: Path, how: How) -> Iterator[Inspected]:
    if any((folder / name).is_file() for name in _RECORDING):
        yield _of_recording(folder, how)
        return
    try:
        files = sorted(p for p in folder.iterdir() if _is_body(p))
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror or error}") from error
    if not files:
        raise ConfigError(
            f"{folder}: neither a recording (metrics.jsonl) nor a body ({', '.join(_BODY_SUFFIXES)}) is in it"
        )
    for path in files:
        yield _of_body(str(path), body_of(path), how, None)


def _is_body(path: Path) -> bool:
    plain = path.with_suffix("") if path.suffix in _OPEN else path
    return plain.suffix in _BODY_SUFFIXES and path.is_file()


def _of_recording(folder: Path, how: How) -> Inspected:
    """The last page with the most series: a restart's first pages have hardly any."""
    fullest: RecordedScrape | None = None
    most, failed, count = 0, 0, 0
    for scrape in Recording.open(folder).scrapes():
        count += 1
        lines = -1 if scrape.body is None else scrape.body.count("\n")
        failed += scrape.body is None
        if lines >= most:
            fullest, most = scrape, lines
    if fullest is None or fullest.body is None:
        raise ConfigError(f"{folder}: none of its {count} scrapes brought a page")
    one = _of_body(str(folder), fullest.body, how, fullest.done_s, fullest.content_type)
    return replace(one, about=f"the fullest of {count - failed} pages; {failed} scrapes failed")


def body_of(path: Path) -> bytes:
    """A saved body, decompressed. Raises ``ConfigError`` when it cannot be read."""
    try:
        with _OPEN.get(path.suffix, open)(path, "rb") as body:
            return bytes(body.read(_READ_BYTES))
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def as_json(inspected: Inspected) -> dict[str, Any]:
    """A report as plain JSON values."""
    report = inspected.capability
    plain: dict[str, Any] = json.loads(json.dumps(_plain(asdict(report))))
    counts = {str(status): n for status, n in report.counts.items()}
    return {"source": inspected.name, "about": inspected.about, "counts": counts, **plain}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
