"""Weekly reports in the running service: made when due, made up after downtime, kept, and told to sinks.

Which weeks are missing follows from what is kept, so nothing is remembered beside it. Of several processes one makes a
report: each claims the week in an append-only record with an expiry, and the first claim that is alive wins for all who
read the same records. What it cannot do: processes that do not share ``records.sqlite`` know nothing of each other, and
a maker that stands still for longer than ``LEASE_S`` may be overtaken; the report is then made twice, with equal content.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger

from alerts.grouping import Message
from alerts.sinks._port import Sink
from alerts.values import FiringAlert, fingerprint
from goodwatch.app._report_sections import Report
from goodwatch.app.report_reads import Gathering
from goodwatch.core.clock import Clock
from goodwatch.core.errors import ConfigError, NoDataError, StoreError, TransientError
from goodwatch.core.ports import RecordStore
from goodwatch.core.record import Record
from planner.report.compose import composed
from planner.report.document import Sentence
from planner.report.facts import WeekFacts
from planner.report.render import rendered
from planner.report.weeks import Week, due
from planner.report.words import Language, Words

log = logging.getLogger(__name__)

KIND: Final = "report"
LEASE: Final = "lease"
LEASE_S: Final = 900.0
#: how often it is looked whether a report is missing or a sink was not told
LOOK_EVERY_S: Final = 900.0
#: a report that is older is not sent any more: news of last month help nobody
_SEND_FOR_S: Final = 3 * 86_400.0
_SINK_S: Final = 60.0
_FOLDER: Final = "reports"
_NAME: Final = re.compile(r"\d{4}-W\d{2}")


def claimed(records: RecordStore, name: str, holder: str, now_s: float, *, length_s: float = LEASE_S) -> bool:
    """Claim a lease; whether it is ours. Blocking.

    Every reader folds the same history to the same holder: a claim counts when nobody else's was alive at its time.
    """
    if _holder(records.history(LEASE, name), now_s) not in ("", holder):
        return False
    records.put(LEASE, name, now_s, {"holder": holder, "until_s": now_s + length_s})
    return _holder(records.history(LEASE, name), now_s) == holder


def released(records: RecordStore, name: str, holder: str, now_s: float) -> None:
    """Give a lease back, if it is ours. Blocking."""
    if _holder(records.history(LEASE, name), now_s) == holder:
        records.put(LEASE, name, now_s, {"holder": holder, "until_s": now_s})


def _holder(history: Sequence[Record], now_s: float) -> str:
    """Who holds it now; "" nobody."""
    holder, until_s = "", 0.0
    for one in history:
        who, end_s = one.body.get("holder"), one.body.get("until_s")
        if one.at_s > now_s + LEASE_S:  # of a clock that was set back since
            continue
        if isinstance(who, str) and isinstance(end_s, int | float) and (who == holder or one.at_s >= until_s):
            holder, until_s = who, float(end_s)
    return holder if until_s > now_s else ""


@dataclass(frozen=True, slots=True)
class Kept:
    """A report that is there. ``files``: name → SHA-256; ``sent``: sink → when."""

    week: str
    language: str
    zone: str
    made_s: float
    files: Mapping[str, str]
    sent: Mapping[str, float] = field(default_factory=dict)

    def body(self) -> dict[str, object]:
        """The same as JSON values."""
        return {
            "week": self.week, "language": self.language, "zone": self.zone, "made_s": self.made_s,
            "files": dict(self.files), "sent": dict(self.sent),
        }  # fmt: skip


def kept_of(record: Record) -> Kept | None:
    """What a record says; None where it cannot be read."""
    body: Mapping[str, Any] = record.body
    try:
        files = {str(k): str(v) for k, v in body["files"].items()}
        sent = {str(k): float(v) for k, v in body["sent"].items()}
        return Kept(str(body["week"]), str(body["language"]), str(body["zone"]), float(body["made_s"]), files, sent)
    except (KeyError, TypeError, ValueError, AttributeError):
        log.error("a kept report cannot be read", extra={"id": record.id})
        return None


@dataclass(frozen=True, slots=True)
class Archive:
    """Reports that were made: their records, and their texts in ``data_dir/reports``. Blocking."""

    records: RecordStore
    data_dir: Path

    def all(self) -> list[Kept]:
        """Every report, newest week first. Raises ``StoreError``."""
        found = (kept_of(record) for record in self.records.latest(KIND))
        return sorted((one for one in found if one is not None), key=lambda one: one.week, reverse=True)

    def one(self, week: str) -> Kept | None:
        """The report of a week."""
        record = self.records.get(KIND, week)
        return None if record is None else kept_of(record)

    def text(self, week: str, suffix: str) -> str:
        """A report's file: md, html or json.

        Raises ``NoDataError`` when there is none; ``StoreError`` when it is gone or not what was kept.
        """
        kept = self.one(week) if _NAME.fullmatch(week) else None
        name = next((name for name in kept.files if name.endswith(f".{suffix}")), None) if kept else None
        if kept is None or name is None:
            raise NoDataError(f"no report of week {week[:20]!r}; goodwatch report weekly makes one")
        path = self.data_dir / _FOLDER / Path(name).name
        try:
            text = path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error}; make the report again") from error
        if hashlib.sha256(text).hexdigest() != kept.files[name]:
            raise StoreError(f"{path}: was changed since it was made; make the report again")
        return text.decode()

    def keep(self, facts: WeekFacts, language: Language) -> Kept:
        """Write and record a report. Raises ``StoreError``."""
        files = rendered(facts, language)
        write_files(self.data_dir / _FOLDER, files)
        hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
        kept = Kept(facts.week.id, language, facts.week.zone, facts.made_s, hashes)
        self.records.put(KIND, kept.week, facts.made_s, kept.body())
        return kept


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts so that none is ever half there. Blocking. Raises ``StoreError``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            half = folder / f".{name}.{secrets.token_hex(4)}"
            half.write_text(text, encoding="utf-8", newline="\n")
            half.replace(folder / name)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written: {error}; see that the disk is writable and has room") from error


@contextmanager
def _waiting(what: str) -> Iterator[None]:
    """What cannot be read or written now is logged, and tried again at the next look."""
    try:
        yield
    except (StoreError, NoDataError, ConfigError) as error:
        log.error("the weekly report waits", extra={"report": what, "problem": str(error)})


class Reporting:
    """Makes what is due. ``sinks`` by name are those of ``report.sinks``; ``since_s`` is when anything was first seen."""

    def __init__(
        self, section: Report, gathering: Gathering, archive: Archive, clock: Clock, *,
        sinks: Mapping[str, Sink] | None = None, since_s: float, external_url: str = "", holder: str = "",
    ) -> None:  # fmt: skip
        self.archive = archive
        self._section, self._gathering, self._clock = section, gathering, clock
        self._sinks, self._since_s, self._url = dict(sinks or {}), since_s, external_url
        self._holder = holder or f"{os.getpid()}-{secrets.token_hex(4)}"
        self._busy = asyncio.Lock()

    @property
    def zone(self) -> str:
        """Time zone of the weeks."""
        return self._section.zone

    def schedule(self, scheduler: AsyncIOScheduler) -> None:
        """Look at the configured time, and now and then for what was missed."""
        hour, minute = divmod(self._section.minutes % 1440, 60)
        at = CronTrigger(day_of_week=self._section.weekday, hour=hour, minute=minute, timezone=self._section.zone)
        scheduler.add_job(self.look, at, misfire_grace_time=None)
        scheduler.add_job(self.look, "interval", seconds=LOOK_EVERY_S, misfire_grace_time=None)

    async def look(self) -> None:
        """Make what is missing and tell sinks that were not told; what fails is logged and tried again."""
        async with self._busy:
            with _waiting("which reports are missing"):
                for week in await asyncio.to_thread(self.missing):
                    with _waiting(week.id):  # one that cannot be made keeps no other from being made
                        await self._make(week)
            with _waiting("which sinks were not told"):
                await self._tell_all()

    def missing(self) -> tuple[Week, ...]:
        """Weeks whose reports are due and not kept. Blocking. Raises ``StoreError``."""
        kept, section = {one.week for one in self.archive.all()}, self._section
        now_s = self._clock.now_s()
        return due(now_s, kept, self._since_s, zone=section.zone, weekday=section.day, minutes=section.minutes)

    async def facts(self, week: Week) -> WeekFacts:
        """The facts of any week, now. Raises ``StoreError``."""
        return await self._gathering.facts(week, self._clock.now_s())

    async def _make(self, week: Week) -> None:
        records, name = self.archive.records, f"{KIND}:{week.id}"
        if not await asyncio.to_thread(claimed, records, name, self._holder, self._clock.now_s()):
            return
        try:
            if await asyncio.to_thread(self.archive.one, week.id) is None:
                facts = await self.facts(week)
                await asyncio.to_thread(self.archive.keep, facts, self._section.language)
                log.info("weekly report made", extra={"week": week.id})
        finally:
            await asyncio.to_thread(released, records, name, self._holder, self._clock.now_s())

    async def _tell_all(self) -> None:
        now_s = self._clock.now_s()
        for kept in await asyncio.to_thread(self.archive.all):
            waiting = [name for name in self._sinks if name not in kept.sent]
            if not waiting or now_s - kept.made_s > _SEND_FOR_S:
                continue
            name = f"{KIND}:{kept.week}:send"
            if await asyncio.to_thread(claimed, self.archive.records, name, self._holder, now_s):
                try:
                    with _waiting(kept.week):  # a file that is gone keeps no other report from being sent
                        await self._tell(kept.week, waiting)
                finally:
                    await asyncio.to_thread(released, self.archive.records, name, self._holder, self._clock.now_s())

    async def _tell(self, week: str, waiting: Sequence[str]) -> None:
        for name in waiting:
            kept = await asyncio.to_thread(self.archive.one, week)
            if kept is None or name in kept.sent:  # another process has told it meanwhile
                continue
            try:
                async with asyncio.timeout(_SINK_S):
                    await self._sinks[name].deliver(await asyncio.to_thread(self._message, kept, name))
            except (TransientError, ConfigError, TimeoutError) as error:
                log.warning("a sink did not take the report", extra={"sink": name, "problem": str(error) or "too slow"})
                continue
            now_s = self._clock.now_s()
            told = Kept(kept.week, kept.language, kept.zone, kept.made_s, kept.files, {**kept.sent, name: now_s})
            await asyncio.to_thread(self.archive.records.put, KIND, week, now_s, told.body())

    def _message(self, kept: Kept, sink: str) -> Message:
        """What a sink is told: the summary of the report and where it is. Blocking."""
        text = self.archive.text(kept.week, "md")
        parts = text.split("\n## ")
        summary = parts[1].partition("\n")[2].strip() if len(parts) > 1 else ""
        link = f"{self._url.rstrip('/')}/reports/{kept.week}" if self._url else ""
        heading = text.partition("\n")[0].removeprefix("# ")
        labels = {"report": "weekly", "week": kept.week, "severity": "none"}
        told = summary.replace("\\", "").replace("**", "")
        annotations = {"summary": f"{heading}\n{told}"}
        alert = FiringAlert(
            "GoodwatchWeeklyReport", labels, annotations | ({"dashboard_url": link} if link else {}), kept.made_s, None,
            fingerprint("GoodwatchWeeklyReport", labels), "none", link,
        )  # fmt: skip
        return Message(sink, f"report/{kept.week}", labels, (alert,), (), kept.made_s, "new", self._url)


def summary_of(facts: WeekFacts, language: Language) -> tuple[str, ...]:
    """The sentences of the first part, for a line on a page or in a terminal."""
    first = composed(facts, Words(language, facts.week.zone)).sections[0]
    return tuple(block.text for block in first.blocks if isinstance(block, Sentence))
