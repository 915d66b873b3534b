"""What is scraped and how: options, targets and Prometheus file_sd discovery.

A target comes from the configuration (static) or from file_sd files that other tools write and rewrite while the
service runs. ``merge`` makes one list of both in which no name and no discovered URL occurs twice.
"""

import asyncio
import glob
import json
import logging
import math
import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import yaml

from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Target

log = logging.getLogger(__name__)

#: a file_sd file of 10 000 targets with ten labels each is about 5 MB
FILE_LIMIT_BYTES: Final = 16 * 1024 * 1024

#: labels that set the URL or goodwatch's own fields; they are not kept as labels of the target
META_LABELS: Final = frozenset({"goodwatch_service", "goodwatch_engine", "goodwatch_gpus"})

#: Prometheus' per-target intervals; refused aloud because ignoring them would silently change the resolution
UNSUPPORTED_LABELS: Final = ("__scrape_interval__", "__scrape_timeout__")

#: headers that carry the HTTP framing; a configured value would break the exchange
FRAMING_HEADERS: Final = frozenset({"accept-encoding", "connection", "content-length", "transfer-encoding"})

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, token
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class ScrapeOptions:
    """How one target is scraped. Files are paths of PEM files, read again when they change.

    Raises ``ConfigError`` when a value cannot work.
    """

    interval_s: float = 15.0
    timeout_s: float = 10.0  # connect, headers and body together; an interval at most
    body_limit_bytes: int = 50_000_000  # after decompression
    sample_limit: int = 200_000
    label_limit: int = 64
    follow_redirects: bool = False
    bearer: str | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)  # user name, password
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False
    json_stats: bool = False  # TensorRT-LLM's JSON statistics, which reading consumes

    def __post_init__(self) -> None:
        for name in ("interval_s", "timeout_s", "body_limit_bytes", "sample_limit", "label_limit"):
            if not (0 < getattr(self, name) < math.inf):
                raise ConfigError(f"scrape options: {name} is {getattr(self, name)}; it must be more than 0")
        if self.bearer is not None and self.basic is not None:
            raise ConfigError("scrape options: bearer and basic are both set; a request carries one of them")
        if self.key_file is not None and self.cert_file is None:
            raise ConfigError("scrape options: key_file is set without cert_file; a client certificate needs both")
        self._check_headers()

    def _check_headers(self) -> None:
        """Refuse what HTTP could not carry; values are never quoted, they may be secrets."""
        for name, value in self.headers:
            if not _HEADER_NAME.fullmatch(name) or name.lower() in FRAMING_HEADERS:
                raise ConfigError(f"scrape options: headers: {name!r} cannot be set here; use another header")
            if name.lower() == "authorization" and (self.bearer is not None or self.basic is not None):
                raise ConfigError("scrape options: headers: Authorization is set beside bearer or basic; keep one")
            if _CONTROL.search(value):
                raise ConfigError(f"scrape options: headers: the value of {name} has a line break; remove it")
        for name, secret in (("bearer", self.bearer), ("basic", ":".join(self.basic or ()))):
            if secret and _CONTROL.search(secret):
                raise ConfigError(f"scrape options: {name} has a line break; remove it (often the end of its file)")

    @property
    def budget_s(self) -> float:
        """Seconds that one scrape may take in all: the timeout, but never beyond the next scrape."""
        return min(self.timeout_s, self.interval_s)


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A target and how it is scraped."""

    target: Target
    options: ScrapeOptions = field(default_factory=ScrapeOptions)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What one file_sd entry of the configuration gives every target that its files name."""

    service: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    gpus: float | None = None
    gpu_hour_usd: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    scheme: str = "http"
    metrics_path: str = "/metrics"
    args: str = ""
    options: ScrapeOptions = field(default_factory=ScrapeOptions)


def _log_dropped(sentence: str) -> None:
    log.warning("target dropped", extra={"problem": sentence})


def merge(
    static: Sequence[TargetSpec], discovered: Iterable[TargetSpec], *, report: Callable[[str], None] = _log_dropped
) -> list[TargetSpec]:
    """One list with unique names, static first; what is dropped goes to ``report`` as a sentence.

    A discovered target whose URL is already there is dropped too, whatever its name: two names for one engine
    would count its traffic and its GPUs twice.
    """
    kept: dict[str, TargetSpec] = {}
    urls: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    for is_static, specs in ((True, static), (False, discovered)):
        for spec in specs:
            name, page = spec.target.name, (spec.target.url, spec.options.headers)
            if name in kept:
                report(f"target {name!r} is there twice; give one of them another name (label instance in file_sd)")
            elif not is_static and page in urls:
                report(f"target {name!r} has the same URL as {urls[page]!r}; it would be counted twice")
            else:
                kept[name] = spec
                urls.setdefault(page, name)
    return list(kept.values())


@dataclass(frozen=True, slots=True)
class _File:
    """What is known of one file: its last good targets and what is wrong with it now."""

    stamp: tuple[int, int, int] | None = None  # None: read again at the next poll
    specs: tuple[TargetSpec, ...] = ()
    problem: str = ""


class FileSD:
    """Targets from Prometheus file_sd files (JSON or YAML), polled for changes.

    A broken file keeps the targets of its last good reading and is named in ``problems``; other files go on. A file
    that is gone takes its targets with it, as in Prometheus. A single bad target is left out and named.
    One ``collector.discovery.port.Discovery``.

    ``files`` are paths or globs, ``engines`` the engine names that ``goodwatch_engine`` may take (empty: any).
    """

    def __init__(
        self,
        files: Sequence[str],
        *,
        defaults: Defaults | None = None,
        refresh_s: float = 30.0,
        engines: Collection[str] = (),
        name: str = "file_sd",
    ) -> None:
        self.name = name
        self._patterns = tuple(files)
        self._defaults = defaults or Defaults()
        self._engines = tuple(engines)
        self._refresh_s = refresh_s
        self._files: dict[str, _File] = {}
        self._unmatched: tuple[str, ...] = ()
        self._reading = asyncio.Lock()
        self._told: dict[str, str] = {}

    @property
    def targets(self) -> tuple[TargetSpec, ...]:
        """Targets as last read, by file name; duplicates are still in (see ``merge``)."""
        return tuple(spec for path in sorted(self._files) for spec in self._files[path].specs)

    @property
    def problems(self) -> dict[str, str]:
        """Path (or pattern without a match) → what is wrong with it, for a person; empty when all is well."""
        found = {path: kept.problem for path, kept in sorted(self._files.items()) if kept.problem}
        return found | dict.fromkeys(self._unmatched, "no file matches; it is looked for again at the next refresh")

    async def refresh(self) -> bool:
        """Read what changed since the last call; True when the targets differ from before."""
        async with self._reading:
            before = self.targets
            self._files, self._unmatched = await asyncio.to_thread(self._scan, self._files)
            self._told, told = self.problems, self._told
            for path, problem in self._told.items():
                if told.get(path) != problem:
                    log.warning("discovery", extra={"discovery": self.name, "at": path, "problem": problem})
            return self.targets != before

    async def run(self, on_change: Callable[[tuple[TargetSpec, ...]], None]) -> None:
        """Refresh now and every ``refresh_s`` seconds until cancelled; call ``on_change`` when targets differ."""
        while True:
            if await self.refresh():
                on_change(self.targets)
            await asyncio.sleep(self._refresh_s)

    def _scan(self, before: Mapping[str, _File]) -> tuple[dict[str, _File], tuple[str, ...]]:
        found: dict[str, _File] = {}
        unmatched: list[str] = []
        for pattern in self._patterns:
            paths = sorted(glob.glob(pattern))  # noqa: PTH207  (patterns may be absolute; Path.glob refuses those)
            if not paths:
                unmatched.append(pattern)
            for path in paths:
                found[path] = self._read(Path(path), before.get(path, _File()))
        return found, tuple(unmatched)

    def _read(self, path: Path, before: _File) -> _File:
        try:
            facts = path.stat()
            stamp = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
            if stamp == before.stamp:
                return before
            if not stat.S_ISREG(facts.st_mode):
                raise ValueError("not a regular file; name a JSON or YAML file")
            groups = _groups(_document(path))
        except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
            keeps = f"; the {len(before.specs)} targets read before stay" if before.specs else ""
            return _File(None, before.specs, f"{_said(error)}{keeps}")
        specs, notes = self._specs(groups)
        return _File(stamp, specs, "; ".join(notes))

    def _specs(self, groups: list[tuple[list[str], dict[str, str]]]) -> tuple[tuple[TargetSpec, ...], list[str]]:
        specs: list[TargetSpec] = []
        notes: list[str] = []
        for number, (addresses, labels) in enumerate(groups):
            notes += [f"group {number}: {note}" for note in _label_notes(labels, self._engines)]
            for address in addresses:
                try:
                    specs.append(_spec(address, labels, self._defaults, self._engines))
                except ValueError as error:
                    notes.append(f"group {number}: target {_without_user(address)!r} left out: {error}")
        for name, count in Counter(spec.target.name for spec in specs).items():
            if count > 1:
                notes.append(f"target {name!r} is named {count} times; only the first is kept")
        return tuple(specs), notes


def _said(error: Exception) -> str:
    """An error of reading or parsing as one line for a person."""
    if isinstance(error, RecursionError):
        return "nested too deeply; expected a list of {targets, labels}"
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}; save it as UTF-8"
    return " ".join(str(error).split())


def _document(path: Path) -> object:
    with path.open("rb") as stream:
        raw = stream.read(FILE_LIMIT_BYTES + 1)
    if len(raw) > FILE_LIMIT_BYTES:
        raise ValueError(f"larger than {FILE_LIMIT_BYTES} bytes; split it into several files")
    text = raw.decode("utf-8-sig")
    if not text.strip():
        # A writer that truncates before it writes shows an empty file for a moment: not the wish for no targets.
        raise ValueError("empty; write [] when there are no targets")
    if path.suffix.lower() == ".json":
        return json.loads(text)
    # The base loader leaves every scalar as its text: a label `version: 1.10` must not become 1.1.
    return yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # noqa: S506


def _groups(document: object) -> list[tuple[list[str], dict[str, str]]]:
    """Target groups of a file; ``ValueError`` says which group is not one."""
    if not isinstance(document, list):
        raise ValueError("expected a list of groups, each {targets: [host:port], labels: {name: value}}")
    groups: list[tuple[list[str], dict[str, str]]] = []
    for number, group in enumerate(document):
        if not isinstance(group, dict) or not isinstance(group.get("targets"), list):
            raise ValueError(f"group {number}: expected {{targets: [host:port], labels: {{name: value}}}}")
        if unknown := sorted(str(key) for key in group.keys() - {"targets", "labels"}):
            raise ValueError(f"group {number}: unknown key {unknown[0]!r}; known: targets, labels")
        labels = {} if group.get("labels") in (None, "", "~", "null") else group["labels"]
        if not isinstance(labels, dict):
            raise ValueError(f"group {number}: labels: expected a mapping of name to text")
        for where, value in (
            *((f"labels.{k}", v) for k, v in labels.items()),
            *(("targets", t) for t in group["targets"]),
        ):
            if not isinstance(value, str):
                raise ValueError(f"group {number}: {where}: {value!r} is not text; put it in quotes")
        groups.append((group["targets"], labels))
    return groups


def _label_notes(labels: Mapping[str, str], engines: Collection[str]) -> list[str]:
    """What the labels ask for that cannot be done; the targets are kept without it."""
    notes = [
        f"label {name} is not supported; set it in the configuration" for name in UNSUPPORTED_LABELS if name in labels
    ]
    for name in sorted(labels):
        if name.startswith("goodwatch_") and name not in META_LABELS:
            notes.append(f"unknown label {name}; known: {', '.join(sorted(META_LABELS))}")
    if (gpus := labels.get("goodwatch_gpus")) is not None and _positive(gpus) is None:
        notes.append(f"goodwatch_gpus: {gpus!r} is not a number above 0; the number of GPUs stays unknown")
    if (engine := labels.get("goodwatch_engine")) and engines and engine not in engines:
        notes.append(f"goodwatch_engine: unknown engine {engine!r}; known: {', '.join(sorted(engines))}")
    return notes


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


def _spec(address: str, labels: Mapping[str, str], defaults: Defaults, engines: Collection[str]) -> TargetSpec:
    """One target of a group; ``ValueError`` says why its address cannot be one."""
    parts = _url(address.strip(), labels, defaults)
    engine = labels.get("goodwatch_engine") or defaults.engine
    if engines and engine not in engines:
        engine = defaults.engine
    place = parts.netloc.rpartition("@")[2]
    target = Target(
        name=labels.get("instance") or (place if parts.path == "/metrics" else place + parts.path),
        url=parts.geturl(),
        service=labels.get("goodwatch_service")
        or defaults.service
        or labels.get("service")
        or labels.get("job")
        or "default",
        engine=engine,
        engine_version=defaults.engine_version,
        gpus=_positive(labels["goodwatch_gpus"]) if "goodwatch_gpus" in labels else defaults.gpus,
        gpu_hour_usd=defaults.gpu_hour_usd,
        labels={
            **defaults.labels,
            **{name: value for name, value in labels.items() if not name.startswith("__") and name not in META_LABELS},
        },
        args=defaults.args,
    )
    return TargetSpec(target, defaults.options)


def _url(address: str, labels: Mapping[str, str], defaults: Defaults) -> SplitResult:
    """The URL of a target from ``host:port`` or a full URL and the labels ``__scheme__`` and so on."""
    path = "/" + (labels.get("__metrics_path__") or defaults.metrics_path).lstrip("/")
    if "://" in address:
        parts = urlsplit(address)
        parts = parts if parts.path not in ("", "/") else parts._replace(path=path)
    elif "/" in address or "@" in address or "?" in address:
        raise ValueError("expected host:port; write a full URL (http://host:port/path) to give a path")
    else:
        parts = urlsplit(f"{labels.get('__scheme__') or defaults.scheme}://{address}{path}")
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"scheme {parts.scheme!r} is not http or https")
    if not parts.hostname or re.search(r"\s", parts.netloc) or parts.netloc.endswith(":"):
        raise ValueError("expected host:port, for example 10.0.0.7:8000 or [2001:db8::7]:8000")
    if parts.port == 0:  # reading the port raises ValueError when it is not a number up to 65535
        raise ValueError("port 0 cannot be scraped")
    params = [(name.removeprefix("__param_"), labels[name]) for name in sorted(labels) if name.startswith("__param_")]
    if params:
        query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), *params])
        parts = parts._replace(query=query)
    return parts._replace(fragment="")


def _without_user(address: str) -> str:
    """An address as it may be shown: without a password in it."""
    head, at, place = address.rpartition("@")
    return f"{head.rpartition('//')[0]}//…@{place}" if at else address
