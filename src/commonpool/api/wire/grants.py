"""What a tenant may use for a while."""

from typing import Annotated

import msgspec

from commonpool.api.wire.units import Ns


class NewGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a tenant may use, and for how long from now. It replaces what it was granted before."""

    tenant: str
    elastic_cap_milli_gpu: Annotated[int, msgspec.Meta(ge=1)]
    for_ns: Ns


class Grant(msgspec.Struct, frozen=True):
    """What a tenant may use until then; `until_ns` is None where no grant holds."""

    tenant: str
    elastic_cap_milli_gpu: int
    until_ns: int | None
