"""The sentence in which people ask: "Qwen2.5-72B on H100, chat, 20 req/s, 1.2k in / 300 out, TTFT 500 ms, $8k a month".

Patterns, each with what it means, taken from the text one after the other; what no pattern took is handed back as not
understood. English, and Chinese numbers, units and words where they are unambiguous. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_SCALE: Final = {
    "k": 1e3, "thousand": 1e3, "千": 1e3, "m": 1e6, "million": 1e6, "百万": 1e6, "万": 1e4, "b": 1e9, "billion": 1e9,
    "亿": 1e8, "": 1.0,
}  # fmt: skip
_PERIOD_S: Final = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "秒": 1.0, "min": 60.0, "minute": 60.0, "分钟": 60.0, "h": 3600.0, "hr": 3600.0,
    "hour": 3600.0, "小时": 3600.0, "day": 86400.0, "d": 86400.0, "天": 86400.0, "日": 86400.0,
}  # fmt: skip
_MONTHS: Final = {
    "month": 1.0,
    "mo": 1.0,
    "月": 1.0,
    "year": 1 / 12,
    "yr": 1 / 12,
    "年": 1 / 12,
    "day": 30.4375,
    "天": 30.4375,
}
_SECONDS: Final = {
    "ms": 1e-3,
    "毫秒": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "秒": 1.0,
}

_N: Final = r"(\d[\d,]*(?:\.\d+)?)\s*(k(?![a-z])|m(?![a-z])|b(?![a-z])|thousand|million|billion|百万|千|万|亿)?"
_PER: Final = r"\s*(?:/|per|an|a|each|every|每)\s*"
_TIME: Final = r"(s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|d|秒|分钟|小时|天|日)(?![a-z])"
_MONEY: Final = r"(?:us\$|usd|\$)"
_AFTER: Final = r"(?:usd|us dollars?|dollars?|bucks|美元|美金|刀)"
_SPAN: Final = r"(month|mo|year|yr|day|月|年|天)(?![a-z])"
_LIMIT: Final = (
    r"\s*(?:target|latency|延迟)?\s*(?:<=?|≤|=|:|:|under|below|within|of|at most|up to|不超过|小于|低于|在)?\s*"
)
_UNIT: Final = r"\s*(ms|毫秒|secs?|seconds?|s|秒)(?![a-z])"
_ASKS: Final = r"(?:req(?:uest)?s?|queries|query|calls?|messages?|prompts?|次?请求|次调用|次)"
_QUANTILE: Final = r"(?:p(50|90|95|99(?:\.9)?)\s*)?"


@dataclass(frozen=True, slots=True)
class Sentence:
    """What a sentence said: ``told`` by name, ``heard`` the pieces with their meaning, ``left`` what was not understood.

    Names: model, gpus, gpu_count, most_gpus, engine, engine_version, quantization, kv_cache_dtype, tp, pp, form,
    requests_per_s, requests_per_day, tokens_per_day, output_tokens_per_s, concurrency, users, input_tokens,
    output_tokens, shared_ratio, ttft_s, tpot_s, e2e_s, objective, max_model_len, budget_usd_per_month, price, regions.
    """

    told: dict[str, Any] = field(default_factory=dict)
    heard: tuple[tuple[str, str], ...] = ()
    left: tuple[str, ...] = ()


@dataclass(slots=True)
class _Text:
    """The text that is left, and what was taken from it."""

    text: str
    told: dict[str, Any] = field(default_factory=dict)
    heard: list[tuple[str, str]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def take(self, pattern: str, meaning: Callable[[re.Match[str]], dict[str, Any]]) -> None:
        """Take every match; a second word on the same thing that says otherwise is left, not dropped."""
        while found := re.search(pattern, self.text, re.IGNORECASE):
            told, piece = meaning(found), re.sub(r"^[\s,;、]+|[\s,;、]+$", "", found[0])
            clash = [name for name, value in told.items() if self.told.get(name, value) != value]
            if clash:
                self.left.append(f"{piece} ({', '.join(clash)}: told twice, {self.told[clash[0]]} is taken)")
            else:
                self.told |= told
                self.heard.append((piece, ", ".join(f"{name} {_shown(value)}" for name, value in told.items())))
            self.cut(found)

    def cut(self, found: re.Match[str]) -> None:
        """Take a match out of the text."""
        self.text = f"{self.text[: found.start()]} ¦ {self.text[found.end() :]}"


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else ", ".join(value) if isinstance(value, tuple) else str(value)


def _number(digits: str, scale: str | None) -> float:
    return float(digits.replace(",", "")) * _SCALE[(scale or "").lower()]


def _context(digits: str, scale: str | None) -> int:
    """A length of context: 32k is 32,768 to those who say it, and so is every power of two."""
    tokens = round(_number(digits, scale))
    thousands, rest = divmod(tokens, 1000)
    return thousands * 1024 if scale and not rest and thousands & (thousands - 1) == 0 else tokens


def _plural(unit: str) -> str:
    unit = unit.lower()
    return unit if unit in ("s", "ms") else unit.rstrip("s")


def understood(text: str, *, models: Sequence[str] = (), cards: Sequence[str] = ()) -> Sentence:
    """Read a sentence.

    Parameters
    ----------
    text
        The sentence, in any order of its parts.
    models, cards
        Names of the catalogue. Something that looks like a model and is none of them is told as ``model`` all the same,
        so that whoever resolves it says what is near.

    Examples
    --------
    >>> understood("chat, 20 req/s, 1.2k in / 300 out, TTFT 500 ms").told["input_tokens"]
    1200.0
    """
    work = _Text(re.sub(r"\s+", " ", text.replace(",", ",").replace("×", " x ")))
    _take_model(work, models)
    _take_cards(work, cards)
    for pattern, meaning in _PATTERNS:
        work.take(pattern, meaning)
    return Sentence(work.told, tuple(work.heard), (*work.left, *_rest(work.text)))


# -- names


def _flexible(name: str) -> str:
    """A pattern for a name whose words may be joined by a space, a dash or nothing."""
    words = [re.escape(word) for word in re.split(r"[\s_-]+", name) if word]
    return r"(?<![a-z0-9.])" + r"[\s_-]*".join(words) + r"(?![a-z0-9]|\.\d)"


_TAIL: Final = re.compile(r"[-_](instruct|chat|hf|it|base|bf16|v0\.\d|\d{4}|thinking)$", re.IGNORECASE)


def _short_names(name: str) -> Iterator[str]:
    """A catalogue name as people shorten it: without its maker, and without -Instruct and the like."""
    bare = name.partition("/")[2] or name
    yield name
    yield bare
    while (shorter := _TAIL.sub("", bare)) != bare:
        yield shorter
        bare = shorter
    yield re.sub(r"^Meta-", "", bare)


def _take_model(work: _Text, models: Sequence[str]) -> None:
    path = re.search(r"(?:^|\s)((?:\.{0,2}/|~/)\S+|\S+\.(?:gguf|json))(?=[\s,]|$)", work.text)
    if path:
        work.told["model"] = path[1].rstrip(",;")
        work.heard.append((path[1], f"model {path[1]}"))
        work.cut(path)
        return
    names = [(short, name) for name in models for short in dict.fromkeys(_short_names(name))]
    found = [(m, short, name) for short, name in names if (m := re.search(_flexible(short), work.text, re.IGNORECASE))]
    if found:
        # the longest piece of text; of several names for it the plainest one
        best = min(found, key=lambda one: (-len(one[0][0]), len(one[2]), one[2]))
        tail = re.match(r"[\s-](instruct|chat|it)\b", work.text[best[0].end() :], re.IGNORECASE)
        work.told["model"] = best[2]
        work.heard.append((best[0][0] + (tail[0] if tail else ""), f"model {best[2]}"))
        if tail:
            work.text = work.text[: best[0].end()] + work.text[best[0].end() + tail.end() :]
        work.cut(best[0])
        return
    like = re.search(
        r"(?<![\w.])[a-z][\w.]*(?:[\s/-][\w.]+)*?-?\s?\d+(?:\.\d+)?b(?![a-z0-9])(?:-[\w.-]+)?", work.text, re.IGNORECASE
    )
    if like:
        work.told["model"] = like[0]
        work.heard.append((like[0], f"model {like[0]}, no name of the catalogue"))
        work.cut(like)


def _card_words(cards: Sequence[str]) -> list[str]:
    """Ways to name cards, longest first: full names, without memory, and the stem alone."""
    words: set[str] = set()
    for name in cards:
        bare = re.sub(r"\s*\(.*?\)", "", name)
        without = re.sub(r"-\d+GB$", "", bare)
        words |= {
            bare,
            without,
            re.split(r"-(?:SXM|PCIe|NVL|SE)", without)[0],
            re.sub(r"^(?:RTX|Ascend|Hygon)-", "", without),
        }
        words |= {w.replace("-SXM4", "").replace("-SXM", "") for w in (bare, without)}
    return sorted((w for w in words if len(w) > 1), key=lambda w: (-len(w), w))


def _take_cards(work: _Text, cards: Sequence[str]) -> None:
    names = "|".join(r"[\s_-]*".join(re.escape(p) for p in re.split(r"[\s_-]+", word)) for word in _card_words(cards))
    if not names:
        return
    count = r"(?:(?<![\d.])(\d{1,4})\s*(?:x|\*|张|块|片|卡|个|cards? of|gpus? of)?\s*)?"
    pattern = rf"{count}(?:nvidia|amd|tesla|huawei|昇腾|geforce)?\s*(?<![a-z0-9.])({names})((?:\s*-?\s*\d+\s*gi?b)?)(?![a-z0-9]|\.\d)(?:\s*(?:gpus?|cards?|显卡|卡))?(?:\s*x\s*(\d{{1,3}})(?![\d.]))?"
    found = list(re.finditer(pattern, work.text, re.IGNORECASE))
    gpus = tuple(dict.fromkeys(re.sub(r"\s+", " ", f"{one[2]}{one[3]}").strip() for one in found))
    counts = {int(one[1] or one[4]) for one in found if one[1] or one[4]}
    if not gpus:
        return
    work.told["gpus"] = gpus
    if len(counts) == 1:
        work.told["gpu_count"] = counts.pop()
    elif counts:
        work.left.append(
            f"{' and '.join(str(one) for one in sorted(counts))} cards: several kinds with counts of their own"
        )
    for one in reversed(found):
        what = f"{one[1] or one[4]} cards {one[2]}{one[3]}" if one[1] or one[4] else f"card {one[2]}{one[3]}"
        work.heard.append((one[0].strip(" ,"), what))
        work.cut(one)


# -- numbers


def _rate(count: float, period: str) -> dict[str, Any]:
    seconds = _PERIOD_S[_plural(period)]
    return {"requests_per_day": count} if seconds == 86400.0 else {"requests_per_s": count / seconds}


def _latency(name: str, value: float, unit: str, quantile: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {name: value * _SECONDS[unit.lower()]}
    return told | ({"objective": float(quantile) / 100} if quantile else {})


def _latencies(name: str, words: str) -> Iterator[tuple[str, Callable[[re.Match[str]], dict[str, Any]]]]:
    """Target after the word, and before it; the quantile on either side of the word."""
    yield (
        rf"{_QUANTILE}(?<![a-z])(?:{words})\s*(?:\(?p(50|90|95|99(?:\.9)?)\)?)?{_LIMIT}{_N}{_UNIT}",
        lambda m: _latency(name, _number(m[3], m[4]), m[5], m[1] or m[2]),
    )
    yield rf"{_N}{_UNIT}\s*{_QUANTILE}(?:{words})(?![a-z])", lambda m: _latency(name, _number(m[1], m[2]), m[3], m[4])


def _flag(pattern: str, **told: Any) -> tuple[str, Callable[[re.Match[str]], dict[str, Any]]]:
    return pattern, lambda _: dict(told)


_Pattern = tuple[str, Callable[[re.Match[str]], dict[str, Any]]]

_MONEY_PATTERNS: Final[tuple[_Pattern, ...]] = (
    (rf"{_MONEY}\s*{_N}{_PER}(?:gpu[\s-]*)?(?:h|hr|hour|小时)(?![a-z])", lambda m: {"price": f"{_number(m[1], m[2]):g}"}),
    (rf"{_N}\s*{_AFTER}{_PER}(?:gpu|卡)?[\s-]*(?:h|hr|hour|小时)(?![a-z])", lambda m: {"price": f"{_number(m[1], m[2]):g}"}),
    (rf"(?:budget|预算)?\s*(?:of|:|:)?\s*{_MONEY}\s*{_N}(?:{_PER}|\s+)?{_SPAN}", lambda m: {"budget_usd_per_month": _number(m[1], m[2]) * _MONTHS[m[3].lower()]}),
    (rf"(?:budget|预算)?\s*(?:of|:|:)?\s*{_N}\s*{_AFTER}(?:{_PER}|\s*)?{_SPAN}", lambda m: {"budget_usd_per_month": _number(m[1], m[2]) * _MONTHS[m[3].lower()]}),
    (rf"(?:每|月)?\s*(月|年)\s*(?:预算)?\s*(?:不超过|以内|:|:)?\s*{_N}\s*{_AFTER}", lambda m: {"budget_usd_per_month": _number(m[2], m[3]) * _MONTHS[m[1]]}),
    (rf"(?:monthly budget|budget|预算)\s*(?:of|:|:|不超过)?\s*(?:{_MONEY}\s*{_N}|{_N}\s*{_AFTER})", lambda m: {"budget_usd_per_month": _number(m[1] or m[3], m[2] or m[4])}),
)  # fmt: skip

_LOAD_PATTERNS: Final[tuple[_Pattern, ...]] = (
    (rf"{_N}\s*(?:output\s*)?(?:tok(?:en)?s?)\s*/\s*s(?:ec)?(?![a-z])\s*(?:/|per|a|each)\s*user|{_N}\s*(?:tok(?:en)?s?)\s*(?:/|per)\s*s(?:ec(?:ond)?)?\s*(?:/|per)\s*(?:user|request)", lambda m: {"tpot_s": 1 / _number(m[1] or m[3], m[2] or m[4])}),
    (rf"{_N}\s*(?:output\s*)?(?:tok(?:en)?s?){_PER}(?:s|sec|second)(?![a-z])", lambda m: {"output_tokens_per_s": _number(m[1], m[2])}),
    (rf"{_N}\s*(?:个)?\s*(?:tok(?:en)?s?){_PER}(?:day|天|日)(?![a-z])", lambda m: {"tokens_per_day": _number(m[1], m[2])}),
    (rf"每(?:天|日)\s*{_N}\s*(?:个)?\s*tok(?:en)?s?", lambda m: {"tokens_per_day": _number(m[1], m[2])}),
    (rf"{_N}\s*{_ASKS}{_PER}{_TIME}", lambda m: _rate(_number(m[1], m[2]), m[3])),
    (rf"{_N}\s*(?:rps|qps|r/s|q/s)(?![a-z])", lambda m: {"requests_per_s": _number(m[1], m[2])}),
    (rf"(?:rps|qps)\s*(?:of|=|:|:)?\s*{_N}", lambda m: {"requests_per_s": _number(m[1], m[2])}),
    (rf"每(秒|分钟|小时|天|日)\s*(?:约|大约)?\s*{_N}\s*(?:个|条|次)?\s*(?:请求|调用|查询|次)?", lambda m: _rate(_number(m[2], m[3]), m[1])),
    (rf"{_N}\s*(?:concurrent|simultaneous|parallel)\s*(?:users?|requests?|streams?|chats?|sessions?)?|{_N}\s*(?:users?|requests?|chats?)\s*at once|(?:concurrency|并发)\s*(?:of|=|:|:|数)?\s*{_N}|{_N}\s*(?:路|个)?\s*并发", lambda m: {"concurrency": _number(*_pair(m))}),
    (rf"{_N}\s*(?:users?(?![a-z])|个?用户)", lambda m: {"users": _number(m[1], m[2])}),
    (rf"{_N}\s*(?:tok(?:en)?s?)?\s*(?:in|input|prompt)\s*(?:/|,|and|\+|→|->)?\s*{_N}\s*(?:tok(?:en)?s?)?\s*(?:out|output|generated)(?:put)?(?![a-z])", lambda m: {"input_tokens": _number(m[1], m[2]), "output_tokens": _number(m[3], m[4])}),
    (rf"(?:isl|input(?: tokens)?|prompts?(?: of)?|输入)\s*(?:of|=|:|:|长度|约)?\s*{_N}\s*(?:个)?\s*(?:tok(?:en)?s?)?", lambda m: {"input_tokens": _number(m[1], m[2])}),
    (rf"(?:osl|output(?: tokens)?|answers?(?: of)?|输出)\s*(?:of|=|:|:|长度|约)?\s*{_N}\s*(?:个)?\s*(?:tok(?:en)?s?)?(?!\s*(?:ms|s|sec|毫秒|秒)(?![a-z]))", lambda m: {"output_tokens": _number(m[1], m[2])}),
    (rf"{_N}\s*(?:tok(?:en)?s?\s*)?(?:in|input|prompt)(?:\s*tok(?:en)?s?)?(?![a-z])", lambda m: {"input_tokens": _number(m[1], m[2])}),
    (rf"{_N}\s*(?:tok(?:en)?s?\s*)?(?:out|output)(?:\s*tok(?:en)?s?)?(?![a-z])", lambda m: {"output_tokens": _number(m[1], m[2])}),
    (rf"(?<![\d.]){_N}\s*/\s*{_N}\s*tok(?:en)?s?", lambda m: {"input_tokens": _number(m[1], m[2]), "output_tokens": _number(m[3], m[4])}),
    (r"(\d+(?:\.\d+)?)\s*%\s*(?:of (?:the )?(?:input|prompt)s?\s*)?(?:is\s*)?(?:shared|cached|prefix hits?|shared prefix|cache hits?|前缀|命中)(?:\s*prefix(?:es)?)?", lambda m: {"shared_ratio": float(m[1]) / 100}),
)  # fmt: skip


def _pair(found: re.Match[str]) -> tuple[str, str | None]:
    """The first pair of digits and scale among alternatives."""
    at = next(i for i in range(1, (found.lastindex or 1) + 1, 2) if found[i] is not None)
    return found[at], found[at + 1]


_TARGET_PATTERNS: Final[tuple[_Pattern, ...]] = (
    *_latencies("ttft_s", r"ttft|time to (?:the )?first token|first[- ]token(?: latency)?|首\s*(?:字|token|包)(?:延迟|时间)?"),
    *_latencies("tpot_s", r"tpot|itl|time per output token|inter[- ]token(?: latency)?|每\s*(?:字|token)(?:延迟|时间)?"),
    *_latencies("e2e_s", r"e2e|end[- ]to[- ]end|total latency|latency|answers?(?: complete)?(?= (?:within|under|in|below))|端到端(?:延迟)?|总延迟"),
    (r"(\d{2}(?:\.\d+)?)\s*%\s*(?:of (?:the |all )?requests|attainment|slo|good|达标(?:率)?|的请求)", lambda m: {"objective": float(m[1]) / 100}),
    (r"(?:slo|attainment|objective|达标率)\s*(?:of|=|:|:)?\s*(\d{2}(?:\.\d+)?)\s*%", lambda m: {"objective": float(m[1]) / 100}),
    (r"(?<![a-z0-9])p(50|90|95|99(?:\.9)?)(?![\d.])", lambda m: {"objective": float(m[1]) / 100}),
    (rf"{_N}\s*(?:tok(?:en)?s?)?\s*(?:max(?:imum)?\s*)?(?:context|ctx|max[_ -]?model[_ -]?len|上下文)(?:\s*(?:length|window|长度))?", lambda m: {"max_model_len": _context(m[1], m[2])}),
    (rf"(?:context|ctx|max[_ -]?model[_ -]?len|上下文)(?:\s*(?:length|window|长度))?\s*(?:of|=|:|:)?\s*{_N}", lambda m: {"max_model_len": _context(m[1], m[2])}),
)  # fmt: skip

_ENGINES: Final[Mapping[str, str]] = {
    "tensorrtllm": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
    "llamacpp": "llama.cpp",
    "vllmascend": "vllm-ascend",
}
_WEIGHTS: Final[Mapping[str, str]] = {"fp16": "bf16", "w8a8": "int8", "fp4": "nvfp4", "awq": "awq-int4", "gptq": "gptq-int4", "int4": "awq-int4",
                   "w4a16": "gptq-int4", "q4_k_m": "gguf-q4_k_m", "q8_0": "gguf-q8_0"}  # fmt: skip

_WORD_PATTERNS: Final[tuple[_Pattern, ...]] = (
    (r"(?:at most|max(?:imum)?|up to|no more than|最多)\s*(\d{1,5})\s*(?:gpus?|cards?|张|块|卡)(?:卡)?", lambda m: {"most_gpus": int(m[1])}),
    (r"(?<![\d.])(\d{1,5})\s*(?:gpus?|cards?|张卡|块卡|张|卡)(?![a-z])", lambda m: {"gpu_count": int(m[1])}),
    (r"(?<![a-z])tp\s*[=:]?\s*(\d{1,3})(?![\d.])", lambda m: {"tp": int(m[1])}),
    (r"(?<![a-z])pp\s*[=:]?\s*(\d{1,3})(?![\d.])", lambda m: {"pp": int(m[1])}),
    (r"(?<![a-z])(vllm-ascend|vllm|sglang|tensorrt[- ]?llm|trt[- ]?llm|llama\.?cpp|lmdeploy)(?:\s*v?(\d+(?:\.\d+)+))?(?![a-z])", lambda m: {"engine": _ENGINES.get(re.sub(r"[\s.-]", "", m[1].lower()), m[1].lower()), **({"engine_version": m[2]} if m[2] else {})}),
    (r"(?:fp8|int8|q8_0)\s*kv(?:[- ]cache)?|kv(?:[- ]cache)?\s*(?:in\s*)?(?:fp8|int8)", lambda _: {"kv_cache_dtype": "fp8"}),
    (r"(?<![a-z0-9])(fp8|bf16|fp16|int8|w8a8|nvfp4|fp4|mxfp4|awq|gptq|int4|w4a16|q4_k_m|q8_0)(?![a-z0-9])(?:\s*(?:weights?|quanti[sz]ed|量化))?", lambda m: {"quantization": _WEIGHTS.get(m[1].lower(), m[1].lower())}),
    _flag(r"(?<![\d.])4[- ]bit(?:\s*weights)?", four_bit=True), _flag(r"(?<![\d.])16[- ]bit(?:\s*weights)?", quantization="bf16"),
    _flag(r"spot(?:\s*(?:prices?|instances?))?(?![a-z])|竞价", price="spot"), _flag(r"reserved(?:\s*(?:prices?|instances?))?|包年|预留", price="reserved"),
    _flag(r"on[- ]demand(?:\s*prices?)?|按需", price="on-demand"),
    (r"(?:in|region)\s+((?:us|eu|ap|ca|me|sa|af)-[a-z]+-?\d)(?![a-z0-9])", lambda m: {"regions": (m[1].lower(),)}),
    _flag(r"code[- ]completion|autocomplete|代码补全", form="code-completion"), _flag(r"code[- ]generation|coding|代码(?:生成)?", form="code-generation"),
    _flag(r"(?<![a-z])rag(?![a-z])|documents?\s*q&?a|retrieval(?:-augmented generation)?|检索(?:增强)?|知识库(?:问答)?", form="rag"),
    _flag(r"chat(?:bots?)?(?![a-z])|assistant|聊天|对话|客服", form="chat"), _flag(r"agents?(?![a-z])|agentic|智能体", form="agent"),
    _flag(r"(?<![a-z])(?:offline\s*)?batch(?![a-z])|批处理|离线", form="batch"), _flag(r"voice|speech|语音", form="voice"),
)  # fmt: skip
_PATTERNS: Final = (*_MONEY_PATTERNS, *_TARGET_PATTERNS, *_LOAD_PATTERNS, *_WORD_PATTERNS)

#: words without a meaning of their own here
_SILENT: Final = frozenset(
    re.split(r"\s+", """a an the on with for and at of to in per using use used please i we need want serve serving deploy deployment run running
    host hosting about around roughly approximately each or my our is are be that which is what it how many gpus gpu model tokens
    token requests mean average avg budget under within target targets workload traffic load latency should must can by from
    would will should month size plan inference llm 的 用 在 上 跑 需要 大约 约 部署 服务 模型 推理 我 要 和 与 个 请 预算 左右 以内 平均
    卡 延迟 每 使用 显卡 请求""")
)  # fmt: skip


def _rest(text: str) -> Iterator[str]:
    """Runs of words that mean something and were not understood."""
    for piece in re.split(r"[¦,;;、。!?!?()()]+", text):
        words = [w for w in re.split(r"\s+", piece.strip()) if w]
        kept = [
            w for w in words if w.lower().strip(".:~-/+&|=<>≤\"'“”") not in _SILENT and re.search(r"\w|\$|€|£|¥", w)
        ]
        if kept:
            yield " ".join(kept)
