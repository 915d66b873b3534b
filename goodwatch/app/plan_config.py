"""``goodwatch plan config``: what is not told is filled from the VRAM ledger; the rest is written in the engine's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from goodwatch.app.planning import VramOptions, model_of, request_of
from goodwatch.core.errors import ConfigError
from planner.choices.rules import quantisations
from planner.configure.containers import compose, kubernetes
from planner.configure.forms import FORMS, command, own_file
from planner.configure.layout import neutral
from planner.configure.values import Configuration
from planner.flags import flags_of, shown
from planner.gpu import Gpu
from planner.ledger import ledger
from planner.quantisation import KV_BYTES, scheme
from planner.speed.deployment import scheme_of
from planner.tensors import Layout
from planner.vram import Ledger, Request, deployed, with_length

_RANKS: Final = (1, 2, 4, 8)
#: a layout that only starts with shorter requests than this is passed over where more cards can be had
_ENOUGH_TOKENS: Final = 8192
_STEP_TOKENS: Final = 1024


@dataclass(frozen=True, slots=True)
class Planned:
    """A configuration, remarks on what was filled in, and the ledger that it stands on; None where nothing was sized."""

    configuration: Configuration
    remarks: tuple[str, ...]
    ledger: Ledger | None


def configuration_of(flags: Mapping[str, Any]) -> Configuration:
    """The configuration that flags of the command line name; nothing is filled in.

    Raises
    ------
    ConfigError
        A value outside what means anything, or an extra flag that is none.
    """
    known = {name: value for name, value in flags.items() if name in Configuration.__dataclass_fields__}
    extra = tuple(_extra(one) for one in flags.get("extra", ()))
    return Configuration(**{**known, "extra": extra, "lora_adapters": tuple(flags.get("lora_adapters", ()))})


def _extra(text: str) -> tuple[str, str]:
    flag, _, value = text.strip().partition(" ") if " " in text.strip() else text.strip().partition("=")
    if not flag.startswith("-"):
        raise ConfigError(f'--extra {text}: is no flag; write it as --extra="--flag value"')
    return flag, value.strip()


def plan(asked: Configuration, *, check: bool = True) -> Planned:
    """The configuration with ranks and the longest request filled in, as far as nobody told them.

    Parameters
    ----------
    asked
        What was told.
    check
        Whether the VRAM ledger is asked; without it nothing is filled in and nothing is sized.

    Raises
    ------
    ConfigError
        Model, card or engine are not known, or nothing starts on up to 8 cards.
    """
    table = flags_of(asked.engine)
    table.version(asked.engine_version)
    if not asked.engine_version:
        newest = shown(table.newest)
        planned = plan(replace(asked, engine_version=newest), check=check)
        remark = f"no version was told: written for {newest}, the newest whose flags were read"
        return replace(planned, remarks=(remark, *planned.remarks))
    if not check:
        return Planned(asked, ("not sized: whether it starts was not asked",), None)
    if asked.gpu is None:
        raise ConfigError("--gpu: is missing; name the card, or write the flags as they are with --unchecked")
    others = (asked.pp or 1) * (asked.dp or 1)
    ranks = (asked.tp,) if asked.tp is not None else tuple(tp for tp in _RANKS if tp == 1 or tp * others <= _RANKS[-1])
    shortest: tuple[Configuration, Request] | None = None
    refused: ConfigError | None = None
    for tp in ranks:
        one = replace(asked, tp=tp)
        try:
            request = _request(one)
        except ConfigError as error:
            refused = refused or error
            if tp == ranks[0]:
                raise
            continue  # more ranks than the heads divide by
        wanted = one.max_model_len or request.model.max_positions
        found = _longest(request, wanted)
        if found is None:
            shortest = (one, request)
            continue
        enough = wanted if asked.max_model_len is not None else min(wanted, _ENOUGH_TOKENS)
        if found >= enough or tp == ranks[-1]:
            return _planned(asked, one, request, wanted, found)
        shortest = (one, request)
    if shortest is None:
        raise refused or ConfigError(f"--model {asked.model}: nothing could be sized")
    return _shorter(asked, *shortest)


def _shorter(asked: Configuration, one: Configuration, request: Request) -> Planned:
    """The widest layout that was tried, with the requests that fit it; or the refusal."""
    wanted = one.max_model_len or request.model.max_positions
    found = _longest(request, wanted)
    if found is None:
        told = ledger(request)
        raise ConfigError(
            f"{one.model} does not start on {one.cards} x {request.gpu.name}: {told.reason}{_smaller(request)}"
        )
    return _planned(asked, one, request, wanted, found)


def _smaller(request: Request) -> str:
    """What the tables name for this card where memory is short."""
    rows = quantisations(request.gpu, request.engine.name, "fit")
    rest = [row for row in rows if row.scheme != request.scheme.name]
    return f"; weights in {rest[0].scheme} are smaller ({rest[0].reason})" if rest else "; see goodwatch plan vram"


def _planned(asked: Configuration, one: Configuration, request: Request, wanted: int, found: int) -> Planned:
    remarks = []
    if asked.tp is None and (one.tp or 1) > 1:
        remarks.append(f"tp {one.tp}: the fewest cards on which it starts with room for its requests")
    if found < wanted:
        remarks.append(
            f"max_model_len {found:,} instead of {wanted:,}: the longest request that surely fits the memory"
        )
    length = found if found < wanted or one.max_model_len is not None else None
    done = neutral(replace(one, max_model_len=length, gpu=request.gpu.name))
    told = ledger(with_length(request, length or wanted))
    remarks += _sized(told)
    own = request.model.quantisation or _published(one)
    if one.quantisation is None and own and not request.model.quantisation:
        remarks.append(f"{one.model} is published in {own}: sized as that; name --quantization for other weights")
    if one.quantisation is not None and own and scheme(own).name == request.scheme.name:
        done = replace(done, quantisation=None)
        remarks.append(f"weights in {request.scheme.name}: the checkpoint says it, no flag is needed")
    return Planned(done, (*remarks, *_advice(one, request)), told)


def _sized(told: Ledger) -> list[str]:
    """What the start will print, and which settings are left to the engine."""
    remarks = []
    if told.tokens is not None and told.concurrency is not None:
        low, high = told.tokens.low, told.tokens.high
        remarks.append(
            f"KV cache: {told.tokens.point:,.0f} tokens ({low:,.0f} to {high:,.0f}), {told.concurrency.point:.1f} longest requests at once"
        )
    taken, known = told.settings.taken, told.settings
    left = {
        "max_num_seqs": f"{known.max_num_seqs}",
        "batched_tokens": f"{known.batched_tokens}",
        "fraction": f"{known.fraction.point:.3g}",
    }
    words = [f"{name.replace('batched_tokens', 'max_num_batched_tokens').replace('fraction', 'memory_fraction')} {value}"
             for name, value in left.items() if name in taken and value != "0"]  # fmt: skip
    if words and told.request.engine.rule != "fixed_context":
        remarks.append(f"left to the engine: {', '.join(words)}")
    open_facts = [one for one in told.unknown if not one.endswith(": the default")]
    remarks += [f"not told, so in the intervals: {', '.join(open_facts)}"] if open_facts else []
    return remarks


def _advice(one: Configuration, request: Request) -> list[str]:
    """The table's weights for this card, where none were named and the model is published in 16 bit."""
    if one.quantisation is not None or request.model.quantisation or request.scheme.name != "bf16":
        return []  # they are told, or the checkpoint's own
    rows = quantisations(request.gpu, one.engine)
    return [f"weights stay at 16 bit; for this card: {rows[0].scheme} ({rows[0].reason})"] if rows else []


def _longest(request: Request, wanted: int) -> int | None:
    """Longest request up to ``wanted`` that starts at both ends of the interval; None where none of 512 tokens does."""
    if _starts(request, wanted):
        return wanted
    low, high = 0, wanted
    while high - low > max(64, min(_STEP_TOKENS, high // 16)):
        middle = (low + high) // 2
        low, high = (middle, high) if _starts(request, middle) else (low, middle)
    if low < 512:
        return None
    return low // _STEP_TOKENS * _STEP_TOKENS if low >= 4 * _STEP_TOKENS else low // 64 * 64


def _starts(request: Request, length: int) -> bool:
    found = ledger(with_length(request, length))
    return found.outcome == "ok" and found.certain


def _request(one: Configuration) -> Request:
    """The start as the ledger takes it."""
    slots = one.max_num_seqs or 1
    whole = one.engine == "llama.cpp"
    kv = one.kv_dtype or "auto"
    if kv not in KV_BYTES:
        raise ConfigError(f"--kv-cache-dtype {kv}: cannot be sized; known are {', '.join(KV_BYTES)}")
    weights = one.quantisation or _unread(one)
    options = VramOptions(
        one.model, one.gpu or "", one.engine, one.engine_version or None, weights, kv, one.tp or 1, one.pp or 1,
        one.ep or 1, one.dp or 1, one.memory_fraction, one.max_model_len, one.max_num_seqs, one.max_num_batched_tokens,
        one.block_tokens, slots if whole else 1, bool(one.eager), one.max_lora_rank or (16 if one.lora_adapters else None),
        one.speculative_tokens,
    )  # fmt: skip
    found = request_of(options)
    layout = Layout(options.tp, options.pp, options.ep, options.dp)
    return replace(found, layout=deployed(found.engine, found.model, layout))


def _unread(one: Configuration) -> str | None:
    """Weights that a model is published in, where its facts do not say so; llama.cpp's are in its file."""
    if one.engine == "llama.cpp" or model_of(one.model)[0].quantisation:
        return None
    return _published(one)


def _published(one: Configuration) -> str | None:
    found, note = scheme_of("bf16", one.model)
    return found.name if note else None


def card_vendor(card: Gpu | None) -> str:
    """The maker of a card; NVIDIA where no card is named."""
    return card.vendor if card is not None and card.vendor else "NVIDIA"


def text_of(planned: Planned, form: str, image: str = "") -> str:
    """The configuration in one of the forms: command, yaml, compose, kubernetes.

    Raises
    ------
    ConfigError
        No such form, or the engine's version cannot say what is asked.
    """
    one, remarks = planned.configuration, planned.remarks
    vendor = card_vendor(planned.ledger.request.gpu if planned.ledger else None)
    writers: Mapping[str, Callable[[], str]] = {
        "command": lambda: command(one, remarks),
        "yaml": lambda: own_file(one, remarks),
        "compose": lambda: compose(one, image, vendor, remarks),
        "kubernetes": lambda: kubernetes(one, image, vendor, remarks),
    }
    if form not in writers:
        raise ConfigError(f"--form {form}: unknown; known are {', '.join(FORMS)}")
    return writers[form]()
