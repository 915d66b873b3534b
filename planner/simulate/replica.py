"""One engine as its scheduler sees it: a queue, a running batch, a cache. Steps that are alike are taken at once."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from heapq import heappop, heappush
from math import ceil, inf, sqrt

from planner.simulate.setup import Scheduler, StepCost
from planner.simulate.trace import Trace

#: share of the cache that prefixes without a user may keep
_PREFIX_SHARE = 0.5
#: steps that must fit before a retracted request is taken in again where prompts run alone (SGLang, retract_decode_steps)
_RETRACT_STEPS = 20


class Replica:
    """State of one engine; ``first_s`` and ``ended_s`` are shared columns, NaN until known.

    A request's life: waiting → prefill (in one or more steps) → running, where its end is a step number known in
    advance → done. A preempted request goes back to the head of the queue and computes its tokens again.
    """

    __slots__ = (
        "_cached",
        "_done",
        "_ends",
        "_epoch",
        "_finish",
        "_grow",
        "_pinned",
        "_prefilling",
        "_prefixes",
        "_room",
        "_seats",
        "busy_s",
        "context",
        "cost",
        "ended_s",
        "first_s",
        "hits",
        "kv_peak",
        "kv_s",
        "now",
        "order",
        "preempted",
        "prefilled",
        "rules",
        "running",
        "steps",
        "trace",
        "used",
        "waiting",
    )  # fmt: skip

    def __init__(self, requests: Trace, cost: StepCost, rules: Scheduler, first_s: array[float], ended_s: array[float],
                 *, prefilled: bool = False) -> None:  # fmt: skip
        self.trace, self.cost, self.rules = requests, cost, rules
        self.first_s, self.ended_s, self.prefilled = first_s, ended_s, prefilled
        self.now = self.busy_s = self.kv_s = 0.0
        self.steps = self.preempted = self.order = self.hits = 0
        self.context = self.used = self.kv_peak = 0.0  # tokens that a decode step reads; tokens of cache in use
        self.waiting: list[tuple[int, int, int]] = []  # (priority, order, request)
        self.running: dict[int, int] = {}  # request → epoch, in order of admission
        self._prefilling: list[list[int]] = []  # [request, tokens left]
        self._ends: list[tuple[int, int, int]] = []  # (step of the end, request, epoch)
        self._done: dict[int, int] = {}  # tokens made before a preemption
        self._cached: dict[int, int] = {}  # tokens of the prompt found in the cache
        self._finish: dict[int, tuple[int, int]] = {}  # request → (step of joining, own tokens then)
        self._prefixes: OrderedDict[int, int] = OrderedDict()
        self._pinned: dict[int, int] = {}
        self._epoch = 0
        self._grow = rules.tokens_per_step
        self._room = float(rules.kv_tokens)
        self._seats = rules.max_num_seqs

    @property
    def load(self) -> int:
        """Requests that wait or run."""
        return len(self.waiting) + len(self._prefilling) + len(self.running)

    def push(self, request: int, at_s: float) -> None:
        """A request joins the queue."""
        if not self.load and self.now < at_s:
            self.now = at_s
        self.order += 1
        heappush(self.waiting, (self.trace.priority[request], self.order, request))

    def advance(self, until_s: float) -> None:
        """Work up to ``until_s``; a step that began before it is ended."""
        while self.now < until_s:
            self._admit()
            if self._prefilling:
                self._prefill_step()
            elif self.running:
                self._decode(until_s)
            elif not self.waiting:
                return

    # -- admission

    def _admit(self) -> None:
        trace, block = self.trace, self.rules.block_tokens
        while self.waiting and len(self.running) + len(self._prefilling) < self._seats:
            request = self.waiting[0][2]
            if self.now - trace.arrived_s[request] > trace.patience_s and request not in self._done:
                heappop(self.waiting)  # the client has gone
                continue
            tokens = trace.input_tokens[request] + self._done.get(request, 0)
            cached = min(self._hit(request), tokens - 1)
            need = tokens - cached + block
            if request in self._done and not self.rules.mixed:
                # a retracted request waits for room to decode; else it is retracted again before anyone made a token
                need += int(_RETRACT_STEPS * self._grow * len(self.running))
            if self.used + need + self._woken(request) > self._room and (self.running or self._prefilling):
                return
            heappop(self.waiting)
            self._pin(request)
            self._cached[request] = cached
            self.hits += cached
            self.used += tokens - cached + block / 2
            self._prefilling.append([request, 1 if self.prefilled else tokens - cached])

    def _hit(self, request: int) -> int:
        known = self.trace.cached_tokens[request]
        prefix = self.trace.prefix[request]
        if prefix >= 0 and self.rules.prefix_cache:
            known = max(known, self._prefixes.get(prefix, 0))
        return known

    def _woken(self, request: int) -> int:
        """Tokens of a kept prefix that nobody uses now and that this request would hold."""
        prefix = self.trace.prefix[request]
        return 0 if prefix < 0 or prefix in self._pinned else self._prefixes.get(prefix, 0)

    def _pin(self, request: int) -> None:
        """A shared prefix counts once, however many use it; it stays until newer ones push it out."""
        prefix = self.trace.prefix[request]
        if prefix < 0 or not self.rules.prefix_cache:
            return
        self._pinned[prefix] = self._pinned.get(prefix, 0) + 1
        if prefix in self._prefixes:
            self._prefixes.move_to_end(prefix)
            if self._pinned[prefix] == 1:
                self.used += self._prefixes[prefix]

    def _unpin(self, request: int) -> None:
        prefix = self.trace.prefix[request]
        if prefix < 0 or not self.rules.prefix_cache or prefix not in self._pinned:
            return
        self._pinned[prefix] -= 1
        if not self._pinned[prefix]:
            del self._pinned[prefix]
            self.used -= self._prefixes.get(prefix, 0)

    def _keep(self, request: int) -> None:
        """A prompt that was worked off leaves its prefix in the cache."""
        prefix = self.trace.prefix[request]
        if prefix < 0 or not self.rules.prefix_cache or prefix in self._prefixes:
            return
        tokens = min(self.trace.prefix_tokens[request], self.trace.input_tokens[request])
        self._prefixes[prefix] = tokens
        self.used += tokens  # pinned by this request, whose own share ends at the prefix
        self._cached[request] += tokens
        self.used -= tokens
        kept = sum(self._prefixes.values()) if len(self._prefixes) % 64 == 0 else 0
        while kept > _PREFIX_SHARE * self._room and self._prefixes:
            oldest = next(iter(self._prefixes))
            if oldest in self._pinned:
                return
            kept -= self._prefixes.pop(oldest)

    # -- steps

    def _spend(self, seconds: float) -> None:
        self.now += seconds
        self.busy_s += seconds
        self.kv_s += seconds * self.used
        self.kv_peak = max(self.kv_peak, self.used)

    def _prefill_step(self) -> None:
        """One step that carries prompts, with decoding where the engine mixes them."""
        cost, running = self.cost, len(self.running)
        budget = self.rules.max_num_batched_tokens - (running if self.rules.mixed else 0)
        tokens, ready = 0, []
        for item in self._prefilling:
            taken = min(item[1], max(1, budget) - tokens)
            if taken <= 0:
                break
            item[1] -= taken
            tokens += taken
            if item[1] == 0:
                ready.append(item[0])
        seconds = cost.fixed_s + cost.prompt_token_s * tokens * (not self.prefilled) + cost.prompt_s * len(ready)
        if self.rules.mixed and running:
            seconds += self._decode_cost(running) - cost.fixed_s
        self._spend(seconds)
        if self.rules.mixed and running:
            self._moved(1)
        del self._prefilling[: len(ready)]
        for request in ready:
            self._join(request)

    def _join(self, request: int) -> None:
        """The prompt is done: the first token is there."""
        if self.first_s[request] != self.first_s[request]:
            self.first_s[request] = self.now
        self._keep(request)
        done = self._done.get(request, 0)
        left = self.trace.output_tokens[request] - done - 1
        context = self.trace.input_tokens[request] + done
        if left <= 0:
            self._leave(request, context - self._cached[request])
            return
        self._epoch += 1
        self.running[request] = self._epoch
        self._finish[request] = (self.steps, context)
        self.context += context
        heappush(self._ends, (self.steps + ceil(left / self._grow), request, self._epoch))

    def _decode_cost(self, running: int) -> float:
        cost, rules = self.cost, self.rules
        return (
            cost.fixed_s
            + rules.draft_s
            + cost.running_s * running * (1 + rules.draft_tokens)
            + cost.context_s * self.context
        )

    def _decode(self, until_s: float) -> None:
        """Decode steps up to the next end, the next arrival that could be admitted, or a full cache."""
        running, ends = len(self.running), self._ends
        while ends and self.running.get(ends[0][1]) != ends[0][2]:
            heappop(ends)  # preempted meanwhile
        step, slope = self._decode_cost(running), self.cost.context_s * running * self._grow
        count = ends[0][0] - self.steps
        fits = int((self._room - self.used) / (running * self._grow))
        if fits < 1 and running > 1:
            self._preempt()
            return
        if running > 1:
            count = min(count, fits)
        open_seat = running < self._seats and not self.waiting
        if open_seat and until_s < inf:
            count = min(count, max(1, _steps_until(until_s - self.now, step, slope)))
        self._spend(count * step + slope * count * (count - 1) / 2)
        self._moved(count)

    def _moved(self, count: int) -> None:
        """Every running request has made ``count`` steps' tokens; those at their end leave."""
        running = len(self.running)
        self.steps += count
        self.context += count * running * self._grow
        self.used += count * running * self._grow
        ends = self._ends
        while ends and ends[0][0] <= self.steps:
            _, request, epoch = heappop(ends)
            if self.running.get(request) == epoch:
                del self.running[request]
                context = self._tokens(request)
                self.context -= context
                self._leave(request, context - self._cached[request])

    def _tokens(self, request: int) -> float:
        joined, context = self._finish[request]
        return context + (self.steps - joined) * self._grow

    def _leave(self, request: int, own_tokens: float) -> None:
        self.ended_s[request] = self.now
        self._free(request, own_tokens)
        self._done.pop(request, None)

    def _free(self, request: int, own_tokens: float) -> None:
        self.used = max(0.0, self.used - own_tokens - self.rules.block_tokens / 2)
        self._unpin(request)
        self._cached.pop(request, None)
        self._finish.pop(request, None)

    def _preempt(self) -> None:
        """The request that came last gives its cache back and computes it again later."""
        request = next(reversed(self.running))
        del self.running[request]
        context = self._tokens(request)
        self.context -= context
        self._done[request] = max(0, round(context) - self.trace.input_tokens[request])
        self._free(request, context - self._cached[request])
        self.preempted += 1
        heappush(self.waiting, (self.trace.priority[request], -self.preempted, request))


def _steps_until(seconds: float, step_s: float, slope_s: float) -> int:
    """Whole steps after which ``seconds`` have passed, each longer than the one before by ``slope_s``."""
    if slope_s <= 0:
        return ceil(seconds / step_s) if step_s > 0 else 1
    half = step_s - slope_s / 2
    return ceil((sqrt(half * half + 2 * slope_s * max(0.0, seconds)) - half) / slope_s)
