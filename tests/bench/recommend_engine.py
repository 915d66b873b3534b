"""A world that the planner does not share: its own law of a step, its own scheduler, and troubles that nobody models.

The law is the published one (bytes and arithmetic over a card's peaks, with fitted shares of them), and each of its terms
is off by a factor drawn for this world; a change of layout, card or precision is off by another, as wide as measured
changes were. On top: kernels sized for powers of two, a scheduler that lags with what it holds, one tokenizer for
all replicas, jitter of each step and now and then a stall.
"""

import random
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import ceil, exp, log

#: name → parameters, layers, bytes of KV cache a token (16 bit), hidden size; from the models' configurations
MODELS = {
    "Llama-3.1-8B-Instruct": (8.03e9, 32, 131_072, 4096),
    "Qwen3-32B": (32.8e9, 64, 262_144, 5120),
    "Llama-3.3-70B-Instruct": (70.6e9, 80, 327_680, 8192),
}
#: name → bytes/s, dense 16-bit FLOP/s, bytes, gain of fp8 arithmetic (0: none), bytes/s to the next card; data sheets
CARDS = {
    "H100-SXM-80GB": (3.35e12, 989e12, 85.9e9, 2.0, 450e9),
    "H200-SXM-141GB": (4.8e12, 989e12, 151e9, 2.0, 450e9),
    "A100-SXM4-80GB": (2.04e12, 312e12, 85.9e9, 0.0, 300e9),
    "L40S-48GB": (0.864e12, 362e12, 48.3e9, 2.0, 32e9),
}
#: error that 80 % of predictions of such a change stayed below (2,952 measured rows)
CHANGED = {"tp": 0.24, "gpu": 0.24, "precision": 0.28}
Z80, TERM = 1.2816, 0.15


@dataclass(frozen=True)
class Setup:
    """What runs."""

    model: str = "Llama-3.1-8B-Instruct"
    gpu: str = "H100-SXM-80GB"
    tp: int = 1
    weights: str = "bf16"
    kv: str = "auto"
    seqs: int = 256
    batched: int = 8192
    mixed: bool = True
    prefix: bool = True
    drafts: int = 0
    replicas: int = 1
    routing: str = "least_loaded"
    prefillers: int = 0
    admitted: float = 1.0
    tenant_refused: float = 0.0
    trimmed: float = 0.0
    routed: float = 0.0
    by_hour: tuple[int, ...] = ()
    context: int = 0  # tokens that each slot reserves; 0: the cache has pages


@dataclass(frozen=True)
class Request:
    """One request; ``hour`` of the (short) day that it came in."""

    at: float
    inputs: int
    outputs: int
    prefix: int = -1
    shared: int = 0
    tenant: str = "a"
    hour: int = 0


@dataclass(frozen=True)
class Law:
    """Seconds of a step, by what it holds."""

    fixed: float
    running: float
    context: float
    token: float
    square: float
    prompt: float
    room: int


@dataclass
class World:
    """Errors of this world, by term and by change; drawn once by seed."""

    seed: int
    acceptance: float = 0.7
    term: dict[str, float] = field(default_factory=dict)
    change: dict[tuple[str, str], float] = field(default_factory=dict)
    jitter: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        for name in (
            "fixed",
            "layer",
            "weights",
            "kv",
            "flops",
            "link",
            "lag",
            "tokenizer",
            "prompt",
            "transfer",
            "answer",
        ):
            self.term[name] = exp(rng.gauss(0, TERM))
        for kind, values in (("tp", "1248"), ("gpu", tuple(CARDS)), ("precision", ("fp8", "awq"))):
            for value in values:
                self.change[kind, value] = exp(rng.gauss(0, log(1 + CHANGED[kind]) / Z80))
        self.jitter = [exp(rng.gauss(0, 0.05)) + (rng.random() < 3e-4) * 8 for _ in range(4096)]

    def tokens_per_step(self, drafts: int) -> float:
        """Later positions of a draft are accepted less often."""
        total, alive = 1.0, 1.0
        for place in range(drafts):
            alive *= self.acceptance * 0.95**place
            total += alive
        return total

    def law(self, now: Setup, base: Setup) -> Law:
        """The law of a setup; ``base`` is the one whose law is free of errors of change."""
        params, layers, kv_bytes, hidden = MODELS[now.model]
        speed, flops, memory, fp8, link = CARDS[now.gpu]
        t, cards = self.term, now.tp
        each = {"bf16": 2.0, "fp8": 1.0, "awq": 0.55}[now.weights]
        if now.kv == "fp8":
            kv_bytes //= 2
        faster = fp8 if now.weights == "fp8" and fp8 else 1.0
        exchange = 2 * layers * 10e-6 * t["link"] * 2 if cards > 1 else 0.0
        fixed = (1e-3 * t["fixed"] + 1.4e-3 * layers / 60 * t["layer"]
                 + 1.45 * t["weights"] * params * each / (speed * cards) + exchange)  # fmt: skip
        running = 2 * params / (flops * cards * faster) * t["flops"] + 4e-5 * t["lag"]
        token = 1.29 * t["flops"] * 2 * params / (flops * cards * faster)
        if cards > 1:
            token += 2 * layers * hidden * 2 / link * t["link"]
        square = 4 * layers * hidden / (flops * cards) * t["flops"]
        off = 1.0
        for kind, was, is_now in (
            ("tp", base.tp, now.tp),
            ("gpu", base.gpu, now.gpu),
            ("precision", base.weights, now.weights),
        ):
            if was != is_now:
                off *= self.change.get((kind, str(is_now)), 1.0)
        room = (0.9 * memory - 3e9) * cards - params * each
        tokens = int(max(0.0, room) / kv_bytes)
        context = 1.26 * t["kv"] * kv_bytes / (speed * cards) * (1.06 if now.kv == "fp8" else 1.0)
        return Law(fixed * off, running * off, context * off, token * off, square * off, 1e-3 * t["prompt"], tokens)


class Engine:
    """One replica, step by step."""

    def __init__(
        self, world: World, law: Law, now: Setup, requests: list[Request], phase: int, *, decoding: bool = False
    ) -> None:
        self.world, self.law, self.rules, self.requests, self.decoding = world, law, now, requests, decoding
        self.now, self.steps, self.jitters = 0.0, 0, phase * 997
        self.waiting: deque[int] = deque()
        self.prefilling: list[list[int]] = []
        self.running: OrderedDict[int, int] = OrderedDict()  # request → its last step
        self.ends: dict[int, list[int]] = {}
        self.context = self.used = 0.0
        self.held: dict[int, float] = {}
        self.done: dict[int, float] = {}
        self.joined: dict[int, int] = {}
        self.start: dict[int, float] = {}
        self.cache: OrderedDict[int, int] = OrderedDict()
        self.grow = world.tokens_per_step(now.drafts)
        self.first: dict[int, float] = {}
        self.last: dict[int, float] = {}
        self.cached: dict[int, int] = {}
        self.preempted = 0
        self.busy = self.kv_time = self.run_time = self.wait_time = 0.0
        self.peak = 0

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.prefilling) + len(self.running)

    def push(self, request: int, at: float) -> None:
        if not self.load:
            self.now = max(self.now, at)
        self.waiting.append(request)

    def advance(self, until: float) -> None:
        while self.now < until and self.load:
            self._admit()
            self._step()

    def _admit(self) -> None:
        rules = self.rules
        while self.waiting and len(self.running) + len(self.prefilling) < rules.seqs:
            i = self.waiting[0]
            one = self.requests[i]
            whole = one.inputs + int(self.done.get(i, 0))
            hit = 0
            if rules.prefix and one.prefix >= 0 and one.prefix in self.cache:
                self.cache.move_to_end(one.prefix)
                hit = min(one.shared, whole - 1) // 16 * 16
            need = whole - hit + 16
            if not rules.context and self.used + need > self.law.room and (self.running or self.prefilling):
                return
            self.waiting.popleft()
            self.cached.setdefault(i, hit)
            self.held[i] = whole - hit
            self.used += whole - hit
            self.prefilling.append([i, 1 if self.decoding else whole - hit, hit])

    def _step(self) -> None:
        law, rules, batch = self.law, self.rules, len(self.running)
        tokens, square, ready = 0, 0.0, []
        alone = bool(self.prefilling) and not rules.mixed
        budget = rules.batched - (0 if alone else batch)
        for item in self.prefilling:
            taken = min(item[1], max(16, budget) - tokens)
            if taken <= 0:
                break
            square += taken * (item[2] + taken / 2)
            item[1] -= taken
            item[2] += taken
            tokens += taken
            if not item[1]:
                ready.append(item[0])
        seconds = (
            law.fixed + (0 if self.decoding else law.token * tokens + law.square * square) + law.prompt * len(ready)
        )
        decoding = batch and not alone
        if decoding:
            padded = 1 << (batch - 1).bit_length()  # kernels come in powers of two
            seconds += law.running * padded * (1 + rules.drafts) + law.context * self.context
            if rules.drafts:
                seconds += rules.drafts * 0.06 * law.fixed + 2e-4
        seconds += (1.5e-5 * batch + 5e-7 * min(len(self.waiting), 1000)) * self.world.term["lag"]
        self.jitters += 1
        seconds *= self.world.jitter[self.jitters % 4096]
        self.now += seconds
        self.busy += seconds
        self.kv_time += seconds * self.used
        self.run_time += seconds * (batch + len(self.prefilling))
        self.wait_time += seconds * len(self.waiting)
        self.peak = max(self.peak, batch + len(self.prefilling))
        if decoding:
            self._moved(batch)
        del self.prefilling[: len(ready)]
        for i in ready:
            self._join(i)

    def _moved(self, batch: int) -> None:
        self.steps += 1
        self.context += batch * self.grow
        self.used += batch * self.grow
        for i in self.ends.pop(self.steps, ()):
            if self.running.get(i) == self.steps:
                self._leave(i)
                self.last[i] = self.now
        while not self.rules.context and self.used > self.law.room and len(self.running) > 1:
            i = next(reversed(self.running))
            self.done[i] = self.done.get(i, 0) + (self.steps - self.joined[i]) * self.grow
            self._leave(i)
            self.waiting.appendleft(i)
            self.preempted += 1

    def _leave(self, i: int) -> None:
        made = (self.steps - self.joined[i]) * self.grow
        del self.running[i]
        self.context -= self.start[i] + made
        self.used = max(0.0, self.used - self.held.pop(i) - made)

    def _join(self, i: int) -> None:
        self.first.setdefault(i, self.now)
        one = self.requests[i]
        if self.rules.prefix and one.prefix >= 0:
            self.cache[one.prefix] = one.shared
            while sum(self.cache.values()) > 0.5 * self.law.room and len(self.cache) > 1:
                self.cache.popitem(last=False)
        left = one.outputs - 1 - self.done.get(i, 0)
        if left <= 0:
            self.last[i] = self.now
            self.used = max(0.0, self.used - self.held.pop(i))
            return
        self.joined[i] = self.steps
        end = self.steps + max(1, ceil(left / self.grow))
        self.running[i] = end
        self.ends.setdefault(end, []).append(i)
        self.start[i] = one.inputs + self.done.get(i, 0)
        self.context += self.start[i]
