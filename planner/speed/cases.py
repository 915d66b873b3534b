"""Measured rows, or questions in their form, to deployments and loads. Figures that a row measured are never read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, get_args

from goodwatch.core.errors import ConfigError
from planner.estimate import Estimate
from planner.speed.deployment import Deployment, Named, deployment
from planner.speed.efficiency import Fitted
from planner.speed.prediction import PLAIN, Load, LoadKind, Prediction, Split, predicted, speed
from planner.speed.steps import Lengths
from planner.tensors import Layout

_NEEDED: Final = ("id", "kind", "model", "precision", "gpu", "gpu_count", "engine")
_LONGEST: Final = 10_000_000
_UNIFORM: Final = 0.9  # "uniform 0.8-1.0 x nominal"
_SHAREGPT_LONGEST: Final = 4.0  # longest of a thousand answers over their mean
_WORKERS: Final = re.compile(r"(\d+) x tp(\d+)(?: dp(\d+))?(?: ep(\d+))?")


def deployment_of_case(case: Mapping[str, Any], layout: Layout | None = None) -> Deployment:
    """The deployment that a row describes.

    Raises
    ------
    ConfigError
        A field is missing, no number, or names something that goodwatch does not know; starts with the row's id.
    """
    place = str(case.get("id", "case without id"))
    for name in _NEEDED:
        if case.get(name) in (None, ""):
            raise ConfigError(f"{place}: has no {name}")
    flags = str(case.get("engine_flags") or "")
    try:
        found = deployment(
            Named(
            model=str(case["model"]), precision=str(case["precision"]), gpu=str(case["gpu"]),
            gpu_count=_count(case, "gpu_count"), engine=str(case["engine"]),
            engine_version=str(case.get("engine_version") or ""), layout=layout or _layout(case, flags),
            kv_dtype=_kv_dtype(case.get("kv_dtype"), flags), params=_billions(case, "params_b"),
            active=_billions(case, "active_b"), flags=flags,
        )
        )  # fmt: skip
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    most = _flag(flags, "max-running-requests", "max-num-seqs")
    return replace(found, max_running=most) if most else found


def _kv_dtype(told: object, flags: str) -> str | None:
    word = re.search(r"--kv-cache-dtype[= ](\S+)", flags)
    return str(told) if told else word[1] if word else None


def _number(case: Mapping[str, Any], name: str) -> float | None:
    value = case.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST:
        raise ConfigError(f"{case.get('id')}: {name}: {value!r} is not a number above 0 and at most {_LONGEST:,}")
    return float(value)


def _count(case: Mapping[str, Any], name: str) -> int:
    value = _number(case, name)
    if value is None or value != int(value):
        raise ConfigError(f"{case.get('id')}: {name}: {case.get(name)!r} is not a count")
    return int(value)


def _billions(case: Mapping[str, Any], name: str) -> float | None:
    value = _number(case, name)
    return None if value is None else value * 1e9


def _flag(flags: str, *names: str) -> int | None:
    for name in names:
        found = re.search(rf"-{{1,2}}{name}[= ](\d+)", flags)
        if found:
            return int(found[1])
    return None


def _layout(case: Mapping[str, Any], flags: str) -> Layout:
    """How the model is cut: the row's own figures, else its flags, else tensor parallel over all cards."""
    cards = _count(case, "gpu_count")
    told = {name: int(value) for name in ("tp", "pp", "ep", "attention_dp") if (value := _number(case, name))}
    pp = told.get("pp") or _flag(flags, "pp", "pp-size", "pp_size") or 1
    dp = told.get("attention_dp") or 1
    tp = told.get("tp") or _flag(flags, "tp", "tp-size", "tp_size", "tensor-parallel-size") or max(1, cards // pp)
    ep = told.get("ep") or _flag(flags, "ep-size", "ep_size") or (tp if "enable-expert-parallel" in flags else 1)
    if dp == 1 and "enable-dp-attention" in flags:
        dp = _flag(flags, "dp-size", "dp") or tp
    if dp > 1:
        return Layout(max(1, cards // dp // pp), pp, ep if ep > 1 else dp, dp)
    if tp * pp > cards:
        tp = max(1, cards // pp)  # the source counts ranks of something else; the cards are what there is
    return Layout(tp, pp, min(ep, tp), 1)


def load_of_case(case: Mapping[str, Any]) -> Load:
    """The load that a row describes.

    Raises
    ------
    ConfigError
        The kind is unknown, or lengths or concurrency are missing or absurd.
    """
    place, kind = case.get("id"), str(case.get("kind"))
    if kind not in get_args(LoadKind):
        raise ConfigError(f"{place}: kind {kind}: no figure can be told; known are {', '.join(get_args(LoadKind))}")
    tokens, output = _number(case, "isl"), _number(case, "osl")
    if tokens is None or output is None:
        raise ConfigError(f"{place}: isl and osl: mean input and output tokens of a request are needed")
    share = _UNIFORM if "uniform 0.8-1.0" in str(case.get("length_dist", "")) else 1.0
    longest = _SHAREGPT_LONGEST if "ShareGPT" in str(case.get("length_dist", "")) else 1.0
    lengths = Lengths(tokens * share, output * share, 0.0, longest)
    at_once = _number(case, "concurrency")
    if kind.startswith("closed_loop") and at_once is None:
        raise ConfigError(f"{place}: concurrency: a closed loop needs the number of requests at once")
    burst = re.search(r"(\d+) requests", str(case.get("load", "")))
    return Load(kind, lengths, at_once or 1.0, float(burst[1]) if burst else 1000.0)  # type: ignore[arg-type]


def split_of_case(case: Mapping[str, Any]) -> Split | None:
    """Prefill and decode workers of a row that has them apart, as in "1 x tp1 dp4 ep4"."""
    parts: list[tuple[int, Deployment]] = []
    for name in ("prefill", "decode"):
        found = _WORKERS.match(str(case.get(name) or ""))
        if found is None:
            return None
        count, tp, dp, ep = (int(one) if one else 1 for one in found.groups())
        parts.append((count, deployment_of_case(case, Layout(tp, 1, ep, dp))))
    return Split(parts[0][1], parts[0][0], parts[1][1], parts[1][0])


def predict_case(case: Mapping[str, Any], fitted: Fitted) -> Prediction:
    """Figures of a row.

    Raises
    ------
    ConfigError
        As ``deployment_of_case`` and ``load_of_case``.
    """
    load = load_of_case(case)
    split = split_of_case(case) if load.kind == "closed_loop_pd_disagg" else None
    one = split.decode if split else deployment_of_case(case)
    return predicted(one, load, fitted, split=split)


def row(case: Mapping[str, Any], fitted: Fitted, *, baseline: bool = False) -> dict[str, Any]:
    """Plain values of one case, ``id`` first: point and ``[low, high]`` of an 80 % interval; null is not known.

    A case that cannot be told has nulls and says why in ``reason``.
    """
    names = ("output_tok_s", "ttft_ms", "tpot_ms")
    try:
        found = predict_case(case, fitted)
    except ConfigError as error:
        return {"id": case.get("id"), **dict.fromkeys(names), "interval": dict.fromkeys(names), "unknown": [str(error)],
                "reason": str(error)}  # fmt: skip
    figures = (found.output_tokens_per_s, _ms(found.ttft_s), _ms(found.tpot_s))
    told: dict[str, Any] = {
        "id": case["id"],
        **{name: None if one is None else _short(one.point) for name, one in zip(names, figures, strict=True)},
        "interval": {
            name: None if one is None else [_short(one.low), _short(one.high)]
            for name, one in zip(names, figures, strict=True)
        },
        "running": _short(found.running),
        "unknown": list(found.unknown),
    }
    return {**told, "baseline": _plain(case)} if baseline else told


def _plain(case: Mapping[str, Any]) -> dict[str, float | None]:
    """The plain roofline with one efficiency, for comparison; it has no form for workers apart."""
    if case["kind"] == "closed_loop_pd_disagg":
        return {"output_tok_s": None, "ttft_ms": None, "tpot_ms": None}
    found = speed(deployment_of_case(case), PLAIN, load_of_case(case))
    ttft, tpot = (None, None) if case["kind"] == "max_throughput" else (found.ttft_s, found.tpot_s)
    return {
        "output_tok_s": _short(found.output_tokens_per_s),
        "ttft_ms": None if ttft is None else _short(ttft * 1e3), "tpot_ms": None if tpot is None else _short(tpot * 1e3),
    }  # fmt: skip


def _ms(one: Estimate | None) -> Estimate | None:
    return None if one is None else one.scaled(1e3)


def _short(value: float) -> float:
    return float(f"{value:.5g}")
