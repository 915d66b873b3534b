"""A ledger of experiments in a folder, and entries for it: LLM, image and video work, flags that are not in effect."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from collector.stores.sqlite_records import SqliteRecords
from goodwatch.app.experiment_ledger import ExperimentLedger
from planner.experiments.values import (
    Experiment,
    Factor,
    FixedInput,
    Hardware,
    Prediction,
    QualityConstraint,
    from_body,
    to_body,
)
from tests.alerts.dispatching import START_S, Clock
from tests.planner.experiments.sides import changed

WEEK_S: Final = 7 * 86_400.0


class Kept:
    """A ledger on a clock that stands."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.records = SqliteRecords(folder / "records.sqlite")
        self.ledger = ExperimentLedger(self.records, self.clock)

    async def keep(self, *experiments: Experiment, weeks: int = 0) -> None:
        """Keep them, so many weeks after the start."""
        self.clock.at_s = START_S + weeks * WEEK_S
        for one in experiments:
            await self.ledger.keep(one)


def entry(id: str = "seqs-1", factor: float = 0.8, low: float = 0.7, high: float = 0.9, **more: Any) -> Experiment:
    """Three quads ABBA of a change of max_num_seqs with prediction, flags, cost and a quality gate."""
    one = changed(factor)
    arms = [
        replace(
            arm, intended={"max_num_seqs": flag}, effective={"max_num_seqs": flag, "dtype": "bfloat16"},
            quality_passed=980.0, quality_judged=1000.0,
            runs=tuple(replace(run, duration_s=60.0, gpus=2.0, started_s=START_S + 60 * run.position) for run in arm.runs),
        )
        for arm, flag in ((one.baseline, "256"), (one.candidate, "64"))
    ]  # fmt: skip
    made = replace(
        one, id=id, question="Does a smaller batch answer sooner?", baseline=arms[0], candidate=arms[1], service="chat",
        factor=Factor("max_num_seqs", "256", "64"), state="done", model="llama-3.1-8b", engine="vllm",
        engine_version="0.10.2", hardware=Hardware("H100", 2.0, ("gpu-1",), 2.5), boundary="client: sent to last token",
        inputs=(FixedInput("prompts.jsonl", "ab" * 32),), quality=QualityConstraint("exact-match"),
        predictions=(Prediction("e2e_s", low, high, (low * high) ** 0.5, 0.8, "step model"),),
    )  # fmt: skip
    return replace(made, **more)


def not_in_effect(id: str = "idle-1") -> Experiment:
    """The engine reports the old value in the candidate as well."""
    one = entry(id)
    candidate = replace(one.candidate, effective={"max_num_seqs": "256", "dtype": "bfloat16"})
    return replace(one, candidate=candidate)


def foreign_files(images: Sequence[float], videos: Sequence[float], side: str) -> list[dict[str, str]]:
    """Result files of an image and video server, one a repeat, in the form that says what it measures."""
    made = []
    for place, (rate, seconds) in enumerate(zip(images, videos, strict=True)):
        metrics = {
            "images_per_s": {"unit": "images/s", "better": "higher", "value": rate},
            "seconds_per_video": {"unit": "s", "better": "lower", "values": [seconds, seconds * 1.01, seconds * 0.98]},
        }
        text = json.dumps({"workload": "sdxl", "duration_s": 60, "metrics": metrics})
        made.append({"name": f"{side}-{place}.json", "text": text})
    return made


def body_of(one: Experiment) -> dict[str, object]:
    """A body as a caller sends it; it can be read again."""
    body = to_body(one)
    assert from_body(body) == one
    return body
