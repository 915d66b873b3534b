"""The situations: what is wrong with each, what would mend it, and those where nothing should be done."""

from dataclasses import replace

from tests.bench.recommend_cases import Situation, Traffic
from tests.bench.recommend_engine import Setup

_8B = Setup()
_32B = Setup(model="Qwen3-32B")
_70B = Setup(model="Llama-3.3-70B-Instruct", tp=4)
_8Q = Setup(weights="fp8", kv="fp8")  # nothing left to quantise
_CHAT = Traffic()
_RAG = Traffic(3000, 150, 0.4)
_LONG = Traffic(6000, 120, 0.35)
_SHARED = Traffic(2600, 120, 0.5, prefixes=12, shared=0.75)
_MANY = Traffic(3600, 100, 0.4, prefixes=110, shared=0.8, count=900)


def _two(case: Situation, seeds: tuple[int, ...] = (11, 12)) -> list[Situation]:
    return [replace(case, name=f"{case.name} ({seed})", seed=seed) for seed in seeds]


#: with a change that is right; which one it is, the search of the world tells
CHANGES: tuple[Situation, ...] = (
    *_two(Situation("max_num_seqs too low", replace(_8Q, seqs=4), {"max_num_seqs": 64}, load=0.7)),
    Situation("max_num_seqs too low, large model", replace(_70B, seqs=6), {"max_num_seqs": 64}, load=0.7, tpot=2.5),
    *_two(
        Situation(
            "max_num_seqs too high",
            replace(_8B, seqs=1024),
            {"max_num_seqs": 32},
            Traffic(1500, 250, burst=4),
            load=0.9,
            ttft=12.0,
            tpot=1.5,
        ),
        (13, 14, 15),
    ),
    *_two(
        Situation(
            "too few tokens a step",
            replace(_8B, batched=256),
            {"max_num_batched_tokens": 8192},
            _RAG,
            load=0.75,
            tpot=2.5,
        )
    ),
    *_two(Situation("prefix caching off", replace(_8B, prefix=False), {"prefix_caching": True}, _SHARED, load=0.75)),
    Situation(
        "prefix caching off, large model",
        replace(_70B, prefix=False),
        {"prefix_caching": True},
        _SHARED,
        load=0.7,
        seed=16,
    ),
    *_two(
        Situation(
            "prefixes spread over replicas",
            replace(_8B, replicas=4, routing="round_robin"),
            {"routing": "prefix_aware"},
            _MANY,
            load=0.8,
            ttft=1.5,
        )
    ),
    *_two(
        Situation("cache too small", _32B, {"kv_dtype": "fp8"}, Traffic(2500, 350, 0.4), load=0.75, ttft=2.5, tpot=3.0)
    ),
    *_two(Situation("weights too slow to read", _32B, {"quantisation": "fp8"}, _CHAT, load=0.6, tpot=1.65), (17, 18)),
    *_two(
        Situation(
            "speculation hurts",
            replace(_8B, drafts=5),
            {"speculative_tokens": 0},
            Traffic(500, 300),
            load=0.85,
            acceptance=0.12,
        )
    ),
    *_two(
        Situation(
            "tensor parallel too large",
            replace(_8B, gpu="L40S-48GB", tp=4),
            {"tp": 1, "replicas": 4},
            _RAG,
            load=0.7,
            ttft=3.0,
            tpot=3.2,
        ),
        (19, 20),
    ),
    *_two(Situation("too many replicas", replace(_8B, replicas=6), {"replicas": 2}, _CHAT, saves=True, load=0.8)),
    Situation(
        "too many replicas, large model", replace(_70B, replicas=4), {"replicas": 2}, _CHAT, saves=True, load=0.45
    ),
    *_two(Situation("too few replicas", _8Q, {"replicas": 2}, _CHAT, load=0.8, objective=0.95)),
    Situation("too few replicas, long prompts", _8Q, {"replicas": 3}, _LONG, load=0.8, objective=0.95, tpot=4.0),
    *_two(
        Situation(
            "same replicas by night",
            replace(_8B, replicas=5),
            {"replicas": 5},
            Traffic(900, 200, daily=True),
            saves=True,
            load=0.65,
        )
    ),
    *_two(
        Situation(
            "most requests are easy", replace(_70B, replicas=4), {}, _CHAT, saves=True, load=0.8, small=0.6, tpot=2.5
        )
    ),
    *_two(
        Situation(
            "one tenant floods",
            _8Q,
            {"tenant": "flood", "refused_ratio": 0.24, "tenant_share": 0.62},
            Traffic(flood=0.62),
            load=0.95,
            objective=0.68,
        )
    ),
    *_two(Situation("more than can be served", _8Q, {"admitted_ratio": 0.75}, _CHAT, load=0.9, objective=0.65)),
    *_two(
        Situation(
            "slots as long as a book",
            replace(_8B, gpu="L40S-48GB", context=32_768, seqs=4, prefix=False),
            {"max_model_len": 4096, "max_num_seqs": 32},
            Traffic(600, 200),
            load=0.7,
            engine="llama.cpp",
            tpot=2.5,
        )
    ),
    *_two(
        Situation(
            "cards too dear",
            replace(_8B, replicas=2),
            {"gpu": "L40S-48GB"},
            Traffic(500, 150),
            saves=True,
            load=0.4,
            ttft=3.0,
            tpot=4.0,
            price=5.5,
            cards={"L40S-48GB": 0.9},
        )
    ),
    Situation(
        "cards too dear, large model",
        _70B,
        {"gpu": "A100-SXM4-80GB"},
        _CHAT,
        saves=True,
        load=0.5,
        ttft=3.0,
        tpot=2.5,
        price=6.0,
        cards={"A100-SXM4-80GB": 1.2},
        seed=21,
    ),
    *_two(
        Situation(
            "prompts stall tokens",
            replace(_8B, replicas=4),
            {"prefill_replicas": 2, "decode_replicas": 2},
            Traffic(7000, 150, 0.3),
            load=0.8,
            ttft=4.0,
            tpot=1.35,
        )
    ),
    *_two(
        Situation(
            "prompts twice as long as needed",
            _8B,
            {"input_spare_ratio": 0.5},
            _LONG,
            load=0.8,
            spare_input=0.5,
            tpot=3.0,
        )
    ),
    *_two(
        Situation(
            "prompts run alone",
            replace(_8B, mixed=False),
            {"chunked_prefill": True},
            Traffic(2500, 60, 0.5),
            load=0.75,
            tpot=4.0,
        )
    ),
)

#: where abstaining, or staying as it is, is right
STAY: tuple[Situation, ...] = (
    Situation("too few requests", replace(_8B, seqs=4), load=0.9, hides=("requests",)),
    Situation("off the scale", replace(_8B, seqs=4), load=1.2, hides=("scale",)),
    Situation("no target", _8B, load=0.7, hides=("slo",)),
    Situation("something else limits it", _8B, load=0.7, hides=("unlike",)),
    *_two(Situation("healthy and lean", _8B, load=0.75, lean=True)),
    Situation("healthy and lean, two replicas", replace(_8B, replicas=2), load=0.8, seed=23, lean=True),
    Situation("healthy, nearly as cheap elsewhere", _8B, load=0.7, cards={"H200-SXM-141GB": 2.5}, lean=True),
    Situation(
        "many replicas, no price",
        replace(_8B, replicas=2),
        load=0.8,
        hides=("price",),
        cards={"L40S-48GB": 0.9},
        lean=True,
    ),
    Situation("neither model nor card is known", replace(_8B, tp=2), load=0.7, hides=("model",), lean=True),
    Situation("another engine might be faster", _8B, traffic=_SHARED, load=0.7, lean=True),
    Situation("requests fail, and are not late", _8B, load=0.6, hides=("failing",)),
    Situation("an API is cheaper on paper", _8B, load=0.6, hides=("api",), lean=True),
    Situation("nobody judged the small model", replace(_70B, replicas=1), load=0.7, tpot=2.5, lean=True),
)
