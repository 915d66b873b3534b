"""The pages of experiments: the list, one experiment, and whether the planner's predictions held."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, get_args

from fastapi import APIRouter, Request, Response

from goodwatch.api.ui.assets import Assets
from goodwatch.api.ui.calibration_tables import checked_rows, metric_rows, miss_text, steps_drawn
from goodwatch.api.ui.experiment_tables import (
    GATES,
    VERDICTS,
    change,
    cost_rows,
    effect_rows,
    fact_rows,
    flag_rows,
    list_rows,
    mark_of,
    metric_lines,
    run_rows,
)
from goodwatch.api.ui.render import Renderer
from goodwatch.app.experiment_ledger import Calibrated, ExperimentLedger, Wanted
from goodwatch.app.view import Views
from goodwatch.core.errors import ConfigError, StoreError
from planner.experiments.calibration import checked
from planner.experiments.values import Experiment, State

PAGE_ROWS: Final = 200


def experiment_pages(ledger: ExperimentLedger, views: Views, *, requests: bool = False) -> APIRouter:
    """Routes of the pages of experiments; include it beside ``pages``. ``requests``: pages of requests are there too."""
    site = _Site(ledger, Renderer(views, Assets(), requests=requests))
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/experiments", site.listed, methods=["GET"], include_in_schema=False)
    router.add_api_route("/experiments/calibration", site.calibration, methods=["GET"], include_in_schema=False)
    router.add_api_route("/experiments/{id}", site.one, methods=["GET"], include_in_schema=False)
    return router


class _Site:
    def __init__(self, ledger: ExperimentLedger, renderer: Renderer) -> None:
        self._ledger, self._renderer = ledger, renderer

    async def listed(self, request: Request) -> Response:
        asked = {name: request.query_params.get(name, "") for name in ("service", "state", "verdict")}
        known = {"state": get_args(State), "verdict": tuple(VERDICTS)}
        for name, names in known.items():
            if asked[name] and asked[name] not in names:
                return self._refused(request, 400, f"{name}: {asked[name][:40]!r} is not one of {', '.join(names)}")
        wanted = Wanted(asked["service"] or None, asked["state"] or None, asked["verdict"] or None, limit=PAGE_ROWS)
        values: dict[str, Any] = {
            "asked": asked, "states": known["state"], "verdicts": [(key, word) for key, (word, _, _) in VERDICTS.items()],
            "rows": (), "fitting": 0, "services": (), "unreadable": (), "problem": "", "planner": None,
        }  # fmt: skip
        try:
            found = await self._ledger.listed(wanted)
            planner = await self._ledger.calibrated()
        except StoreError as error:
            return self._renderer.page(request, "experiments", values | {"problem": str(error)}, live=False)
        values |= {
            "rows": await asyncio.to_thread(list_rows, found.experiments), "fitting": found.fitting,
            "services": found.services, "unreadable": found.unreadable, "planner": planner.whole,
        }  # fmt: skip
        return self._renderer.page(request, "experiments", values)

    async def one(self, request: Request, id: str) -> Response:
        try:
            found = await self._ledger.one(id)
        except StoreError as error:
            return self._refused(request, 503, str(error))
        except ConfigError as error:
            return self._refused(request, 409, str(error))
        if found is None:
            return self._refused(request, 404, f"There is no experiment {id[:100]!r}; see the list of experiments.")
        values = await asyncio.to_thread(experiment_values, found)
        return self._renderer.page(request, "experiment", values, live=found.state == "running")

    async def calibration(self, request: Request) -> Response:
        try:
            found = await self._ledger.calibrated(request.query_params.get("service") or None)
        except StoreError as error:
            return self._refused(request, 503, str(error))
        return self._renderer.page(request, "calibration", calibration_values(found))

    def _refused(self, request: Request, status: int, text: str) -> Response:
        values = {"title": "This cannot be shown", "text": text}
        return self._renderer.page(request, "problem", values, status=status, live=False)


def experiment_values(one: Experiment) -> dict[str, Any]:
    """Values of the page of one experiment."""
    verdict = one.verdict
    metrics = {metric.name: metric for metric in one.metrics}
    held = {found.metric: found for found in checked(one)}
    return {
        "one": one, "mark": mark_of(verdict.outcome if verdict else None), "verdict": verdict,
        "gate": GATES[verdict.gate] if verdict else "", "effects": effect_rows(one), "lines": metric_lines(one),
        "runs": run_rows(one), "run_count": len(one.baseline.runs) + len(one.candidate.runs), "flags": flag_rows(one),
        "told": one.baseline.effective is not None and one.candidate.effective is not None, "costs": cost_rows(one),
        "facts": fact_rows(one),
        "predictions": [
            (told, f"{change(metrics[told.metric], told.low)} to {change(metrics[told.metric], told.high)}",
             held.get(told.metric), miss_text(held.get(told.metric)),
             change(metrics[told.metric], held[told.metric].measured) if told.metric in held else "–")
            for told in one.predictions if told.metric in metrics
        ],
    }  # fmt: skip


def calibration_values(found: Calibrated) -> dict[str, Any]:
    """Values of the page of the planner's calibration."""
    days: Sequence[str] = ("week", "month of 30 days")
    return {
        "found": found, "whole": found.whole, "metrics": metric_rows(found), "drawn": steps_drawn(found),
        "step": days[found.step_s > 7 * 86_400], "rows": checked_rows(found),
    }  # fmt: skip
