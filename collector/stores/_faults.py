"""What went wrong with a store's file, said so that an operator can mend it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from goodwatch.core.errors import StoreError

_HOLDER: Final = re.compile(r"held in (?P<program>.+?) \(PID (?P<pid>\d+)\)")

#: (found in the cause, lower case; what is wrong; what mends it). The wording is that of DuckDB 2.0 and of the kernel;
#: "extension" is what it asks for when the file is one of SQLite.
_KNOWN: Final = (
    (
        ("no space left", "disk quota exceeded", "file too large", "failed to offload", "out of disk"),
        "no room on the disk",
        "free space or raise the limit on it; the store goes on by itself once there is room",
    ),
    (
        ("read-only file system", "permission denied", "operation not permitted"),
        "not writable",
        "let the service's user write the file and its folder, or keep the store in another folder",
    ),
    (
        (
            "not a valid duckdb database",
            "checksum",
            "corrupt",
            "replaying wal",
            "invalid wal",
            "deserialize",
            "extension",
        ),
        "damaged, or not a store",
        "it was left as it is: move it (and the .wal file beside it) away and put a backup in its place, "
        "or start with an empty store by naming a new file",
    ),
    (
        ("database file with version", "read wal of version", "storage version"),
        "written by a newer version of DuckDB",
        "upgrade goodwatch, or keep the store in a new file",
    ),
    (
        ("conversion failure", "conversion error"),
        "a value is not of the kind that its column keeps",
        "nothing of this call was kept; report it, because what reads the page should have refused it",
    ),
    (
        ("out of memory", "could not allocate"),
        "too much for the memory of the store",
        "ask for a shorter time or fewer signals at once",
    ),
)


def store_error(path: Path, doing: str, cause: Exception) -> StoreError:
    """A ``StoreError`` that names the file, what was being done, what is wrong and what would mend it."""
    said = " ".join(str(cause).split())
    lowered = said.lower()
    if "set lock" in lowered or "conflicting lock" in lowered:
        return StoreError(f"{path}: cannot {doing}: {_held(said)}")
    for marks, wrong, mend in _KNOWN:
        if any(mark in lowered for mark in marks):
            return StoreError(f"{path}: cannot {doing}: {wrong}; {mend} ({said})")
    return StoreError(f"{path}: cannot {doing}: {said}; check that the disk is well and that nobody moved the file")


def _held(said: str) -> str:
    found = _HOLDER.search(said)
    holder = f"process {found['pid']} ({found['program']})" if found else "another process"
    return (
        f"{holder} has the file open, and only one process can; ask that service's API instead, stop it, "
        "or keep this store in another file"
    )
