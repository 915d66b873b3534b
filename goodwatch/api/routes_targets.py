"""Targets as they are now, and what each can tell."""

import math

from fastapi import APIRouter
from pydantic import BaseModel, Field

from collector.capability import Capability, SignalReport
from goodwatch.api.problem import ProblemError, documented
from goodwatch.api.routes_query import unknown_name
from goodwatch.api.shapes import TargetDetail, TargetsShape, finite, target_detail, targets_shape
from goodwatch.app.view import TargetView, Views


class SignalShape(BaseModel):
    """One canonical signal on a target's page."""

    name: str
    unit: str
    status: str = Field(description="measured, derived, absent.")
    source: str
    text: str = Field(description="What the page says now, as text.")
    number: float | None
    bounds: list[float]
    parts: list[str]
    ranks: list[str]
    why: str
    definition: str
    kernel: bool


class RemarkShape(BaseModel):
    """Something on the page that is worth knowing; level is note or warning."""

    code: str
    level: str
    text: str


class CapabilityShape(BaseModel):
    """What a target can tell."""

    engine: str = Field(description="Empty when no known engine wrote the page.")
    title: str
    version: str
    version_basis: str
    models: list[str]
    page_format: str
    page_samples: int
    unknown_families: int
    counts: dict[str, int]
    remarks: list[RemarkShape]
    signals: list[SignalShape]
    facts: dict[str, str]


def target_routes(views: Views) -> APIRouter:
    """Routes of targets."""
    router = APIRouter(prefix="/api/v1", tags=["targets"])

    def found(name: str) -> TargetView:
        view = views.target(name)
        if view is None:
            raise unknown_name("target", name, [t.name for t in views.targets()])
        return view

    @router.get("/targets", summary="All targets by name")
    async def targets() -> TargetsShape:
        """Whether each could be read, and what it is."""
        return targets_shape(views.targets(), views.now_s())

    @router.get("/targets/{name:path}/capability", summary="What a target can tell", responses=documented(404))
    async def capability(name: str) -> CapabilityShape:
        """Every canonical signal: measured, derived or absent, with source and reason; 404 until a page was read."""
        view = found(name)
        if view.capability is None:
            why = view.error or "its first scrape is not in yet"
            raise ProblemError(404, f"target {name!r}: no page of it was read so far: {why}")
        return capability_shape(view.capability)

    @router.get("/targets/{name:path}", summary="One target", responses=documented(404))
    async def target(name: str) -> TargetDetail:
        """Its numbers and what it runs."""
        return target_detail(found(name))

    return router


def capability_shape(report: Capability) -> CapabilityShape:
    """A capability report."""
    return CapabilityShape(
        engine=report.engine, title=report.title, version=report.version, version_basis=report.version_basis,
        models=list(report.models), page_format=report.page_format, page_samples=report.page_samples,
        unknown_families=report.unknown_families,
        counts={status.value: count for status, count in report.counts.items()},
        remarks=[RemarkShape(code=r.code, level=r.level, text=r.text) for r in report.remarks],
        signals=[_signal(signal) for signal in report.signals],
        facts=dict(report.facts),
    )  # fmt: skip


def _signal(signal: SignalReport) -> SignalShape:
    return SignalShape(
        name=signal.name, unit=signal.unit, status=signal.status.value, source=signal.source, text=signal.value,
        number=finite(signal.number), bounds=[b for b in signal.bounds if math.isfinite(b)],
        parts=list(signal.parts), ranks=list(signal.ranks), why=signal.why, definition=signal.definition,
        kernel=signal.kernel,
    )  # fmt: skip
