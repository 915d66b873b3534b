"""Error families, sorted by who can mend them; anything else is a bug and keeps its traceback."""


class GoodwatchError(Exception):
    """Root of the errors that goodwatch raises on purpose."""


class ConfigError(GoodwatchError):
    """The operator can mend it: says where, what is wrong, and what would be right."""


class TransientError(GoodwatchError):
    """Time may mend it: worth a retry."""


class NoDataError(GoodwatchError):
    """There is nothing to answer from."""


class StoreError(GoodwatchError):
    """The store cannot keep or read data: disk full, read-only, locked or corrupt. Says which and what to do."""
