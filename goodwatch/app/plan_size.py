"""Sizing for the command line: a sentence and flags to a question, and the whole answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from goodwatch.app.config import Prices
from goodwatch.app.planning import model_of as model_in_file
from goodwatch.app.prices import load_prices
from goodwatch.core.errors import ConfigError
from goodwatch.core.forms import form_of
from planner.catalogue import accelerators, model_names
from planner.configure.forms import command
from planner.cost.prices import KINDS, Offer, Overrides, card_name
from planner.ledger import ledger
from planner.model_facts import ModelFacts
from planner.search.answer import Answer, Option, configuration
from planner.search.choose import fewest_at_point, search
from planner.search.near import nearest
from planner.search.question import OBJECTIVE, SPREAD, Allowed, Arrivals, Question, arrivals_of
from planner.search.sentence import Sentence, understood
from planner.search.trial import Setup
from planner.simulate.run import Limits
from planner.simulate.trace import Trace, trace
from planner.speed.deployment import model_of as model_by_name
from planner.tensors import text_params
from planner.vram import Ledger

#: parameters from which a chat is taken to be one with a large model, whose targets are longer (MLPerf's is of 70 B)
_LARGE: Final = 30e9
_MOST_BYTES: Final = 256 * 2**20
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class SizeOptions:
    """The sentence, and flags of ``goodwatch plan size`` under the names of ``Sentence.told``; None is "not given"."""

    sentence: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)
    trace: Path | None = None
    price_list: Path | None = None


@dataclass(frozen=True, slots=True)
class Sized:
    """The answer with what it was made from: ``told`` names the model as it is to be run; ``command`` how, or why not."""

    answer: Answer
    sentence: Sentence
    told: Mapping[str, Any]
    ledger: Ledger | None
    command: str
    likely: Setup | None = None  # the same with fewer replicas, which is enough at the point of the bands

    @property
    def shown(self) -> Option | None:
        """What the page is about: the best, else the nearest."""
        if self.answer.best is not None:
            return self.answer.best
        return next((one.option for one in self.answer.near if one.option is not None), None)


def size(options: SizeOptions) -> Sized:
    """The answer to a sentence and flags.

    Raises
    ------
    ConfigError
        Something needed is missing, absurd, contradicts another, or names something unknown.
    """
    heard = understood(options.sentence, models=model_names(), cards=[one.name for one in accelerators()])
    told = _merged(heard, options.flags)
    question = question_of(told, _requests(options.trace), options.price_list)
    answer = nearest(search(question))
    shown = Sized(answer, heard, told, None, "").shown
    if shown is None:
        return Sized(answer, heard, told, None, "")
    setup = shown.setup
    request = setup.instance.request(
        question.model, length=setup.max_model_len, sequences=setup.max_num_seqs, tokens=setup.batched_tokens
    )
    fewer = fewest_at_point(question, shown.setup)
    likely = fewer if fewer.gpus < shown.setup.gpus else None
    return Sized(answer, heard, told, ledger(request), _command(question, shown, str(told["model"])), likely)


def _command(question: Question, one: Option, model: str) -> str:
    name = model if _is_file(model) else question.model.name
    try:
        return command(configuration(question, one.setup, name))
    except ConfigError as error:
        return f"# no command line can be written: {error}"


def _merged(heard: Sentence, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Sentence and flags as one. Raises ConfigError where they contradict each other."""
    given = {name: value for name, value in flags.items() if value is not None and value != () and value is not False}
    for name, value in given.items():
        if name in heard.told and heard.told[name] != value:
            said = heard.told[name]
            raise ConfigError(
                f"--{name.replace('_', '-')} {_text(value)}: the sentence says {_text(said)}; say it once"
            )
    return {**heard.told, **given}


def _text(value: object) -> str:
    return ", ".join(str(one) for one in value) if isinstance(value, tuple) else str(value)


def question_of(told: Mapping[str, Any], requests: Trace | None = None, price_list: Path | None = None) -> Question:
    """The question that was asked, every default of ours named in ``assumed``.

    Raises
    ------
    ConfigError
        As ``size``.
    """
    if not told.get("model"):
        raise ConfigError("no model is told: name one, as in “Qwen2.5-72B on H100, …” or --model")
    assumed: list[str] = []
    model, doubt = _model(str(told["model"]), assumed)
    limits = _limits(told, model, assumed)
    arrivals = _of_trace(requests, told) if requests is not None else _arrivals(told, limits, assumed)
    if "objective" not in told:
        assumed.append(
            f"{OBJECTIVE:.0%} of the requests must meet every target (say P99 or --objective for another share)"
        )
    kind, overrides = _price(told, price_list)
    question = Question(
        model, arrivals, limits, float(told.get("objective", OBJECTIVE)), told.get("max_model_len"), _allowed(told, assumed),
        told.get("budget_usd_per_month"), kind, overrides, _versions(told), told.get("acceptance_ratio"), doubt,
        int(told.get("seed", 0)),
    )  # fmt: skip
    if question.max_model_len is None:
        assumed.append(f"requests of up to {question.needed_tokens:,} tokens are served (--max-model-len for others)")
    return replace(question, assumed=tuple(assumed))


def _is_file(name: str) -> bool:
    return name.endswith((".gguf", ".json")) or name.startswith(("/", "./", "../", "~/")) or Path(name).is_dir()


def _model(name: str, assumed: list[str]) -> tuple[ModelFacts, float]:
    if _is_file(name):
        return model_in_file(str(Path(name).expanduser()))[0], 0.0
    facts, taken, doubt = model_by_name(name, None, None)
    if taken:
        assumed.append(taken)
    return facts, doubt


def _limits(told: Mapping[str, Any], model: ModelFacts, assumed: list[str]) -> Limits:
    """Targets that were told; the form's where they were not."""
    named = {name: told.get(name) for name in ("ttft_s", "tpot_s", "e2e_s")}
    name = told.get("form")
    if name is None and any(value is not None for value in named.values()):
        return Limits(**named)
    if name is None:
        name = "chat"
        assumed.append("it is a chat (say what it is, or give targets)")
    if name == "chat" and text_params(model) >= _LARGE:
        name = "chat-large"
    try:
        form = form_of(str(name))
    except ValueError as error:
        raise ConfigError(f"--form {name}: {error}") from error
    own = {"ttft_s": form.limits.ttft_s, "tpot_s": form.limits.tpot_s, "e2e_s": form.limits.e2e_s}
    taken = {key: value for key, value in own.items() if value is not None and named[key] is None}
    if taken:
        words = ", ".join(f"{key.removesuffix('_s').upper()} {value * 1e3:,.0f} ms" for key, value in taken.items())
        assumed.append(f"{words}: {form.source}")
    return Limits(**{key: value if value is not None else own[key] for key, value in named.items()})


def _of_trace(requests: Trace, told: Mapping[str, Any]) -> Arrivals:
    for name in ("requests_per_s", "requests_per_day", "tokens_per_day", "concurrency", "users", "input_tokens", "output_tokens"):  # fmt: skip
        if told.get(name) is not None:
            raise ConfigError(f"--trace says what arrives; {name.replace('_', ' ')} {told[name]:g} contradicts it")
    return arrivals_of(requests)


def _arrivals(told: Mapping[str, Any], limits: Limits, assumed: list[str]) -> Arrivals:
    missing = [name for name in ("input_tokens", "output_tokens") if told.get(name) is None]
    if missing:
        words = " and ".join(name.replace("_", " ") for name in missing)
        raise ConfigError(f"{words} of a mean request: not told; say them, as in “1.2k in / 300 out”, or --trace")
    inputs, outputs = float(told["input_tokens"]), float(told["output_tokens"])
    if told.get("spread") is None:
        assumed.append(f"lengths differ by {SPREAD:g} (one sigma of their logarithm; --length-spread, or --trace)")
    assumed.append("requests come at random (Poisson); a trace of your own says more")
    spread = float(told.get("spread", SPREAD))
    # lengths are checked before a rate is made of them
    Arrivals(1.0, inputs, outputs, spread, float(told.get("shared_ratio") or 0.0))
    rate = _rate(told, (inputs, outputs), limits, assumed)
    return Arrivals(rate, inputs, outputs, spread, float(told.get("shared_ratio") or 0.0))


def _rate(told: Mapping[str, Any], lengths: tuple[float, float], limits: Limits, assumed: list[str]) -> float:
    """Requests per second at the busiest time."""
    names = ("requests_per_s", "requests_per_day", "tokens_per_day", "output_tokens_per_s", "concurrency", "users")
    given = [name for name in names if told.get(name) is not None]
    if not given:
        raise ConfigError(
            "how much arrives is not told: say it, as in “20 req/s”, “2M tokens a day” or “64 concurrent requests”"
        )
    if len(given) > 1:
        words = " and ".join(name.replace("_", " ") for name in given)
        raise ConfigError(f"{words}: say the load in one way")
    name, value, peak = given[0], float(told[given[0]]), float(told.get("peak") or 1.0)
    if not value > 0:
        raise ConfigError(f"--{name.replace('_', '-')} {value:g}: is not above 0")
    if not 1 <= peak <= 100:
        raise ConfigError(f"--peak {peak:g}: is outside 1 to 100 times the mean")
    inputs, outputs = lengths
    if name in ("concurrency", "users"):
        return _by_concurrency(value, outputs, limits, assumed, users=name == "users")
    if name.endswith("_per_day") and told.get("peak") is None:
        assumed.append("the day is even, without a busy hour: --peak 3 where the busiest hour has three times the mean")
    mean = {"requests_per_s": value, "requests_per_day": value / _DAY_S, "tokens_per_day": value / _DAY_S / (inputs + outputs),
            "output_tokens_per_s": value / outputs}[name]  # fmt: skip
    return mean * peak


def _by_concurrency(count: float, outputs: float, limits: Limits, assumed: list[str], *, users: bool) -> float:
    """Little's law at the targets: a request that takes as long as it may is under way for that long."""
    held = (limits.ttft_s or 0.0) + outputs * (limits.tpot_s or 0.0)
    held = min(held or float("inf"), limits.e2e_s or float("inf"))
    if held == float("inf"):
        raise ConfigError("requests at once without a latency target say no rate: give requests/s, or a target")
    who = f"each of {count:g} users has a request under way all the time" if users else f"{count:g} requests under way"
    assumed.append(f"{who}, each as long as its targets allow ({held:.1f} s): {count / held:.3g} requests/s")
    return count / held


def _allowed(told: Mapping[str, Any], assumed: list[str]) -> Allowed:
    gpus = tuple(told.get("gpus") or ())
    if not gpus:
        assumed.append("any card of the catalogue with a listed price (name cards, or --vendor, --region)")
    return Allowed(
        gpus=gpus, vendors=tuple(told.get("vendors") or ()), engines=_words(told.get("engine")),
        regions=tuple(told.get("regions") or ()), schemes=_words(told.get("quantization")),
        kv_dtypes=_words(told.get("kv_cache_dtype")), tp=_counts(told.get("tp")), pp=_counts(told.get("pp")),
        gpu_count=told.get("gpu_count"), most_gpus=told.get("most_gpus"), four_bit=bool(told.get("four_bit")),
        disaggregation=not told.get("no_disaggregation"),
    )  # fmt: skip


def _words(told: object) -> tuple[str, ...]:
    return () if told is None else tuple(one.strip() for one in str(told).split(",") if one.strip())


def _counts(told: object) -> tuple[int, ...]:
    return () if told is None else (int(str(told)),)


def _versions(told: Mapping[str, Any]) -> dict[str, str]:
    version, engines = told.get("engine_version"), _words(told.get("engine"))
    if version is None:
        return {}
    if len(engines) != 1:
        raise ConfigError(f"--engine-version {version}: of which engine? give one --engine beside it")
    return {engines[0]: str(version)}


def _price(told: Mapping[str, Any], price_list: Path | None) -> tuple[str, Overrides | None]:
    word = str(told.get("price") or "on-demand")
    offers = _offers(price_list) if price_list is not None else ()
    if word == "owned":
        raise ConfigError("--price owned: give USD per GPU-hour instead; goodwatch plan cost --price owned tells it")
    if word in KINDS:
        return word, Overrides(offers=offers)
    try:
        usd = float(word.lstrip("$"))
    except ValueError:
        raise ConfigError(f"--price {word}: unknown; {', '.join(KINDS)}, or USD per GPU-hour as in 2.49") from None
    if offers:
        raise ConfigError(f"--price {word} and --price-list contradict each other: give one")
    return "on-demand", Overrides(usd_per_gpu_hour=usd, source="given with --price")


def _offers(path: Path) -> tuple[Offer, ...]:
    """The operator's own price list, in the form that the configuration takes too."""
    if not path.is_file():
        raise ConfigError(f"--price-list {path}: is no file")
    book = load_prices(Prices(file=path.resolve()))
    return tuple(
        Offer(card_name(row.gpu), row.provider, row.kind, row.gpu_hour_usd, row.as_of.isoformat(), f"{where}: {row.source}", True)
        for where, row in book.rows
    )  # fmt: skip


def _requests(path: Path | None) -> Trace | None:
    """Requests of a CSV, Parquet or JSON-lines file with columns arrived_s (or arrived_at), input_tokens, output_tokens."""
    if path is None:
        return None
    readers = {".csv": pl.read_csv, ".parquet": pl.read_parquet, ".jsonl": pl.read_ndjson, ".ndjson": pl.read_ndjson}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"--trace {path}: is none of {', '.join(sorted(readers))}")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"--trace {path}: larger than {_MOST_BYTES // 2**20} MiB; give a busy part of it")
        frame = reader(path)  # type: ignore[operator]
    except OSError as error:
        raise ConfigError(f"--trace {path}: {error.strerror or error}") from error
    except pl.exceptions.PolarsError as error:
        raise ConfigError(f"--trace {path}: cannot be read: {error}") from error
    return _trace_of(path, frame)


def _trace_of(path: Path, frame: pl.DataFrame) -> Trace:
    at = next((name for name in ("arrived_s", "arrived_at") if name in frame.columns), None)
    missing = [name for name in ("input_tokens", "output_tokens") if name not in frame.columns]
    if at is None or missing:
        raise ConfigError(f"--trace {path}: has no column {', '.join((*(() if at else ('arrived_s',)), *missing))}")
    names = [at, "input_tokens", "output_tokens", *(["cached_tokens"] if "cached_tokens" in frame.columns else [])]
    try:
        part = frame.select(
            pl.col(at).cast(pl.Float64), *(pl.col(name).cast(pl.Int64) for name in names[1:])
        ).drop_nulls()
    except pl.exceptions.PolarsError as error:
        raise ConfigError(f"--trace {path}: {', '.join(names)} must be numbers: {error}") from error
    cached = part["cached_tokens"].to_list() if "cached_tokens" in part.columns else None
    return trace(
        part[at].to_list(), part["input_tokens"].to_list(), part["output_tokens"].to_list(), cached_tokens=cached
    )
