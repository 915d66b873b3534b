"""Rules as code for the command line: configuration and SLO files in, rule files, findings and verdicts out."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from alerts import openslo, sloth, spec
from alerts.check import Verdict, check
from alerts.lint.names import Names, names
from alerts.lint.run import lint
from alerts.lint.values import Finding
from alerts.promtool import unit_tests
from alerts.rules.build import build
from alerts.rules.files import dumped, grafana_file, operator_files, prometheus_files
from alerts.rules.values import Options, RuleSet
from alerts.runbooks import pages
from goodwatch.app._files import read_text
from goodwatch.app._yaml import parse
from goodwatch.app.config import Settings
from goodwatch.app.config import Slo as SloSection
from goodwatch.app.engines import known_accelerators, known_engines
from goodwatch.core.errors import ConfigError
from goodwatch.core.slo import JointGoodput, Latency, Period, Slo

Form = Literal["prometheus", "operator", "grafana"]
FORMS: Final[tuple[Form, ...]] = ("prometheus", "operator", "grafana")
#: files that `goodwatch alerts lint` looks at in a folder
_LINTED: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Built:
    """Files by path under the output folder, and sentences for a person."""

    files: Mapping[str, str]
    notes: tuple[str, ...]


def slos_of(settings: Settings) -> tuple[Slo, ...]:
    """The SLOs of the configuration and of the files that it names; engines as the targets say them.

    Those of services bear their names. Raises ``ConfigError`` for a file that cannot be read, and for a name that is
    there twice.
    """
    own = [
        _slo_of(service.name, service.description, service.slo, _engines_of(settings, service.name))
        for service in settings.services
        if service.slo is not None
    ]
    more = [*(entry.slo() for entry in settings.slos), *load_slos(settings.slo_files)]
    found = own + [slo if slo.engines else replace(slo, engines=_engines_of(settings, slo.service)) for slo in more]
    for name, count in Counter(slo.name for slo in found).items():
        if count > 1:
            raise ConfigError(f"the name '{name}' is that of {count} SLOs; write another name in one of them")
    return tuple(found)


def _engines_of(settings: Settings, service: str) -> tuple[str, ...]:
    """Engines of the service's targets; () when one of them does not say its engine."""
    found = [target.engine for target in settings.targets if target.service == service]
    return () if None in found else tuple(dict.fromkeys(engine for engine in found if engine is not None))


def _slo_of(service: str, description: str, section: SloSection, engines: tuple[str, ...]) -> Slo:
    limits = section.limits
    (signal, limit_s), *more = limits.items()
    kind = JointGoodput(limits) if more else Latency(signal, limit_s)
    return Slo(
        service, service, section.objective, kind, Period(section.period_s), description=description, engines=engines
    )  # fmt: skip


def options_of(settings: Settings | None, versions: Mapping[str, str] | None = None) -> Options:
    """How the rules fit in, as far as the configuration says it."""
    options = Options(engines=known_engines(), accelerators=known_accelerators(), versions=versions or {})
    if settings is None:
        return options
    url = settings.external_url or f"http://{settings.listen}"
    return replace(options, scrape_interval_s=settings.scrape.interval_s, external_url=str(url).rstrip("/"))


def load_slos(paths: Sequence[Path]) -> tuple[Slo, ...]:
    """SLOs of files in any of the three forms; raises ``ConfigError`` with path and reason."""
    return tuple(slo for path in paths for slo in _read(path))


def _read(path: Path) -> tuple[Slo, ...]:
    try:
        text = read_text(path)
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(f"{path}:{mark.line + 1 if mark else 1}: not YAML; mend the syntax") from error
    if not documents:
        raise ConfigError(f"{path}: is empty; write slos: with at least one entry")
    first = documents[0][0] if isinstance(documents[0], list) and documents[0] else documents[0]
    form = first if isinstance(first, dict) else {}
    if str(form.get("apiVersion", "")).startswith("openslo/"):
        return openslo.read(documents, str(path))
    if "version" in form or str(form.get("apiVersion", "")).startswith("sloth."):
        return tuple(slo for document in documents for slo in sloth.read(document, str(path)))
    read = parse(text)
    if read.faults:
        raise ConfigError("\n".join(f"{path}:{fault.line or 1}: {fault.text}" for fault in read.faults))
    return spec.read(read.value, str(path), read.line)


def build_alerts(slos: Iterable[Slo], options: Options, forms: Iterable[Form] = FORMS) -> Built:
    """Rule files with their unit tests (``rules/``), PrometheusRule objects (``operator/``), Grafana's (``grafana/``)."""
    wanted = tuple(slos)
    if not wanted:
        raise ConfigError("no SLO: give a service an slo in the configuration, or name a file of SLOs")
    rules = build(wanted, options)
    files: dict[str, str] = {}
    for form in forms:
        if form == "prometheus":
            files |= {f"rules/{name}": text for name, text in prometheus_files(rules, options).items()}
            files |= _unit_tests(wanted, options)
        elif form == "operator":
            files |= {f"operator/{name}": text for name, text in operator_files(rules, options).items()}
        else:
            files["grafana/goodwatch-alerts.yaml"] = grafana_file(rules, options)
    return Built(files, rules.notes)


def _unit_tests(slos: Iterable[Slo], options: Options) -> dict[str, str]:
    made = {
        f"rules/{slo.name}.test.yaml": unit_tests(slo, options, f"goodwatch-{slo.service}.rules.yaml", None)
        for slo in slos
    }
    return {name: text for name, text in made.items() if text is not None}


def write_files(files: Mapping[str, str], out: Path) -> tuple[Path, ...]:
    """Write files below a folder; returns their paths. Raises ``ConfigError`` where that cannot be done."""
    written = []
    for name, text in files.items():
        path = out / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written; {error.strerror or error}") from error
        written.append(path)
    return tuple(written)


def catalogue(versions: Mapping[str, str] | None = None) -> Names:
    """Every name that engines and exporters have."""
    return names([*known_engines().values(), *known_accelerators().values()], versions)


def lint_files(
    paths: Sequence[Path], *, versions: Mapping[str, str] | None = None, scrape_interval_s: float = 15.0
) -> list[Finding]:
    """What is wrong in rule files and boards; folders are searched for .yaml, .yml and .json."""
    found: dict[str, str] = {}
    for path in (file for given in paths for file in _files(given)):
        try:
            found[str(path)] = read_text(path)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error
    return lint(found, catalogue(versions), scrape_interval_s=scrape_interval_s)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in _LINTED and not file.name.endswith(".test.yaml"))


def check_slos(
    slos: Iterable[Slo], options: Options, traffic: Mapping[str, float] | None = None
) -> tuple[Verdict, ...]:
    """Which SLOs cannot work and why. ``traffic``: requests per second by service, as seen."""
    return check(slos, options, catalogue(options.versions), traffic)


def export_slos(slos: Iterable[Slo], form: Literal["goodwatch", "openslo"] = "goodwatch") -> str:
    """SLOs as YAML: a file of goodwatch's, or OpenSLO v1 documents."""
    if form == "goodwatch":
        return dumped({"slos": [spec.written(slo) for slo in slos]})
    return "---\n".join(dumped(openslo.written(slo)) for slo in slos)


def runbook_pages(rules: RuleSet) -> dict[str, str]:
    """Runbooks of the alerts of a set of rules, by file name."""
    return pages(rules.alerts)


def versions_of(texts: Iterable[str]) -> dict[str, str]:
    """Pinned versions from ``engine=version`` texts; raises ``ConfigError`` for an engine that is not known."""
    found: dict[str, Any] = {}
    for text in texts:
        engine, _, version = text.partition("=")
        if engine not in known_engines() or not version:
            raise ConfigError(
                f"--engine-version {text}: write ENGINE=VERSION; engines: {', '.join(sorted(known_engines()))}"
            )
        found[engine] = version
    return found
