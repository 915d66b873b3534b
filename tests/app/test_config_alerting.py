"""The section ``alerting`` of the configuration file, by itself."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from alerts.grouping import Pace
from goodwatch.app._alert_sections import Alerting, advice
from goodwatch.app._schema import settings
from goodwatch.app.alerting import routes_of
from goodwatch.core.errors import ConfigError

HOOK = {"name": "hook", "type": "webhook", "url": "http://127.0.0.1:9/hook"}
NIGHT = {"name": "night", "days": ["sat", "sun"], "starts": "02:00", "ends": "05:00", "zone": "Europe/Berlin"}


def alerting(**keys: Any) -> Alerting:
    return Alerting.model_validate(keys)


def test_without_anything_goodwatch_pages_nobody_and_groups_by_service() -> None:
    found = alerting()
    assert (found.sinks, found.pace) == ((), Pace())


@pytest.mark.parametrize(
    ("pages", "prometheus", "pager"),
    [
        ("auto", False, "goodwatch"),
        ("auto", True, "prometheus"),
        ("goodwatch", True, "goodwatch"),
        ("prometheus", False, "prometheus"),
    ],
)
def test_one_of_the_two_pages(pages: str, prometheus: bool, pager: str) -> None:
    assert alerting(pages=pages).pager(prometheus=prometheus) == pager


def test_sinks_to_which_nothing_goes_are_told_of() -> None:
    assert "pages: goodwatch" in advice(alerting(sinks=[HOOK]), prometheus=True)[0]
    assert advice(alerting(sinks=[HOOK]), prometheus=False) == []
    assert advice(alerting(sinks=[HOOK], pages="prometheus"), prometheus=True) == []


def test_sinks_become_routes_with_their_own_filters_and_pace(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("http://127.0.0.1:9093\n")
    found = alerting(
        group_wait="10s", repeat_page="1h",
        sinks=[HOOK | {"severities": ["page"], "services": ["chat"], "timeout": "3s", "per_minute": 5},
               {"name": "am", "type": "alertmanager", "url_file": str(secret)}, {"name": "log", "type": "log"}],
    )  # fmt: skip
    hook, am, log = routes_of(found)
    assert (hook.levels, hook.services, hook.per_minute) == (frozenset({"page"}), frozenset({"chat"}), 5)
    assert (hook.pace.wait_s, hook.pace.repeat_page_s) == (10.0, 3600.0)
    assert (am.pace.steady, log.pace) == (True, hook.pace)


def test_secrets_are_not_shown() -> None:
    found = alerting(sinks=[HOOK | {"url": "http://h/t0ken", "secret": "s3cret", "headers": {"X-A": "hidd3n"}}])
    for word in ("t0ken", "s3cret", "hidd3n"):
        assert word not in f"{found!r} {routes_of(found)!r}"


def test_maintenance_is_read_and_a_time_that_yaml_takes_for_a_number_too() -> None:
    (one,) = alerting(maintenance=[NIGHT | {"starts": 750, "matchers": ['service="batch"']}]).maintenance
    planned = one.maintenance
    assert (planned.weekly.days, planned.weekly.starts, planned.weekly.ends) == (frozenset({5, 6}), 750, 300)
    assert str(planned.matchers[0]) == 'service="batch"'


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"sinks": [HOOK, HOOK]}, "a name is there twice"),
        ({"sinks": [HOOK | {"type": "pigeon"}]}, "is no kind of sink; known: alertmanager, apprise, log, webhook"),
        ({"sinks": [{"name": "x", "type": "webhook"}]}, "write url, or url_file"),
        ({"sinks": [HOOK | {"url_file": "x"}]}, "keep one of them"),
        ({"sinks": [HOOK | {"secret": "a", "secret_file": "b"}]}, "keep one of them"),
        ({"sinks": [HOOK | {"severities": ["critical"]}]}, "'page', 'ticket' or 'none'"),
        ({"maintenance": [NIGHT | {"zone": "Europe/Atlantis"}]}, "is not a time zone"),
        ({"maintenance": [NIGHT | {"zone": "../etc/passwd"}]}, "is not a time zone"),
        ({"maintenance": [NIGHT | {"starts": "2am"}]}, "write 02:30"),
        ({"maintenance": [NIGHT | {"starts": 5000}]}, "write 02:30"),
        ({"maintenance": [NIGHT | {"days": ["someday"]}]}, "'mon', 'tue'"),
        ({"maintenance": [NIGHT | {"matchers": ["chat"]}]}, "is not a matcher"),
        ({"maintenance": [NIGHT, NIGHT]}, "a name is there twice"),
        ({"pages": "both"}, "'auto', 'goodwatch' or 'prometheus'"),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        alerting(**keys)
    assert says in str(caught.value)


def test_what_only_shows_when_sinks_are_made_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"alerting.sinks\[0\]: sink hook: its url"):
        routes_of(alerting(sinks=[HOOK | {"url": "ftp://h/x"}]))
    with pytest.raises(ConfigError, match=r"alerting.sinks\[0\].url_file: .* does not exist"):
        routes_of(alerting(sinks=[{"name": "x", "type": "webhook", "url_file": str(tmp_path / "none")}]))


def test_every_setting_has_a_meaning() -> None:
    assert all(one.meaning for one in settings(Alerting.model_json_schema(by_alias=True)))
