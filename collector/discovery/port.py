"""What every discovery is to the rest of goodwatch, ``collector.targets.FileSD`` included."""

from collections.abc import Callable
from typing import Protocol

from collector.targets import TargetSpec

OnChange = Callable[[tuple[TargetSpec, ...]], None]
#: (place in the configuration, stable reason) of one look that failed
OnFailure = Callable[[str, str], None]


def ignore(_name: str, _reason: str) -> None:
    """Count a failure nowhere else."""


class Discovery(Protocol):
    """Targets that come and go. A target's name is its identity: the same name is the same history.

    Neither method raises for what the outside does (a server that is down, an answer that makes no sense): that is
    in ``problems``, and the targets that were known stay or go as the mechanism's file says.
    """

    @property
    def name(self) -> str:
        """Its place in the configuration, for a person: ``dns_sd[0]``."""
        ...

    @property
    def targets(self) -> tuple[TargetSpec, ...]:
        """Targets as last seen."""
        ...

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong now, by where it is (a file, a DNS name, a namespace, a pod); empty when all is well."""
        ...

    async def refresh(self) -> bool:
        """Look once, within a bounded time; True when the targets differ from before."""
        ...

    async def run(self, on_change: OnChange) -> None:
        """Keep looking until cancelled; ``on_change`` is called whenever the targets differ."""
        ...
