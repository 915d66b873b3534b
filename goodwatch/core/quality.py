"""Words and arithmetic of answer quality: what passes, what a check found, how well two judges agree. Pure.

A score says nothing by itself: the evaluator's threshold and direction make it pass or fail. What cannot be told for
certain (a label "yes", a score of an evaluator whose name says that high is bad) is not told.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from goodwatch.core.errors import GoodwatchError, TransientError

#: a score from here on passes, where nobody says otherwise
PASS_FROM: Final = 0.5

#: evaluators whose pass proves nothing: nothing was found, which is not the same as right
SCREEN_PREFIX: Final = "goodwatch.checks"

#: labels that mean one thing whatever was asked. "yes", "true" and "1" are not among them: yes to "is it toxic?" is bad.
PLAIN_LABELS: Final[Mapping[str, bool]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "pass", "passed", "passes", "correct", "acceptable", "accepted", "good", "faithful", "factual",
                "grounded", "thumbs_up", "thumbs up", "👍",
            ),
            True,
        ),
        **dict.fromkeys(
            (
                "fail", "failed", "fails", "incorrect", "unacceptable", "rejected", "bad", "unfaithful", "hallucinated",
                "ungrounded", "thumbs_down", "thumbs down", "👎",
            ),
            False,
        ),
    }
)  # fmt: skip

#: in the name of an evaluator whose high scores are usually bad; without a rule of the operator its scores say nothing
_HIGH_IS_BAD: Final = re.compile(
    r"toxic|hallucinat|bias|harm|hate|violen|profan|unsafe|jailbreak|injection|leak|pii|refus|error|risk|perplexity|"
    r"incorrect|unfaithful|contradict",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class EvaluatorRule:
    """What makes one evaluator's scores pass. ``labels`` are in lower case; None of ``pass_from`` is the default.

    With ``lower_is_better`` a score at or below ``pass_from`` passes. A ``screen`` can only fail a request: its pass
    is no sign of quality, so that a request with nothing but it counts as not scored.
    """

    pass_from: float | None = None
    lower_is_better: bool = False
    labels: Mapping[str, bool] = field(default_factory=dict)
    screen: bool = False


_UNRULED: Final = EvaluatorRule()
_SCREEN: Final = EvaluatorRule(screen=True)


@dataclass(frozen=True, slots=True)
class QualityRules:
    """What passes, by evaluator."""

    evaluators: Mapping[str, EvaluatorRule] = field(default_factory=dict)
    pass_from: float = PASS_FROM

    def rule(self, evaluator: str) -> EvaluatorRule:
        """The rule of an evaluator; a plain one where the operator wrote none."""
        ruled = self.evaluators.get(evaluator)
        if ruled is not None:
            return ruled
        return _SCREEN if evaluator.startswith(SCREEN_PREFIX) else _UNRULED

    def is_clear(self, evaluator: str) -> bool:
        """Whether it is known in which direction this evaluator's scores are good."""
        return evaluator in self.evaluators or _HIGH_IS_BAD.search(evaluator) is None

    def passes(self, evaluator: str, score: float | None, label: str | None) -> bool | None:
        """Whether a score passes; None when it does not tell.

        What the operator wrote counts first (labels, then the threshold), then a label that means one thing, then the
        default threshold.

        Examples
        --------
        >>> rules = QualityRules({"toxicity": EvaluatorRule(pass_from=0.2, lower_is_better=True)})
        >>> rules.passes("toxicity", 0.1, None), rules.passes("hallucination", 0.1, None), rules.passes("ok", None, "Pass")
        (True, None, True)
        """
        rule, word = self.rule(evaluator), plain_word(label)
        if word in rule.labels:
            return rule.labels[word]
        if score is not None and rule.pass_from is not None:
            return _within(score, rule.pass_from, lower=rule.lower_is_better)
        if word in PLAIN_LABELS:
            return PLAIN_LABELS[word]
        if score is None or not self.is_clear(evaluator):
            return None
        return _within(score, self.pass_from, lower=rule.lower_is_better)


def plain_word(label: str | None) -> str:
    """A label as it is compared: lower case, without white space around it."""
    return "" if label is None else label.strip().lower()


def _within(score: float, limit: float, *, lower: bool) -> bool:
    return score <= limit if lower else score >= limit


@dataclass(frozen=True, slots=True)
class Finding:
    """What a built-in check found in an answer: evidence is ``text[start:end]``, in characters."""

    check: str
    start: int
    end: int
    what: str  # for a person; quotes nothing of the answer

    @property
    def reference(self) -> str:
        """Where the evidence is, without the evidence: ``repetition[120:980]``."""
        return f"{self.check}[{self.start}:{self.end}]"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well two raters agree on pass or fail, beyond chance.

    ``kappa`` None: chance alone explains all (both always say the same), or nothing was rated by both. ``low`` and
    ``high`` are a 95 % interval; None with it.
    """

    pairs: int
    agreed_ratio: float | None
    kappa: float | None
    low: float | None = None
    high: float | None = None
    error: float | None = None  # standard error of kappa


def cohens_kappa(table: Sequence[Sequence[float]]) -> Agreement:
    """Cohen's kappa of a square table of counts, rows by the first rater and columns by the second.

    Notes
    -----
    Kappa: J. Cohen, A coefficient of agreement for nominal scales, 1960. Variance for large samples, not assuming that
    kappa is 0: J. L. Fleiss, J. Cohen and B. S. Everitt, Large sample standard errors of kappa and weighted kappa,
    Psychological Bulletin 72 (1969), equation 13. It is rough below some thirty pairs, and 0 when no pair differs.

    Examples
    --------
    >>> found = cohens_kappa([[40, 5], [10, 45]])
    >>> round(found.kappa, 2), round(found.agreed_ratio, 2)
    (0.7, 0.85)
    """
    n = math.fsum(map(math.fsum, table))
    if n == 0:
        return Agreement(0, None, None)
    share = [[count / n for count in row] for row in table]
    places = range(len(share))
    first = [math.fsum(row) for row in share]
    second = [math.fsum(row[j] for row in share) for j in places]
    agreed = math.fsum(share[i][i] for i in places)
    chance = math.fsum(first[i] * second[i] for i in places)
    if chance > 1 - 1e-12:
        return Agreement(round(n), agreed, None)
    kappa = (agreed - chance) / (1 - chance)
    left = 1 - kappa
    same = math.fsum(share[i][i] * (1 - (first[i] + second[i]) * left) ** 2 for i in places)
    other = math.fsum(share[i][j] * (second[i] + first[j]) ** 2 for i in places for j in places if i != j)
    spread = same + left**2 * other - (kappa - chance * left) ** 2
    error = math.sqrt(max(0.0, spread) / n) / (1 - chance)
    return Agreement(round(n), agreed, kappa, max(-1.0, kappa - 1.96 * error), min(1.0, kappa + 1.96 * error), error)


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """What a judge answered, and what that took; tokens None when the endpoint does not tell."""

    text: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class JudgeBusyError(TransientError):
    """The judge did not answer now; ``retry_after_s`` is what it asked for, None when it did not say.

    ``begun``: it may have worked on an answer that did not come back, and may charge for it.
    """

    def __init__(self, text: str, retry_after_s: float | None = None, *, begun: bool = False) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        self.begun = begun


class JudgeRefusedError(GoodwatchError):
    """The judge will not answer this, however often it is asked. Says what is wrong and how to mend it.

    ``of_text``: only this text is refused; otherwise nothing that is asked will be answered.
    """

    def __init__(self, text: str, *, of_text: bool = False) -> None:
        super().__init__(text)
        self.of_text = of_text


class Judge(Protocol):
    """Something that answers a chat: one try, no retries."""

    async def ask(self, messages: Sequence[tuple[str, str]]) -> JudgeReply:
        """The answer to (role, text) messages.

        Raises ``JudgeBusyError`` when a later try may work, ``JudgeRefusedError`` when none will.
        """
        ...


@dataclass(frozen=True, slots=True)
class Price:
    """What a judge costs, in USD per million tokens."""

    input_usd: float
    output_usd: float

    def usd(self, input_tokens: float, output_tokens: float) -> float:
        """Cost of some tokens.

        Examples
        --------
        >>> Price(0.5, 1.5).usd(1_000_000, 2_000_000)
        3.5
        """
        return (input_tokens * self.input_usd + output_tokens * self.output_usd) / 1e6
