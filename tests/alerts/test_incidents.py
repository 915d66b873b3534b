"""One alert, one incident, from its start to its end."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from alerts.history import About, Incident, Incidents, incident_of
from alerts.incoming import Seen
from tests.alerts.dispatching import PAGE, START_S, alert

CHAT = About("chat")


def seen(start: float = 0.0, end: float | None = None, *, told: bool = True) -> Seen:
    one = replace(alert(at_s=START_S + start), ends_at_s=None if end is None else START_S + end)
    return Seen("prometheus", one, told, end is not None, "pages")


def observe(incidents: Incidents, *told: Seen) -> list[list[Incident]]:
    found = []
    for one in told:
        versions = incidents.observed(one, CHAT)
        incidents.kept(versions)
        found.append(versions)
    return found


def test_telling_again_changes_nothing() -> None:
    first, second, third = observe(Incidents(), seen(), seen(), seen(0.4))
    assert [one.state for one in first] == ["firing"]
    assert second == third == []


def test_an_end_closes_the_incident_that_began() -> None:
    incidents = Incidents()
    (first,), (over,) = observe(incidents, seen(), seen(0, 480))
    assert (over.id, over.ends_at_s, over.end_told) == (first.id, START_S + 480, True)
    assert incidents.open == {}


def test_a_start_that_is_not_told_is_the_receipt_and_repeats_stay_one_incident() -> None:
    (first,), again, (over,), nothing = observe(
        Incidents(), seen(5, told=False), seen(300, told=False), seen(600, 600, told=False), seen(700, 700, told=False)
    )
    assert (first.starts_at_s, first.start_told) == (START_S + 5, False)
    assert again == nothing == []
    assert (over.id, over.state) == (first.id, "resolved")


def test_a_later_start_is_a_new_incident_and_the_old_one_ended_unseen() -> None:
    _, (over, new) = observe(Incidents(), seen(), seen(3600))
    assert (over.state, over.end_told, over.ends_at_s) == ("resolved", False, START_S + 3600)
    assert (new.state, new.id != over.id) == ("firing", True)


def test_an_end_of_what_never_began_here_is_kept_with_both_its_times() -> None:
    ((one,),) = observe(Incidents(), seen(0, 480))
    assert (one.starts_at_s, one.ends_at_s) == (START_S, START_S + 480)


def test_what_a_sender_of_everything_no_longer_tells_is_over() -> None:
    incidents = Incidents()
    observe(incidents, seen())
    assert incidents.missing("goodwatch", [], START_S + 60) == []
    (over,) = incidents.missing("prometheus", [], START_S + 60)
    assert (over.name, over.ends_at_s, over.end_told) == (PAGE, START_S + 60, False)
    assert incidents.missing("prometheus", [seen().alert.fingerprint], START_S + 60) == []


def test_becoming_quiet_is_a_version_and_staying_so_is_none() -> None:
    incidents = Incidents()
    observe(incidents, seen())
    (quiet,) = incidents.observed(seen(), About("chat", "", ("silence a",)))
    incidents.kept([quiet])
    assert quiet.quiet == ("silence a",)
    assert incidents.observed(seen(), About("chat", "", ("silence a",))) == []


told = st.tuples(st.integers(0, 50), st.none() | st.integers(0, 100), st.booleans())


@given(st.lists(told, max_size=30))
def test_there_is_never_more_than_one_open_and_no_end_before_a_start(steps: list[tuple[int, int | None, bool]]) -> None:
    incidents, kept = Incidents(), dict[str, Incident]()
    for start, length, start_told in steps:
        versions = incidents.observed(seen(start, None if length is None else start + length, told=start_told), CHAT)
        incidents.kept(versions)
        kept.update((one.id, one) for one in versions)
        assert len(incidents.open) <= 1
        assert sum(one.state == "firing" for one in kept.values()) <= 1
    for one in kept.values():
        assert one.ends_at_s is None or one.ends_at_s >= one.starts_at_s
        assert incident_of(one.id, one.body()) == one
