"""vtc: fair between tenants, without guarantees (Sheng et al., OSDI 2024)."""

import msgspec

from commonpool.core.model import Policy, Tenant
from commonpool.simulator.policies.base import SharingPolicy, unpromised, with_tenants


def _rules(policy: Policy) -> Policy:
    """All is surplus, so the counters alone decide; inside a tenant by arrival, as in the paper."""
    pools = {name: msgspec.structs.replace(pool, rule="elastic") for name, pool in policy.pools.items()}

    def equal(tenant: Tenant) -> Tenant:
        whole = policy.pools[tenant.pool].milli_gpu
        return msgspec.structs.replace(
            unpromised(tenant),
            guaranteed=0,
            reserved=0,
            headroom=0,
            resources={},
            elastic_cap=whole,
            hard_cap=whole,
            group=None,
            priority=dict.fromkeys(tenant.priority, 0),
        )

    return with_tenants(msgspec.structs.replace(policy, pools=pools, groups={}), equal)


VTC = SharingPolicy(
    "vtc", "Fair between the tenants who wait, by weighted token counters; nobody is guaranteed.", _rules
)
