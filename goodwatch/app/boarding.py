"""Boards as code for the command line: configuration in; files, findings, differences and pushes out."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from alerts.lint.run import lint
from alerts.rules import burn
from dashboards.grafana import connected
from dashboards.lint import lint_board
from dashboards.provisioning import FOLDER, config_maps, data_source, linter_exclusions, operator_objects, provider
from dashboards.sync import Action, Held, difference, plan
from dashboards.texts import text_of
from dashboards.values import Options, Promise
from exporters._families import FACTS, series_name
from exporters._intake import INTAKE_SERIES
from exporters.quality import QUALITY_SERIES
from exporters.recommendations import RECOMMENDATION_SERIES
from exporters.requests import REQUEST_SERIES
from exporters.slo import SLO_SERIES
from exporters.tenants import TENANT_SERIES
from goodwatch.app._files import read_text
from goodwatch.app.config import Settings
from goodwatch.app.engines import known_accelerators, known_engines
from goodwatch.app.ruling import catalogue
from goodwatch.core.errors import ConfigError, GoodwatchError
from goodwatch.core.model import Limits
from goodwatch.signals.derive import MEANINGS

#: engines whose boards are built when neither a configuration nor the caller names any
DEFAULT_ENGINES: Final = ("llamacpp", "sglang", "trtllm", "vllm")
DEFAULT_ACCELERATORS: Final = ("dcgm",)
FORMS: Final = ("files", "configmap", "operator")

Documents = Mapping[str, Mapping[str, Any]]


def options_of(
    settings: Settings | None, engines: Sequence[str] = (), versions: Mapping[str, str] | None = None
) -> Options:
    """What to build: the engines named, else those of the configuration's targets, else the common ones."""
    named = {target.engine for target in settings.targets if target.engine} if settings else set()
    wanted = tuple(engines) or tuple(sorted(named)) or DEFAULT_ENGINES
    devices = tuple(name for name in wanted if name in known_accelerators()) if engines else DEFAULT_ACCELERATORS
    unknown = [name for name in wanted if name not in known_engines() and name not in known_accelerators()]
    if unknown:
        raise ConfigError(
            f"--engine {unknown[0]}: unknown; engines: {', '.join(sorted(known_engines()))}; "
            f"accelerators: {', '.join(sorted(known_accelerators()))}"
        )
    url = str(settings.external_url or f"http://{settings.listen}") if settings else "http://127.0.0.1:9470"
    return Options(
        engines={name: known_engines()[name] for name in wanted if name in known_engines()},
        accelerators={name: known_accelerators()[name] for name in devices},
        versions=versions or {},
        services=_promises(settings) if settings else {},
        url=url,
    )


def _promises(settings: Settings) -> dict[str, Promise]:
    found = {}
    for service in settings.services:
        if service.slo is not None:
            limits = {name.removesuffix("econds"): value for name, value in service.slo.limits.items()}
            found[service.name] = Promise(service.slo.objective, Limits(**limits))
    return found


def build_boards(options: Options) -> dict[str, dict[str, Any]]:
    """Documents by uid; raises ``ConfigError`` where grafanalib is not installed."""
    try:
        from dashboards.build import boards, documents  # noqa: PLC0415  # only boards need the extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "grafanalib":
            raise
        raise ConfigError("boards need grafanalib; install it with: pip install 'goodwatch[boards]'") from error
    return documents(boards(options))


def files_of(
    made: Documents, forms: Iterable[str] = FORMS, *, prometheus_url: str = "http://prometheus:9090"
) -> dict[str, str]:
    """Files by path: ``boards/*.json`` with provisioning and ``.lint``, and the Kubernetes objects."""
    texts = texts_of(made)
    files: dict[str, str] = {}
    for form in forms:
        if form == "configmap":
            files["kubernetes/configmaps.yaml"] = config_maps(texts)
        elif form == "operator":
            files["kubernetes/grafanadashboards.yaml"] = operator_objects(texts)
        else:
            files |= {f"boards/{uid}.json": text for uid, text in texts.items()}
            files["boards/.lint"] = linter_exclusions(made)
            files["provisioning/dashboards/goodwatch.yaml"] = provider()
            files["provisioning/datasources/goodwatch.yaml"] = data_source(prometheus_url, _page_url(made))
    return files


def _page_url(made: Documents) -> str:
    """Where the boards say that goodwatch's pages are; "" when none of them leads there."""
    variables = (one for board in made.values() for one in board["templating"]["list"])
    return next((str(one["query"]) for one in variables if one["name"] == "goodwatch"), "")


def texts_of(made: Documents) -> dict[str, str]:
    """The documents as texts of files, by uid."""
    return {uid: text_of(board) for uid, board in made.items()}


# --- lint -------------------------------------------------------------------------------------------------------------


def known_series() -> frozenset[str]:
    """Every name of goodwatch's own that a board may ask for: exported series, and recorded by its rules."""
    derived = {series_name(name) for name in MEANINGS}
    counted = (*REQUEST_SERIES, *QUALITY_SERIES, *TENANT_SERIES, *SLO_SERIES, *RECOMMENDATION_SERIES)
    own = {name for name, *_ in (*counted, *INTAKE_SERIES)} | set(FACTS)
    histograms = {
        f"{name}_{end}" for name, kind, *_ in counted if kind == "histogram" for end in ("bucket", "sum", "count")
    }
    windows = [
        f"{name}{span}"
        for name in (burn.RATIO, burn.TOTAL, burn.BAD)
        for span in ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
    ]
    rules = {
        *windows,
        *(f"{name}_period" for name in (burn.TOTAL, burn.BAD)),
        burn.BUDGET,
        burn.BUDGET_LEFT,
        burn.INFO,
        burn.OBJECTIVE,
    }
    return frozenset(
        {*derived, *(f"{name}_{end}" for name in derived for end in ("low", "high")), *own, *histograms, *rules}
    )


def _gauges() -> frozenset[str]:
    tables = (*known_engines().values(), *known_accelerators().values())
    return frozenset(s.metric for t in tables for sources in t.signals.values() for s in sources if s.type == "gauge")


def lint_boards(texts: Mapping[str, str], versions: Mapping[str, str] | None = None) -> list[str]:
    """What is wrong with boards, by path, as sentences: dashboard-linter's rules, ours, and the field's mistakes."""
    found: list[str] = [str(one) for one in lint(texts, catalogue(versions))]
    known, gauges = known_series(), _gauges()
    for path, text in texts.items():
        try:
            board = json.loads(text)
        except ValueError:
            continue  # told by the lint above
        if not isinstance(board, dict):
            found.append(f"{path}: is not a board; a board is a JSON object")
            continue
        found += [f"{path}: {fault}" for fault in lint_board(board, known, gauges)]
    return found


def lint_paths(paths: Sequence[Path], versions: Mapping[str, str] | None = None) -> list[str]:
    """What is wrong with boards in files; folders are searched for .json."""
    texts: dict[str, str] = {}
    for path in (file for given in paths for file in (sorted(given.rglob("*.json")) if given.is_dir() else [given])):
        try:
            texts[str(path)] = read_text(path)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error
    if not texts:
        raise ConfigError(f"{', '.join(map(str, paths))}: no board in it; boards are .json files")
    return lint_boards(texts, versions)


# --- a Grafana --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Which Grafana and folder: URL, token of a service account, uid and title of the folder."""

    url: str
    token: str = field(repr=False)
    folder: str = FOLDER
    title: str = "goodwatch"


@dataclass(frozen=True, slots=True)
class Rules:
    """What a push may do: ``overwrite`` what people edited, ``prune`` what is no longer ours; ``backup`` keeps it."""

    overwrite: bool = False
    prune: bool = False
    backup: Path = Path("grafana-backup")


async def difference_to(place: Place, made: Documents) -> tuple[tuple[Action, ...], str]:
    """What a push would do, and the changes as a unified diff."""
    async with connected(place.url, place.token, place.folder) as grafana:
        actions = plan(made, await grafana.boards(list(made)), place.folder)
    return actions, "".join(difference(action) for action in actions)


async def push_boards(place: Place, made: Documents, rules: Rules, say: Callable[[str], None]) -> int:
    """Write what changed; returns how many boards were left alone because people edited them.

    A board is written over the version that was seen, never over a newer one. What is overwritten or deleted is kept
    in the backup folder first, deletions come last, and a failure half-way says what was done before it.
    """
    async with connected(place.url, place.token, place.folder) as grafana:
        actions = plan(made, await grafana.boards(list(made)), place.folder)
        steps = [action for action in actions if _wanted(action, rules)]
        if any(action.ours for action in steps):
            await grafana.ensure_folder(place.title)
        done: list[str] = []
        for action in sorted(steps, key=lambda one: one.ours is None):
            try:
                _keep(action, rules.backup, say)
                if action.ours is None:
                    await grafana.delete(action.uid)
                else:
                    await grafana.write(action.ours, action.held)
            except GoodwatchError as error:
                raise type(error)(f"{error}\n{_so_far(done, steps)}") from error
            done.append(action.uid)
            say(f"{action.text}; {'deleted' if action.ours is None else 'written'}")
    return _left(actions, rules, say)


def _wanted(action: Action, rules: Rules) -> bool:
    if action.change in ("create", "update"):
        return True
    if action.change == "edited":
        return rules.overwrite
    return rules.prune and (action.change == "orphan" or (action.change == "edited orphan" and rules.overwrite))


def _so_far(done: Sequence[str], steps: Sequence[Action]) -> str:
    rest = [action.uid for action in sorted(steps, key=lambda one: one.ours is None) if action.uid not in done]
    before = f"done before: {', '.join(done)}" if done else "nothing was changed before"
    return f"{before}; not done: {', '.join(rest)}. Push again when it is mended: what is done is not done twice."


def _left(actions: Iterable[Action], rules: Rules, say: Callable[[str], None]) -> int:
    """Tell what was left alone; returns how many boards people's edits held back."""
    held = 0
    for action in actions:
        if action.change == "provisioned":
            say(f"{action.text}; left alone: change the files it comes from")
        elif action.change == "orphan" and not rules.prune:
            say(f"{action.text}; left alone: --prune deletes it")
        elif action.change in ("edited", "edited orphan") and not _wanted(action, rules):
            held += action.change == "edited"
            say(f"{action.text}; left alone: --overwrite replaces it (a copy is kept)")
    return held


def _keep(action: Action, folder: Path, say: Callable[[str], None]) -> None:
    """Save what would be lost: a board that people edited, or one that is to be deleted."""
    held: Held | None = action.held
    if held is None or action.change == "update":
        return
    path = folder / f"{held.uid}.v{held.version}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps(held.document, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written, so the board was not touched; {error.strerror or error}"
        ) from error
    say(f"{held.uid}: kept as {path}")
