"""Webhooks of Alertmanager and Grafana, whole, with keys missing, and broken."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.incoming import MOST_ALERTS, read_webhook, service_of
from alerts.values import fingerprint
from tests.alerts.dispatching import START_S

#: as Alertmanager 0.25 posts it
WHOLE: dict[str, Any] = {
    "receiver": "pages", "status": "firing", "version": "4", "groupKey": '{}:{service="chat"}', "truncatedAlerts": 2,
    "groupLabels": {"service": "chat"}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://am:9093",
    "alerts": [{
        "status": "firing", "labels": {"alertname": "LlmServiceDown", "service": "chat", "severity": "critical"},
        "annotations": {"summary": "down"}, "startsAt": "2026-03-04T03:12:00.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://prom/graph", "fingerprint": "c6eadffa33fcdf37",
    }],
}  # fmt: skip


def body(**more: Any) -> dict[str, Any]:
    return {**WHOLE, "alerts": [{**WHOLE["alerts"][0], **more}]}


def test_a_whole_webhook_is_read_whole() -> None:
    found = read_webhook(WHOLE, START_S + 5)
    assert (found.source, found.truncated, found.refused) == ("prometheus", 2, ())
    (one,) = found.seen
    assert (one.alert.name, one.alert.severity, one.alert.fingerprint) == (
        "LlmServiceDown",
        "critical",
        "c6eadffa33fcdf37",
    )
    assert one.alert.labels == {"service": "chat", "severity": "critical"}
    assert one.alert.starts_at_s == pytest.approx(START_S + 0.123456789, abs=1e-6)
    assert (one.alert.ends_at_s, one.start_told, one.end_told, one.receiver) == (None, True, False, "pages")


@pytest.mark.parametrize(
    ("more", "ends", "told"),
    [
        ({"status": "resolved", "endsAt": "2026-03-04T03:20:00Z"}, START_S + 480, True),
        ({"status": "resolved", "endsAt": "0001-01-01T00:00:00Z"}, START_S + 900, False),
        ({"status": "resolved", "endsAt": "2026-03-04T03:00:00Z"}, START_S + 900, False),  # before its start
        ({"status": "resolved", "endsAt": None}, START_S + 900, False),
        ({"status": "firing", "endsAt": "2026-03-04T03:20:00Z"}, None, False),  # when it would end by itself
    ],
)
def test_an_end_counts_where_it_is_one(more: dict[str, Any], ends: float | None, told: bool) -> None:
    (one,) = read_webhook(body(**more), START_S + 900).seen
    assert (one.alert.ends_at_s, one.end_told) == (ends, told)


@pytest.mark.parametrize(
    "stamp",
    ["2026-03-04T03:12:00Z", "2026-03-04T05:12:00+02:00", "2026-03-03T21:42:00.000-05:30", "2026-03-04 03:12:00z"],
)
def test_times_of_any_zone_are_one_instant(stamp: str) -> None:
    (one,) = read_webhook(body(startsAt=stamp), START_S + 5).seen
    assert one.alert.starts_at_s == START_S


@pytest.mark.parametrize("stamp", ["yesterday", 1772593920, "2026-02-30T00:00:00Z", "2026-03-04T03:12:00", "9" * 5000])
def test_a_time_that_is_none_refuses_the_alert_and_says_so(stamp: object) -> None:
    found = read_webhook(body(startsAt=stamp), START_S)
    assert found.seen == ()
    assert found.refused[0][1].startswith("startsAt: is no")


def test_one_bad_alert_does_not_take_the_others_with_it() -> None:
    found = read_webhook({"alerts": [WHOLE["alerts"][0], 7, {"labels": []}, {"status": "odd"}]}, START_S)
    assert [place for place, _ in found.refused] == [1, 2, 3]
    assert len(found.seen) == 1


def test_a_fingerprint_that_is_missing_or_odd_is_made_of_the_labels() -> None:
    for odd in (None, "", 7, "../x", "f" * 65):
        (one,) = read_webhook(body(fingerprint=odd), START_S).seen
        assert one.alert.fingerprint == fingerprint("LlmServiceDown", {"service": "chat", "severity": "critical"})


def test_grafanas_own_keys_become_annotations() -> None:
    alert = {
        "labels": {"alertname": "x"},
        "dashboardURL": "http://g/d/1",
        "valueString": "[ var='A' ]",
        "values": {"A": 1},
    }
    (one,) = read_webhook({"orgId": 1, "alerts": [alert]}, START_S).seen
    assert one.source == "grafana"
    assert one.alert.annotations == {"dashboard_url": "http://g/d/1", "value": "[ var='A' ]"}


@pytest.mark.parametrize(
    "odd", [None, 7, "x", [], {}, {"alerts": None}, {"alerts": {}}, {"alerts": [{}] * (MOST_ALERTS + 1)}]
)
def test_what_is_no_webhook_is_refused_with_a_sentence(odd: object) -> None:
    with pytest.raises(ValueError, match=r"(send|set)"):
        read_webhook(odd, START_S)


def test_long_texts_are_cut_and_too_many_labels_refused() -> None:
    (one,) = read_webhook(body(annotations={"summary": "x" * 10_000}), START_S).seen
    assert len(one.alert.annotations["summary"]) == 4096
    found = read_webhook(body(labels={f"l{n}": "x" for n in range(101)}), START_S)
    assert "at most 100" in found.refused[0][1]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=8,
)  # fmt: skip
keys = st.sampled_from(sorted({*WHOLE["alerts"][0], "dashboardURL", "valueString"}))


@given(
    st.lists(st.dictionaries(keys, anything, max_size=6) | anything, max_size=3),
    st.dictionaries(st.sampled_from(sorted(WHOLE)), anything),
)
def test_nothing_that_json_can_hold_breaks_it_and_what_is_read_can_be_kept(
    alerts: list[Any], more: dict[str, Any]
) -> None:
    found = read_webhook({**more, "alerts": alerts}, START_S)
    assert len(found.seen) + len(found.refused) == len(alerts)
    for one in found.seen:
        text = json.dumps([one.alert.name, dict(one.alert.labels), dict(one.alert.annotations)], ensure_ascii=False)
        text.encode()  # what a database takes
        assert one.alert.ends_at_s is None or one.alert.ends_at_s >= one.alert.starts_at_s


@pytest.mark.parametrize(
    ("labels", "mapped", "service", "note"),
    [
        ({"service": "chat"}, {}, "chat", ""),
        ({"service": "api"}, {"api": "chat"}, "chat", ""),
        ({"service": "api"}, {}, None, "no inference mapping: service='api' is no service here; map it"),
        ({"service": "api"}, {"api": "gone"}, None, "no inference mapping: 'api' is mapped to 'gone'"),
        ({"team": "blue"}, {}, None, "no inference mapping: it has no label service"),
    ],
)
def test_a_label_counts_as_a_service_only_where_it_is_one(
    labels: dict[str, str], mapped: dict[str, str], service: str | None, note: str
) -> None:
    found = service_of(labels, "service", mapped, {"chat"})
    assert found[0] == service
    assert found[1].startswith(note)
