"""A start-up guard: goodwatch's packages have plain names, so another package of such a name must not shadow them."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

import goodwatch
from goodwatch.core.errors import ConfigError

PACKAGES: Final = ("collector", "exporters", "dashboards", "alerts", "planner")


def check_packages() -> None:
    """Raise ``ConfigError`` naming the package that stands in the way and where it is."""
    home = Path(goodwatch.__file__).parent.parent
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ConfigError(f"the package {name} of goodwatch is missing; install goodwatch again")
        found = Path(spec.origin).parent
        if found.parent != home:
            raise ConfigError(
                f"{found} stands in front of goodwatch's own package {name}; remove it from this environment, or run "
                "goodwatch from another folder or in an environment of its own"
            )
