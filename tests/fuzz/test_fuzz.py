"""A few seconds of fuzzing with fixed seeds; ``python -m tests.fuzz`` goes on for as long as one likes."""

import random
from pathlib import Path

import pytest

from tests.fuzz.config import ConfigFuzz
from tests.fuzz.driver import Hangs, Report, Wrong, cut, mutated, run, watched
from tests.fuzz.parser import ParserFuzz


def failures(report: Report) -> list[str]:
    return [f"{kind}: {failure.error}: {failure.body!r}" for kind, failure in report.failures.items()]


@pytest.mark.parametrize("seed", [1, 2])
def test_no_page_makes_the_parser_fail_hang_or_read_otherwise_than_the_reference(seed: int) -> None:
    fuzzed = ParserFuzz()
    report = run(fuzzed, seed=seed, inputs=2_000)
    assert failures(report) == []
    assert fuzzed.compared > 300


def test_any_configuration_file_loads_or_every_problem_has_its_place(tmp_path: Path) -> None:
    report = run(ConfigFuzz(tmp_path), seed=1, inputs=200)
    assert failures(report) == []
    assert len(report.outcomes) > 40
    assert any(one.startswith("loads") for one in report.outcomes)


class Fragile:
    """Fails for what holds "<script" and for what is never over."""

    seeds = (b"a page with <script in it, and more behind", b"fine")
    tokens = (b"x",)

    def outcome(self, body: bytes, _: random.Random) -> str:
        if b"<script" in body:
            raise Wrong("a script")
        return str(len(body))


def test_a_failing_input_is_cut_to_what_makes_it_fail() -> None:
    report = run(Fragile(), seed=1, inputs=50)
    assert {kind: f.body for kind, f in report.failures.items()} == {"Wrong: a script": b"<script"}
    assert cut(b"aaaxbbb", lambda body: b"x" in body) == b"x"


def test_the_same_seed_makes_the_same_inputs() -> None:
    corpus = [b"a 1\nb 2\n", b"c 3"]

    def some(seed: int) -> list[bytes]:
        rng = random.Random(seed)
        return [mutated(corpus[0], corpus, (b"{",), rng) for _ in range(50)]

    assert some(1) == some(1) != some(2)


def test_what_never_ends_is_ended() -> None:
    def spin() -> None:
        while True:
            pass

    with watched(0.1), pytest.raises(Hangs):
        spin()
