"""What passes, and kappa against published figures and against its own derivative."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from goodwatch.core.quality import PLAIN_LABELS, EvaluatorRule, QualityRules, cohens_kappa

RULES = QualityRules(
    {
        "toxicity": EvaluatorRule(pass_from=0.2, lower_is_better=True),
        "relevance": EvaluatorRule(pass_from=0.8),
        "grounded": EvaluatorRule(labels={"yes": True, "no": False, "fail": True}),
    }
)


@pytest.mark.parametrize(
    ("evaluator", "score", "label", "passes"),
    [
        ("helpfulness", 0.5, None, True),
        ("helpfulness", 0.49, None, False),
        ("helpfulness", None, "Pass", True),
        ("helpfulness", 0.9, " FAILED ", False),  # the evaluator's own word, against a threshold that nobody wrote
        ("helpfulness", None, "yes", None),  # yes to what?
        ("helpfulness", None, None, None),
        ("relevance", 0.79, "pass", False),  # a threshold that the operator wrote counts before a label
        ("relevance", None, "pass", True),
        ("toxicity", 0.2, None, True),
        ("toxicity", 0.21, None, False),
        ("hallucination", 0.9, None, None),  # high is bad by its name, and nobody wrote a rule
        ("hallucination", 0.9, "fail", False),
        ("grounded", None, "YES", True),
        ("grounded", 0.1, "yes", True),
        ("grounded", None, "fail", True),  # the operator's label counts first
        ("grounded", 0.6, "unknown", True),
    ],
)
def test_a_score_passes_as_its_rule_says(evaluator: str, score: float | None, label: str | None, passes: bool) -> None:
    assert RULES.passes(evaluator, score, label) is passes


def test_built_in_checks_prove_nothing_when_they_pass() -> None:
    assert RULES.rule("goodwatch.checks").screen
    assert not RULES.rule("helpfulness").screen


def test_no_label_means_two_things() -> None:
    assert all(word == word.strip().lower() for word in PLAIN_LABELS)
    assert {"yes", "no", "true", "false", "1", "0"} & set(PLAIN_LABELS) == set()


def test_kappa_is_that_of_the_textbook() -> None:
    # Fleiss, Levin and Paik, Statistical Methods for Rates and Proportions, 3rd ed., table 18.1: two raters, three
    # diagnoses, n = 100; p. 605-606: observed .89, expected .66, kappa .68, its standard error .087, interval .51 to .85
    found = cohens_kappa([[75, 1, 4], [5, 4, 1], [0, 0, 10]])
    assert found.kappa is not None
    assert found.error is not None
    assert found.agreed_ratio == pytest.approx(0.89)
    assert found.kappa == pytest.approx(0.676, abs=0.0005)
    assert found.error == pytest.approx(0.087, abs=0.001)
    assert (found.low, found.high) == (pytest.approx(0.51, abs=0.01), pytest.approx(0.85, abs=0.01))


def test_agreement_that_chance_explains_has_no_kappa() -> None:
    assert cohens_kappa([[10, 0], [0, 0]]).kappa is None
    assert cohens_kappa([[0, 0], [0, 0]]).pairs == 0
    assert cohens_kappa([[5, 0], [0, 5]]).kappa == 1
    assert cohens_kappa([[0, 5], [5, 0]]).kappa == -1


@given(st.lists(st.integers(1, 60), min_size=4, max_size=4))
def test_the_error_of_kappa_is_that_of_the_delta_method(cells: list[int]) -> None:
    # var f(p) = (Σ p d² - (Σ p d)²) / n for multinomial p, d = df/dp by finite differences (any statistics textbook)
    n = sum(cells)
    p = [c / n for c in cells]

    def kappa(q: list[float]) -> float:
        total = sum(q)
        a, b, c, d = (x / total for x in q)
        chance = (a + b) * (a + c) + (c + d) * (b + d)
        return (a + d - chance) / (1 - chance)

    step = 1e-6
    slopes = [(kappa([x + step * (i == j) for j, x in enumerate(p)]) - kappa(p)) / step for i in range(4)]
    mean = sum(x * s for x, s in zip(p, slopes, strict=True))
    variance = sum(x * (s - mean) ** 2 for x, s in zip(p, slopes, strict=True)) / n
    found = cohens_kappa([cells[:2], cells[2:]])
    assert found.error is not None
    assert found.error == pytest.approx(math.sqrt(variance), abs=2e-4)


@given(st.lists(st.integers(0, 50), min_size=9, max_size=9))
def test_kappa_does_not_care_who_is_first(cells: list[int]) -> None:
    table = [cells[:3], cells[3:6], cells[6:]]
    found, turned = cohens_kappa(table), cohens_kappa(list(zip(*table, strict=True)))
    assume(found.kappa is not None)
    assert found.kappa is not None
    assert turned.kappa == pytest.approx(found.kappa, abs=1e-9)
    assert turned.error == pytest.approx(found.error, abs=1e-9)
    assert -1 - 1e-9 <= found.kappa <= 1 + 1e-9
