"""One tenant's flood held to its share, so that it does not spoil the others' requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.recommend import staying
from planner.twin import kept

#: share of all requests above which one tenant is a flood
_FLOOD: Final = 0.5


class TenantLimits:
    """Proposes a limit for a tenant that sends more than all others together."""

    name = "tenant_limits"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """That tenant held to as much as the others send."""
        by_tenant = evidence.requests_by_tenant
        if len(by_tenant) < 2:
            return Abstained(self.name, "fewer than two tenants are told apart", "tenant of requests, from traces")
        total = sum(by_tenant.values())
        tenant, most = max(by_tenant.items(), key=lambda item: item[1])
        if most <= _FLOOD * total:
            return Abstained(self.name, f"no tenant sends more than {most / total:.0%}")
        away = (2 * most - total) / total
        world = replace(
            staying(evidence), trace=kept(evidence.trace, 1 - away), turned_away_ratio=away, excess_only=True
        )
        return [
            Proposal(
                self.name, "admission", f"limit {tenant} to what the others send together", {"tenant": tenant, "refused_ratio": away},
                world, f"{tenant} sends {most / total:.0%} of the requests",
                assumes=("its requests are as long as the others'",), risks=(f"{away:.0%} of all requests are refused",),
                restart=False, rollback="lift the limit",
            )
        ]  # fmt: skip


STRATEGY: Final = TenantLimits()
