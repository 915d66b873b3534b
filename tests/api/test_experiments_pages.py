"""The pages of experiments as HTML: what they say, and that nothing from outside is taken for markup."""

import doctest
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from goodwatch.api.ui import experiment_tables
from goodwatch.api.ui.experiment_pages import experiment_pages
from goodwatch.api.ui.experiment_tables import change, flag_rows, metric_lines
from goodwatch.app.experiment_ledger import Files
from planner.experiments.values import Metric
from tests.api.experiments_kept import Kept, entry, foreign_files, not_in_effect
from tests.api.test_app import OPEN, app_of, client_of
from tests.api.test_pages import Reader
from tests.support.views import HOSTILE, PlainViews


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.records.close()


async def got(kept: Kept, path: str) -> httpx.Response:
    views = PlainViews()
    async with client_of(app_of(views, OPEN, experiment_pages(kept.ledger, views))) as client:
        return await client.get(path)


async def words(kept: Kept, path: str) -> str:
    response = await got(kept, path)
    assert response.status_code == 200, response.text
    return Reader(response.text).words


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(experiment_tables).failed == 0


async def test_an_empty_ledger_says_how_to_begin(kept: Kept) -> None:
    assert "No experiment yet." in await words(kept, "/experiments")
    assert "No prediction was checked yet." in await words(kept, "/experiments/calibration")
    assert "No experiment fits." in await words(kept, "/experiments?verdict=worse")


async def test_the_list_says_what_was_changed_what_it_did_and_whether_it_was_predicted(kept: Kept) -> None:
    await kept.keep(entry(), entry("seqs-2", 0.8, 0.4, 0.5))
    text = await words(kept, "/experiments")
    assert "max_num_seqs: 256 → 64" in text
    assert "−20.3 % −21.1 % to −19.5 %" in text  # made: a fifth less
    assert "inside −30 % to −10 %" in text
    assert "outside −60 % to −50 %" in text
    assert "better" in text


async def test_a_flag_that_is_not_in_effect_is_the_finding(kept: Kept) -> None:
    await kept.keep(not_in_effect())
    text = await words(kept, "/experiments/idle-1")
    assert "the change was not made" in text
    assert "max_num_seqs was set to 64, the engine reports 256: set but not in effect" in text
    assert "nothing can be concluded yet" in text
    assert flag_rows(not_in_effect())[0].cells == ("256", "256", "64", "256")


async def test_one_experiment_shows_arms_noise_cost_and_prediction(kept: Kept) -> None:
    await kept.keep(entry())
    text = await words(kept, "/experiments/seqs-1")
    assert "exact-match: 98.0% of 1000 passed" in text
    assert "6 min" in text  # six runs of a minute
    assert "0.2" in text  # two GPUs for six minutes are 0.2 GPU-hours
    assert "$0.500" in text or "$0.5" in text  # at 2.50 an hour
    assert "Noise floor" in text
    assert "should hold 80 of 100 times" in text
    assert "takes 1 times the GPU-hours" in text
    assert "ab" * 32 in text


async def test_a_foreign_metric_goes_from_files_to_the_page(kept: Kept) -> None:
    a = foreign_files([4.0, 4.02, 3.99, 4.01, 4.03, 4.0], [31.0, 31.2, 30.9, 31.1, 31.05, 31.3], "a")
    b = foreign_files([5.21, 5.2, 5.19, 5.22, 5.2, 5.23], [24.8, 24.9, 24.7, 25.0, 24.85, 24.75], "b")
    sides = [tuple((one["name"], one["text"]) for one in side) for side in (a, b)]
    made = await kept.ledger.keep_files(Files(sides[0], sides[1], "Does compiling pay?", "images_per_s", "studio"))
    text = await words(kept, f"/experiments/{made.id}")
    assert "images_per_s higher is better ✓ better" in text
    assert "seconds_per_video lower is better ✓ better" in text
    assert "4 images/s" in text
    assert "24.8 s" in text
    assert "image" in await words(kept, "/experiments")


async def test_text_from_outside_is_shown_as_text(kept: Kept) -> None:
    one = entry("hostile", question=HOSTILE, notes=(HOSTILE,), model=HOSTILE)
    await kept.keep(replace(one, baseline=replace(one.baseline, name=HOSTILE)))
    for path in ("/experiments", "/experiments/hostile"):
        response = await got(kept, path)
        assert "<script>alert" not in response.text
        assert HOSTILE in Reader(response.text).words
        assert not [name for name, _ in Reader(response.text).attributes if name.startswith("on") or name == "style"]


async def test_what_is_not_there_or_not_a_filter_is_a_page_that_says_so(kept: Kept) -> None:
    assert (await got(kept, "/experiments/none")).status_code == 404
    assert (await got(kept, "/experiments?verdict=odd")).status_code == 400
    kept.records.close()
    assert (await got(kept, "/experiments")).status_code == 200
    assert (await got(kept, "/experiments/x")).status_code == 503


async def test_calibration_is_a_page_with_its_interval(kept: Kept) -> None:
    for week, (low, high) in enumerate(((0.7, 0.9), (0.7, 0.9), (0.4, 0.5), (0.7, 0.9))):
        await kept.keep(entry(f"w{week}", 0.8, low, high), weeks=week)
    text = await words(kept, "/experiments/calibration")
    assert "3 of 4 inside their 80% intervals" in text
    assert "75 %" in text
    assert "30–95.5 %" in text  # Wilson: 0.3006 to 0.9544, rounded outwards
    assert "half widths out" in text


@pytest.mark.parametrize(
    ("metric", "value", "says"),
    [
        (Metric("m", "s", "lower"), 1.0, "0 %"),
        (Metric("m", "s", "lower"), 0.25, "× 0.25"),
        (Metric("m", "s", "lower"), 1e12, "× 1e+12"),
        (Metric("m", "ratio", "higher", scale="difference"), -0.04, "−4 points"),
        (Metric("m", "restarts", "lower", scale="difference"), 2.0, "+2 restarts"),
        (Metric("m", "s", "lower"), None, "–"),
    ],
)
def test_a_change_is_written_on_its_own_scale(metric: Metric, value: float | None, says: str) -> None:
    assert change(metric, value) == says


def test_runs_that_do_not_count_are_drawn_apart(kept: Kept) -> None:
    one = entry()
    cold = replace(one.baseline, runs=(replace(one.baseline.runs[0], warm=False), *one.baseline.runs[1:]))
    ((_, (line, _)),) = metric_lines(replace(one, baseline=cold))
    assert (line.runs, len(line.dots)) == (5, 6)
    assert not line.dots[0].counted
    assert "cold, not counted" in line.dots[0].title
