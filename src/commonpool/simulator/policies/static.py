"""static: hard quotas."""

import msgspec

from commonpool.core.model import Policy
from commonpool.simulator.policies.base import SharingPolicy, unpromised, with_tenants


def _rules(policy: Policy) -> Policy:
    """In a pool of the rule `guaranteed` nobody uses more than its guarantee; a dedicated one stays its owner's."""
    pools = {
        name: pool if pool.rule == "dedicated" else msgspec.structs.replace(pool, rule="guaranteed")
        for name, pool in policy.pools.items()
    }
    return with_tenants(msgspec.structs.replace(policy, pools=pools), unpromised)


STATIC = SharingPolicy("static", "Hard quotas: every tenant has its guarantee, and never more.", _rules)
