"""Reading small text files that an operator wrote: configuration, prices, secrets."""

import errno
from pathlib import Path
from typing import Final

#: larger than any configuration; a wrong path (a log, a device) must not fill the memory
TEXT_LIMIT_BYTES: Final = 4 * 1024 * 1024
SECRET_LIMIT_BYTES: Final = 64 * 1024

_WHY: Final = {
    errno.ENOENT: "does not exist; create it or correct the path",
    errno.ENOTDIR: "does not exist; create it or correct the path",
    errno.EISDIR: "is a directory; name a file",
    errno.EACCES: "cannot be read; permission denied for this user",
    errno.EPERM: "cannot be read; permission denied for this user",
    errno.ENAMETOOLONG: "is too long for a path; correct it",
    errno.ELOOP: "is a loop of symbolic links; name a file",
}


def read_text(path: Path, limit_bytes: int = TEXT_LIMIT_BYTES) -> str:
    """Text of a UTF-8 file, a byte order mark removed.

    Raises ``ValueError`` with a predicate that is printed after the path ("does not exist; …").
    """
    try:
        with path.open("rb") as file:
            body = file.read(limit_bytes + 1)
    except OSError as error:
        raise ValueError(_WHY.get(error.errno or 0, f"cannot be read; {error.strerror or error}")) from error
    if len(body) > limit_bytes:
        raise ValueError(f"is larger than {limit_bytes // 1024} KiB; name the right file")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise ValueError(f"is not UTF-8 text (line {line}); save it as UTF-8") from None  # the cause holds the text


def read_secret(path: Path) -> str:
    """A secret from its file, white space around it removed.

    Raises ``ValueError`` with a predicate that is printed after the path.
    """
    text = read_text(path, SECRET_LIMIT_BYTES).strip()
    if not text:
        raise ValueError("is empty; write the secret into it")
    return text
