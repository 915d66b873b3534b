"""Versions as people write them."""

import pytest

from planner.version import parsed


@pytest.mark.parametrize(
    ("text", "release", "generation"),
    [
        ("0.6.4 (V0)", (0, 6, 4), "V0"),
        ("~0.13 (V1, image latest 2026-01)", (0, 13), "V1"),
        ("0.7.x (V0)", (0, 7), "V0"),
        ("0.10/0.11 (V1)", (0, 10), "V1"),
        ("0.2x (V1)", (0, 25), "V1"),
        ("0.18+ (V1)", (0, 18), "V1"),
        ("v0.28", (0, 28), ""),
        ("0.8.5.dev (V1)", (0, 8, 5), "V1"),
    ],
)
def test_a_version_is_read_with_its_generation(text: str, release: tuple[int, ...], generation: str) -> None:
    found = parsed(text, (9, 9))
    assert (found.release, found.generation, found.told) == (release, generation, True)
    assert found.low <= found.release <= found.high


@pytest.mark.parametrize("text", ["", "(V1)", "latest", "0.0.0.dev1 (2026)"])
def test_without_a_number_the_default_stands_and_is_not_told(text: str) -> None:
    found = parsed(text, (0, 33))
    assert (found.release, found.told) == ((0, 33), False)
