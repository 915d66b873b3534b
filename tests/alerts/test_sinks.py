"""One contract for all sinks, against real servers on loopback; and the words of a message."""

import asyncio
import hashlib
import hmac
import io
import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import requests

from alerts.grouping import Message
from alerts.sinks._port import BusyError, Sink, SinkKind, SinkOptions
from alerts.sinks._text import MOST_BYTES, lasted, text, title
from alerts.sinks.apprise import _keyed
from alerts.sinks.webhook import MOST_ALERTS, payload
from alerts.values import FiringAlert
from goodwatch.app._alert_sections import sink_kinds
from goodwatch.core.errors import ConfigError, GoodwatchError, TransientError
from tests.alerts.dispatching import PAGE, START_S, TICKET, alert
from tests.support.alert_receivers import Receiver, mail_server, receiver

TOKEN = "s3cr3t-t0ken"


def message(
    *firing: FiringAlert, ended: tuple[FiringAlert, ...] = (), cause: Any = "new", at_s: float = START_S + 240
) -> Message:
    return Message("oncall", '{service="chat"}', {"service": "chat"}, firing, ended, at_s, cause, "http://gw")


def over(name: str = PAGE, at_s: float = START_S + 600) -> FiringAlert:
    return replace(alert(name), ends_at_s=at_s)


#: how a kind is pointed at a receiver on loopback; a new kind of sink adds a line and gets every test below
URLS: dict[str, Callable[[Receiver], str]] = {
    "webhook": lambda to: f"{to.url}/hook/{TOKEN}",
    "alertmanager": lambda to: f"{to.url}/{TOKEN}",
    "apprise": lambda to: f"json://127.0.0.1:{to.port}/hook/{TOKEN}",
    "log": lambda to: "",
}
REMOTE = [name for name in sorted(sink_kinds()) if sink_kinds()[name].needs_url]


def sink_of(name: str, to: Receiver, **more: Any) -> Sink:
    return sink_kinds()[name].make(SinkOptions("oncall", URLS[name](to), **more))


async def failure(sink: Sink) -> GoodwatchError:
    with pytest.raises(GoodwatchError) as caught:
        await sink.deliver(message(alert()))
    await sink.close()
    return caught.value


@pytest.mark.parametrize("name", sorted(sink_kinds()))
def test_a_sink_is_a_module_of_its_own_name(name: str) -> None:
    kind = sink_kinds()[name]
    assert isinstance(kind, SinkKind)
    assert kind.name == name
    assert name in URLS, "a new kind says how a test reaches it"


@pytest.mark.integration
class TestEverySink:
    """What dispatch relies on."""

    @pytest.mark.parametrize("name", sorted(sink_kinds()))
    async def test_it_delivers_what_fires_and_what_ended(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        async with receiver() as to:
            sink = sink_of(name, to)
            with caplog.at_level(logging.WARNING):
                await sink.deliver(message(alert(), alert(TICKET)))
                await sink.deliver(message(ended=(over(),), cause="ended"))
                await sink.deliver(message(alert(), ended=(over(TICKET),), cause="changed"))
            await sink.close()
            await sink.close()  # safe to call twice
        if sink_kinds()[name].needs_url:
            assert len(to.got) == 3
            assert all(PAGE.encode() in one.body for one in to.got)
        else:
            assert PAGE in str([one.__dict__ for one in caplog.records])

    @pytest.mark.parametrize("name", REMOTE)
    @pytest.mark.parametrize("status", [500, 502, 503, 429])
    async def test_what_may_pass_is_worth_another_try(self, name: str, status: int) -> None:
        async with receiver() as to:
            to.status = status
            error = await failure(sink_of(name, to))
        assert isinstance(error, TransientError)
        assert str(status) in str(error)

    @pytest.mark.parametrize("name", REMOTE)
    @pytest.mark.parametrize("status", [400, 401, 403, 404])
    async def test_a_no_says_what_to_check(self, name: str, status: int) -> None:
        async with receiver() as to:
            to.status = status
            error = await failure(sink_of(name, to))
        assert isinstance(error, ConfigError)
        assert f"answered {status}" in str(error)
        assert "check" in str(error)

    @pytest.mark.parametrize("name", REMOTE)
    async def test_nobody_there_is_worth_another_try(self, name: str) -> None:
        async with receiver() as to:
            sink = sink_of(name, to)
        assert isinstance(await failure(sink), TransientError)

    @pytest.mark.parametrize("name", REMOTE)
    async def test_one_that_hangs_is_left_after_the_time_out_and_blocks_no_loop(self, name: str) -> None:
        async with receiver() as to:
            to.hangs = True
            sink = sink_of(name, to, timeout_s=0.3)
            turns, waiting = 0, asyncio.create_task(failure(sink))
            while not waiting.done():
                await asyncio.sleep(0.01)
                turns += 1
            assert "within 0.3 s" in str(waiting.result())
        assert turns > 10

    @pytest.mark.parametrize("name", REMOTE)
    @pytest.mark.parametrize("status", [200, 401, 503])
    async def test_no_secret_is_in_a_log_or_an_error(
        self, name: str, status: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        error: object = ""
        async with receiver() as to:
            to.status = status
            sink = sink_of(name, to, headers={"Authorization": f"Bearer {TOKEN}"}, secret=TOKEN)
            with caplog.at_level(logging.DEBUG):
                try:
                    await sink.deliver(message(alert()))
                except GoodwatchError as raised:
                    error = raised
                await sink.close()
        assert any(TOKEN in one.path for one in to.got)  # it was sent
        assert TOKEN not in caplog.text
        assert TOKEN not in f"{error} {error!r} {sink!r}"

    @pytest.mark.parametrize("name", REMOTE)
    def test_a_url_that_is_none_is_refused_by_name_and_without_being_shown(
        self, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        for url in (f"{TOKEN}", f"nothing://{TOKEN}", f"http://:{TOKEN}/", ""):
            with pytest.raises(ConfigError, match="sink oncall") as caught:
                sink_kinds()[name].make(SinkOptions("oncall", url))
            assert TOKEN not in f"{caught.value}{caplog.text}"


@pytest.mark.integration
class TestWebhook:
    """Bodies that receivers of Alertmanager know."""

    async def test_the_body_is_alertmanagers_version_4(self) -> None:
        async with receiver() as to:
            sink = sink_of("webhook", to, headers={"X-Team": "ml"})
            await sink.deliver(message(alert(), ended=(over(TICKET),), cause="changed"))
            await sink.close()
        (one,) = to.got
        assert (one.headers["Content-Type"], one.headers["X-Team"]) == ("application/json", "ml")
        body = json.loads(one.body)
        # the keys of Alertmanager's template.Data and webhook.Message, 0.25
        assert set(body) == {
            "version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels",
            "commonAnnotations", "externalURL", "alerts",
        }  # fmt: skip
        assert (body["version"], body["status"], body["receiver"]) == ("4", "firing", "oncall")
        assert body["commonLabels"] == {"service": "chat"}
        first, second = body["alerts"]
        assert first == {
            "status": "firing", "labels": {"alertname": PAGE, "service": "chat", "severity": "critical"},
            "annotations": dict(alert().annotations), "startsAt": "2026-03-04T03:12:00.000Z",
            "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://gw/slos", "fingerprint": alert().fingerprint,
        }  # fmt: skip
        assert (second["status"], second["endsAt"]) == ("resolved", "2026-03-04T03:22:00.000Z")

    async def test_a_secret_signs_body_and_time(self) -> None:
        async with receiver() as to:
            sink = sink_of("webhook", to, secret="k")
            await sink.deliver(message(alert()))
            await sink.close()
        (one,) = to.got
        stamp = one.headers["X-Goodwatch-Timestamp"]
        assert stamp == str(int(START_S + 240))
        expected = hmac.new(b"k", stamp.encode() + b"." + one.body, hashlib.sha256).hexdigest()
        assert one.headers["X-Goodwatch-Signature"] == f"v1={expected}"

    async def test_a_receiver_that_asks_to_wait_is_heard(self) -> None:
        async with receiver() as to:
            to.status, to.headers = 429, {"Retry-After": "17"}
            error = await failure(sink_of("webhook", to))
        assert isinstance(error, BusyError)
        assert error.after_s == 17

    async def test_a_redirect_is_not_followed(self) -> None:
        async with receiver() as to:
            to.status, to.headers = 307, {"Location": f"{to.url}/elsewhere"}
            assert "answered 307" in str(await failure(sink_of("webhook", to)))
        assert len(to.got) == 1


def test_a_body_of_very_many_alerts_says_how_many_it_leaves_out() -> None:
    many = tuple(alert(TICKET, slo=str(number)) for number in range(MOST_ALERTS + 7))
    body = payload(message(*many), "oncall")
    assert (len(body["alerts"]), body["truncatedAlerts"]) == (MOST_ALERTS, 7)  # type: ignore[arg-type]


@pytest.mark.integration
class TestApprise:
    """Through apprise: JSON over HTTP, and mail."""

    @pytest.mark.parametrize(
        ("one", "kind"),
        [
            (message(alert()), "failure"),
            (message(alert(TICKET)), "warning"),
            (message(ended=(over(),), cause="ended"), "success"),
        ],
    )
    async def test_title_text_and_urgency_arrive(self, one: Message, kind: str) -> None:
        async with receiver() as to:
            sink = sink_of("apprise", to)
            await sink.deliver(one)
            await sink.close()
        body = json.loads(to.got[0].body)
        assert (body["title"], body["type"]) == (title(one), kind)
        assert body["message"] == text(one)
        assert to.got[0].headers["User-Agent"] == "goodwatch"

    async def test_a_mail_arrives(self) -> None:
        mails: list[str] = []
        async with mail_server(mails) as port:
            url = f"mailto://127.0.0.1:{port}?mode=insecure&from=gw@example.org&to=oncall@example.org"
            sink = sink_kinds()["apprise"].make(SinkOptions("mail", url))
            await sink.deliver(message(alert()))
            await sink.close()
        assert f"[PAGE] chat: {PAGE}" in mails[0]
        assert "oncall@example.org" in mails[0]

    @pytest.mark.parametrize(
        ("url", "host"),
        [
            ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#oncall", "hooks.slack.com"),
            (f"pagerduty://{'a' * 20}@{'b' * 32}", "events.pagerduty.com"),
            ("feishu://abcd1234", "open.feishu.cn"),
            ("lark://abcd1234", "open.larksuite.com"),
            ("dingtalk://secret@token", "oapi.dingtalk.com"),
            ("wecombot://botkey-1234", "qyapi.weixin.qq.com"),
        ],
    )
    async def test_the_services_that_people_use_get_the_words(self, url: str, host: str, wire: list[Any]) -> None:
        sink = sink_kinds()["apprise"].make(SinkOptions("x", url))
        await sink.deliver(message(alert()))
        await sink.close()
        (sent,) = wire
        assert sent.url.startswith(f"https://{host}/")
        body = sent.body if isinstance(sent.body, str) else sent.body.decode()
        assert "16x too fast: 23.4% left" in body

    async def test_pagerduty_is_told_the_end_of_what_it_was_told(self, wire: list[Any]) -> None:
        sink = sink_kinds()["apprise"].make(SinkOptions("x", f"pagerduty://{'a' * 20}@{'b' * 32}"))
        await sink.deliver(message(alert()))
        await sink.deliver(message(ended=(over(),), cause="ended"))
        await sink.close()
        first, last = (json.loads(one.body) for one in wire)
        # PagerDuty's Events API v2: trigger and resolve with the same dedup_key are one incident.
        assert (first["event_action"], first["payload"]["severity"]) == ("trigger", "critical")
        assert (last["event_action"], last["dedup_key"]) == ("resolve", first["dedup_key"])


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Requests that the HTTP library under apprise would send to hosts outside; each is answered 200."""
    sent: list[Any] = []

    def send(_: object, request: requests.PreparedRequest, **__: object) -> requests.Response:
        sent.append(request)
        answer = requests.Response()
        said = b"ok" if "slack" in str(request.url) else b'{"errcode": 0, "code": 0}'
        answer.status_code, answer.raw, answer._content = 200, io.BytesIO(), said
        return answer

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    return sent


def test_pagerduty_closes_what_it_opened_by_the_group() -> None:
    url = _keyed("pagerduty://a@b", '{service="chat"}')
    assert url.startswith("pagerduty://a@b?action=map&dedup=")
    assert url == _keyed("pagerduty://a@b", '{service="chat"}') != _keyed("pagerduty://a@b", '{service="x"}')
    assert _keyed("pagerduty://a@b?dedup=mine", "{}") == "pagerduty://a@b?dedup=mine"
    assert _keyed("slack://x", "{}") == "slack://x"


# --- words ------------------------------------------------------------------------------------------------------------


def test_a_page_says_what_how_bad_since_when_and_where_to_look() -> None:
    one = message(alert())
    assert title(one) == f"[PAGE] chat: {PAGE}"
    assert text(one) == (
        f"{PAGE} (page)\n"
        "chat burns its error budget 16x too fast: 23.4% left.\n"
        "Since 03:12 UTC on 4 March (4 min).\n"
        "Triage: http://gw/triage?service=chat\n"
        f"Runbook: http://gw/docs/runbooks/{PAGE}\n"
        "Dashboard: http://gw/services/chat"
    )


def test_an_end_says_how_long_it_was() -> None:
    one = message(ended=(over(),), cause="ended", at_s=START_S + 605)
    assert title(one) == f"[RESOLVED] chat: {PAGE}"
    assert text(one).splitlines()[0] == f"{PAGE}: over since 03:22 UTC on 4 March, lasted 10 min."


def test_a_message_of_both_keeps_them_apart_and_a_repeat_says_still() -> None:
    both = message(alert(), ended=(over(TICKET),), cause="changed")
    assert title(both) == f"[PAGE] chat: {PAGE}"
    assert f"\n\nOver:\n{TICKET}: over since" in text(both)
    assert title(message(alert(), cause="repeat")) == f"[PAGE] chat: still {PAGE}"


def test_very_many_alerts_fit_and_are_counted() -> None:
    many = tuple(alert(TICKET, slo=str(number)) for number in range(500))
    found = text(message(*many))
    assert len(found.encode()) <= MOST_BYTES
    assert found.endswith("more alerts: http://gw")
    huge = replace(alert(), annotations={"summary": "ü" * 9000})
    assert len(text(message(huge, alert(TICKET))).encode()) <= MOST_BYTES


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (3600, "1 h"), (3900, "1 h 5 min"), (90_000, "1 d 1 h")],
)
def test_lengths_of_time_in_two_units(seconds: float, words: str) -> None:
    assert lasted(seconds) == words


def test_making_a_message_costs_little() -> None:
    many = message(*(alert(TICKET, slo=str(number)) for number in range(1000)))
    began_s = time.process_time()
    text(many)
    title(many)
    assert time.process_time() - began_s < 0.5


async def test_a_receiver_that_repeats_the_token_it_refuses_does_not_bring_it_into_a_log() -> None:
    async with receiver() as to:
        to.status, to.text = 401, f"no such hook {TOKEN}, and Bearer another-long-one is not known either"
        headers = {"Authorization": "Bearer another-long-one"}
        error = await failure(sink_of("webhook", to, headers=headers))
    assert (
        str(error) == "answered 401: no such hook ***, and *** is not known either; check its url, headers and rights"
    )
