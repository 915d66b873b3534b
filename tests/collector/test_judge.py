"""The judge's client against real servers on loopback."""

import pytest

from collector.judge import JudgeEndpoint, OpenAiJudge
from goodwatch.core.quality import JudgeBusyError, JudgeRefusedError, JudgeReply
from tests.support.judge_server import Answer, fails, hangs, judge_server, says, sends

pytestmark = pytest.mark.integration

ASKED = [("system", "grade"), ("user", "what do you say?")]


async def reply(answer: Answer, **more: object) -> JudgeReply:
    async with judge_server(answer) as server:
        endpoint = JudgeEndpoint(server.url, "judge-1", **more)  # type: ignore[arg-type]
        async with OpenAiJudge(endpoint) as judge:
            return await judge.ask(ASKED)


async def test_the_answer_comes_with_its_model_and_its_usage() -> None:
    assert await reply(says("{}")) == JudgeReply("{}", "judge-1-2026", 400, 40)


async def test_usage_that_is_not_told_is_not_zero() -> None:
    assert await reply(says("{}", usage={})) == JudgeReply("{}", "judge-1-2026")
    assert (await reply(says("{}", usage={"prompt_tokens": "5", "completion_tokens": -1}))).input_tokens is None


async def test_the_request_is_one_that_endpoints_know() -> None:
    async with judge_server(says("{}")) as server:
        for endpoint in (
            JudgeEndpoint(server.url + "/", "judge-1", "the-key", max_output_tokens=7),
            JudgeEndpoint(server.url + "/chat/completions", "judge-1", json_mode=False),
        ):
            async with OpenAiJudge(endpoint) as judge:
                await judge.ask(ASKED)
    first, second = server.asked
    assert first == {
        "model": "judge-1", "temperature": 0, "max_tokens": 7, "response_format": {"type": "json_object"},
        "messages": [{"role": "system", "content": "grade"}, {"role": "user", "content": "what do you say?"}],
    }  # fmt: skip
    assert "response_format" not in second
    assert server.headers[0]["Authorization"] == "Bearer the-key"
    assert "Authorization" not in server.headers[1]
    assert "the-key" not in repr(endpoint)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
async def test_what_time_may_mend_is_busy(status: int) -> None:
    with pytest.raises(JudgeBusyError, match=str(status)) as caught:
        await reply(fails(status))
    assert caught.value.retry_after_s is None
    assert not caught.value.begun


@pytest.mark.parametrize(("told", "wait_s"), [("7", 7.0), ("0.5", 0.5), ("soon", None), ("-3", 0.0), ("inf", None)])
async def test_a_wait_that_is_asked_for_is_told(told: str, wait_s: float | None) -> None:
    with pytest.raises(JudgeBusyError) as caught:
        await reply(fails(429, Retry_After=told))
    assert caught.value.retry_after_s == wait_s


async def test_a_wait_until_an_instant_is_told_in_seconds() -> None:
    with pytest.raises(JudgeBusyError) as caught:
        await reply(fails(503, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"))
    assert caught.value.retry_after_s == 0


@pytest.mark.parametrize(
    ("status", "says_", "of_text"),
    [
        (400, "json_mode: false", True),
        (401, "judge.key", False),
        (403, "may not use", False),
        (404, "model", False),
        (302, "log", False),
    ],
)
async def test_what_will_not_be_answered_is_refused_with_what_mends_it(status: int, says_: str, of_text: bool) -> None:
    with pytest.raises(JudgeRefusedError, match=says_) as caught:
        await reply(fails(status))
    assert caught.value.of_text is of_text


async def test_a_slow_answer_ends_at_its_time_and_may_be_charged() -> None:
    with pytest.raises(JudgeBusyError, match=r"no answer within 0\.2 s") as caught:
        await reply(hangs, timeout_s=0.2)
    assert caught.value.begun


async def test_nobody_there_is_busy_and_charges_nothing(free_port: int) -> None:
    async with OpenAiJudge(JudgeEndpoint(f"http://127.0.0.1:{free_port}/v1", "judge-1")) as judge:
        with pytest.raises(JudgeBusyError, match="cannot be reached") as caught:
            await judge.ask(ASKED)
    assert not caught.value.begun


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{"message": "x"}]}', b"[" * 100_000]
)
async def test_what_is_no_completion_is_refused(body: bytes) -> None:
    with pytest.raises(JudgeRefusedError, match="OpenAI-compatible"):
        await reply(sends(body))


async def test_an_endless_answer_is_cut_off() -> None:
    with pytest.raises(JudgeRefusedError, match="over 1 MiB"):
        await reply(says("x" * 1_100_000))


async def test_an_answer_of_nothing_is_a_text_of_nothing() -> None:
    found = await reply(sends(b'{"choices": [{"message": {"content": null, "refusal": "I will not."}}]}'))
    assert found == JudgeReply("I will not.")
