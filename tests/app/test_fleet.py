"""One target's pages: what the event loop may read itself, and that it is what a thread would read."""

import pytest

from collector.scrape import Fetched
from collector.targets import ScrapeOptions, TargetSpec
from goodwatch.app.engines import known_engines
from goodwatch.app.fleet import DESTRUCTIVE, TargetState
from goodwatch.core.model import Target
from tests.app.test_watch import fetched, pages

ENGINES = known_engines()


def state_of(options: ScrapeOptions | None = None) -> TargetState:
    target = Target("t", "http://t/metrics", "chat")
    return TargetState.of(TargetSpec(target, options or ScrapeOptions()), ENGINES)


@pytest.mark.parametrize("name", ["vllm-0.32.0", "sglang-0.5.23"])
def test_a_page_read_on_the_loop_is_what_a_thread_reads(name: str) -> None:
    loop, thread, quick = state_of(), state_of(), 0
    for one in pages(name)[-60:]:
        answer = fetched(one, one.done_s)
        again = loop.read_again(answer)
        quick += again is not None
        read, other = again or loop.read(answer), thread.read(answer)
        loop.accept(read)
        thread.accept(other)
        assert repr(read.scrape) == repr(other.scrape)
        assert read.deployment == other.deployment
        assert repr(loop.steps[-1]) == repr(thread.steps[-1])
    assert quick > 30


def test_what_takes_long_is_left_to_a_thread() -> None:
    """The first page, one with another series, and a big one, however little of it changed."""
    state, text = state_of(), 'vllm:num_requests_running{model_name="m"} %d\n'
    for body, on_loop in (
        (text % 1, False),
        (text % 2, True),
        (text % 2 + text.replace("running", "waiting") % 1, False),
        (text % 3 + text.replace("running", "waiting") % 1, True),
        (text % 1 + "# long\n" * 50_000, False),
        (text % 2 + "# long\n" * 50_000, False),
    ):
        answer = Fetched(1.0, True, 0.1, body.encode(), "text/plain", 200)
        assert (state.read_again(answer) is not None) == on_loop
        state.read(answer)


def test_a_page_beyond_its_limits_fails_the_same_way_on_both_paths() -> None:
    page = b'vllm:num_requests_running{model_name="m"} 1\n'
    state = state_of(ScrapeOptions(body_limit_bytes=len(page)))
    state.read(Fetched(1.0, True, 0.1, page, "text/plain", 200))
    longer = Fetched(2.0, True, 0.1, page.replace(b" 1", b" 10"), "text/plain", 200)
    assert state.read_again(longer) is None
    assert state.read(longer).scrape.reason == "sample_limit"


def test_statistics_that_reading_empties_are_refused_each_time() -> None:
    state = state_of()
    for _ in range(2):
        answer = Fetched(1.0, True, 0.1, b'[{"numActiveRequests": 1}]', "application/json", 200)
        read = state.read_again(answer) or state.read(answer)
        assert read.scrape.reason == DESTRUCTIVE
