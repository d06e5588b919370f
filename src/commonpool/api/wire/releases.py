"""Guarantees that are not used, and what is released of them."""

from typing import Annotated

import msgspec

from commonpool.core.underuse import Underuse
from commonpool.store.releases import Release


class Underused(msgspec.Struct, frozen=True):
    """The guarantees that are under-used, and what of them could be released in all."""

    tenants: tuple[Underuse, ...]
    offered_milli_gpu: int


class NewRelease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of its guarantee a tenant releases, beside what it has released already; None is what is offered."""

    tenant: str
    milli_gpu: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""


class Releases(msgspec.Struct, frozen=True):
    """Releases, with who made and who undid them."""

    releases: tuple[Release, ...]
