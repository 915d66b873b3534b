"""Push, diff and prune against a Grafana double: nothing is lost, and an error says what was done before it."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from dashboards.grafana import ChangedMeanwhileError, connected
from goodwatch.app.boarding import Place, Rules, difference_to, push_boards
from goodwatch.core.errors import ConfigError, GoodwatchError, TransientError
from tests.dashboards.grafana_double import TOKEN, VIEWER, GrafanaDouble, running

pytestmark = pytest.mark.integration


def board(uid: str, title: str = "t") -> dict[str, Any]:
    return {
        "uid": uid,
        "title": title,
        "tags": ["goodwatch"],
        "panels": [],
        "id": None,
        "version": 0,
        "templating": {"list": []},
    }


CAREFUL: Final = Rules()
OURS: Final = {uid: board(uid) for uid in ("a", "b", "c")}


async def push(
    grafana: GrafanaDouble, made: dict[str, Any], rules: Rules = CAREFUL, token: str = TOKEN
) -> tuple[int, list[str]]:
    said: list[str] = []
    async with running(grafana) as url:
        return await push_boards(Place(url, token), made, rules, said.append), said


async def changes(grafana: GrafanaDouble, made: dict[str, Any]) -> tuple[dict[str, str], str]:
    async with running(grafana) as url:
        actions, text = await difference_to(Place(url, TOKEN), made)
    return {action.uid: action.change for action in actions}, text


@pytest.mark.parametrize("bare", [False, True], ids=["versions as an object", "versions as a list"])
async def test_a_first_push_makes_folder_and_boards_and_a_second_changes_nothing(bare: bool) -> None:
    grafana = GrafanaDouble(bare_versions=bare)
    assert (await push(grafana, OURS))[0] == 0
    assert grafana.folders == {"goodwatch": "goodwatch"}
    assert grafana.writes == ["a", "b", "c"]
    assert await push(grafana, OURS) == (0, [])
    assert grafana.writes == ["a", "b", "c"]
    assert await changes(grafana, OURS) == (dict.fromkeys("abc", "same"), "")


async def test_only_what_changed_is_written() -> None:
    grafana = GrafanaDouble()
    await push(grafana, OURS)
    newer = {**OURS, "b": board("b", "better")}
    found, text = await changes(grafana, newer)
    assert found == {"a": "same", "b": "update", "c": "same"}
    assert '-  "title": "t",\n' in text
    assert '+  "title": "better",\n' in text
    await push(grafana, newer)
    assert grafana.writes[3:] == ["b"]


async def test_a_board_that_somebody_edited_is_left_alone_and_named() -> None:
    grafana = GrafanaDouble()
    await push(grafana, OURS)
    grafana.save(board("b", "mine"), by="alice")
    left, said = await push(grafana, {**OURS, "b": board("b", "better")})
    assert left == 1
    assert said == ["b: edited in Grafana by alice; left alone: --overwrite replaces it (a copy is kept)"]
    assert grafana.boards["b"][-1]["dashboard"]["title"] == "mine"


async def test_told_to_overwrite_it_keeps_a_copy_first(tmp_path: Path) -> None:
    grafana = GrafanaDouble()
    await push(grafana, OURS)
    grafana.save(board("b", "mine"))
    left, _ = await push(grafana, OURS, Rules(overwrite=True, backup=tmp_path))
    assert left == 0
    assert grafana.boards["b"][-1]["dashboard"]["title"] == "t"
    assert json.loads((tmp_path / "b.v2.json").read_text())["title"] == "mine"


async def test_without_room_for_the_copy_the_board_is_not_touched(tmp_path: Path) -> None:
    grafana = GrafanaDouble()
    await push(grafana, OURS)
    grafana.save(board("b", "mine"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="so the board was not touched"):
        await push(grafana, OURS, Rules(overwrite=True, backup=tmp_path / "file"))
    assert grafana.boards["b"][-1]["dashboard"]["title"] == "mine"


async def test_prune_deletes_what_is_no_longer_ours_after_all_writes_and_keeps_a_copy(tmp_path: Path) -> None:
    grafana = GrafanaDouble()
    await push(grafana, OURS)
    grafana.save({**board("other"), "tags": []})
    fewer = {"b": board("b", "better"), "c": OURS["c"]}
    assert (await push(grafana, fewer))[1][-1] == "a: no longer ours; left alone: --prune deletes it"
    grafana.writes.clear()
    await push(grafana, {**fewer, "c": board("c", "better")}, Rules(prune=True, backup=tmp_path))
    assert grafana.writes == ["c", "-a"]
    assert (tmp_path / "a.v1.json").exists()
    assert set(grafana.boards) == {"b", "c", "other"}


async def test_prune_spares_a_board_that_somebody_edited_or_made(tmp_path: Path) -> None:
    grafana = GrafanaDouble()
    await push(grafana, OURS)
    grafana.save(board("a", "mine"))
    await push(grafana, {uid: OURS[uid] for uid in "bc"}, Rules(prune=True, backup=tmp_path))
    assert "a" in grafana.boards


@pytest.mark.parametrize(("status", "kind"), [(500, TransientError), (429, TransientError), (400, ConfigError)])
async def test_a_failure_half_way_says_what_was_done_and_the_next_push_finishes(
    status: int, kind: type[GoodwatchError]
) -> None:
    grafana = GrafanaDouble(fail={"POST b": status})
    with pytest.raises(kind, match=r"(?s)cannot write b: .*done before: a; not done: b, c\."):
        await push(grafana, OURS)
    assert grafana.writes == ["a"]
    grafana.fail.clear()
    await push(grafana, OURS)
    assert grafana.writes == ["a", "b", "c"]


async def test_a_board_that_is_written_meanwhile_is_not_overwritten() -> None:
    grafana = GrafanaDouble(folders={"goodwatch": "goodwatch"})
    await push(grafana, OURS)
    async with running(grafana) as url, connected(url, TOKEN, "goodwatch") as client:
        (held,) = [one for one in await client.boards(["a"]) if one.uid == "a"]
        grafana.save(board("a", "mine"))
        with pytest.raises(ChangedMeanwhileError, match="somebody wrote it meanwhile"):
            await client.write(board("a", "better"), held)
    assert grafana.boards["a"][-1]["dashboard"]["title"] == "mine"


async def test_a_provisioned_board_is_left_to_its_files() -> None:
    grafana = GrafanaDouble()
    grafana.save(OURS["a"])
    grafana.provisioned.add("a")
    _, said = await push(grafana, OURS)
    assert "a: provisioned from files; left alone: change the files it comes from" in said
    assert grafana.writes == ["b", "c"]


async def test_an_imported_board_with_our_very_content_is_ours() -> None:
    grafana = GrafanaDouble(folders={"goodwatch": "goodwatch"})
    grafana.save(OURS["a"])
    assert (await changes(grafana, {"a": OURS["a"]}))[0] == {"a": "same"}


async def test_a_board_in_another_folder_is_moved() -> None:
    grafana = GrafanaDouble()
    await push(grafana, OURS)
    grafana.boards["a"][-1]["folder"] = "elsewhere"
    assert (await changes(grafana, OURS))[0]["a"] == "update"


@pytest.mark.parametrize(
    ("token", "said"),
    [("", "401 .*set GRAFANA_TOKEN"), ("wrong", "401 .*set GRAFANA_TOKEN"), (VIEWER, "403 .*the role Editor")],
)
async def test_a_token_without_the_right_is_told_how_to_get_it(token: str, said: str) -> None:
    grafana = GrafanaDouble()
    with pytest.raises(ConfigError, match=said):
        await push(grafana, OURS, token=token)
    assert grafana.boards == {}


async def test_a_folder_s_name_that_is_taken_is_told() -> None:
    grafana = GrafanaDouble(folders={"x": "goodwatch"})
    with pytest.raises(ChangedMeanwhileError, match="of this name is there"):
        await push(grafana, OURS)


async def test_no_grafana_at_the_address_is_told(free_port: int) -> None:
    with pytest.raises(TransientError, match="does not answer"):
        await push_boards(Place(f"http://127.0.0.1:{free_port}", TOKEN), OURS, Rules(), print)


def test_the_token_is_in_no_text() -> None:
    assert TOKEN not in repr(Place("http://g", TOKEN))
