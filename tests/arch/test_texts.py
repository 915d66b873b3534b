"""Nothing that ships depends on the machine where it was written."""

import re
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.arch.sources import ROOT, shipped_texts, shown

# Folders of one person's or one machine's, and a folder that a checkout may have beside the sources.
LOCAL_PATHS: Final = re.compile(r"(?<![\w.])/(home|root|work|Users)/\w|(?<![\w/-])shared/")
INDEX_OPTIONS: Final = re.compile(r"--(extra-)?index-url|--find-links|--trusted-host|PIP_(EXTRA_)?INDEX_URL")


@pytest.mark.parametrize("path", shipped_texts(), ids=shown)
def test_no_path_of_one_machine_is_named(path: Path) -> None:
    text = path.read_text(errors="replace")
    here = [name for name in (str(ROOT), sys.prefix) if len(Path(name).parts) > 2 and name in text]
    assert here == []
    assert [match.group() for match in LOCAL_PATHS.finditer(text)] == []


@pytest.mark.parametrize("path", shipped_texts(), ids=shown)
def test_the_package_index_is_left_to_the_environment(path: Path) -> None:
    assert [match.group() for match in INDEX_OPTIONS.finditer(path.read_text(errors="replace"))] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("open('/home/me/x')", True),
        ("'shared/x'", True),
        ("/usr/share/x", False),
        ("my-shared/x", False),
        ("a/root/b", False),
    ],
)
def test_a_local_path_is_recognised(text: str, found: bool) -> None:
    assert bool(LOCAL_PATHS.search(text)) is found
