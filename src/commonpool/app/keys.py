"""Keys while the product runs: made, revoked and rotated one after the other, in the store and where they are checked.

Each change is two steps: the store, in a thread, then everybody who checks keys. Were two under way at once, what one
of them read of a key could be taken up after the other had revoked it, and the key would open doors again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from commonpool.api.wire import keys as wire
from commonpool.config import Config
from commonpool.core.model import NO_LIMITS
from commonpool.gateway.desk import CoreDesk
from commonpool.store.contract import Key, Store
from commonpool.store.keys import FIRST_START, NewKey, mint, rotate


class Keyring:
    """Belongs to one event loop. `clock` gives nanoseconds since the epoch.

    `take_up(key)` hears of each key that was made or has changed, in the order in which the store knows it.
    """

    def __init__(self, store: Store, clock: Callable[[], int], take_up: Callable[[Key], None]) -> None:
        self._store = store
        self._clock = clock
        self._take_up = take_up
        self._changing = asyncio.Lock()

    def first(self, config: Config) -> tuple[NewKey, ...]:
        """On the very first start each tenant gets one for its first app; the platform, where it needs one. Blocks."""
        if self._store.list_keys():
            return ()
        about: dict[str, Any] = {"now_ns": self._clock(), "note": FIRST_START}
        new = [mint(tenant=tenant, app=next(iter(apps)), **about) for tenant, apps in config.apps.items()]
        if not config.access.local:
            new.append(mint(tenant="", app="", scope="admin", **about))
        for each in new:
            self._store.add_key(each.key)
            self._take_up(each.key)
        return tuple(new)

    async def list(self) -> Sequence[Key]:
        """As the store's."""
        return await asyncio.to_thread(self._store.list_keys)

    async def create(self, new: wire.NewKey) -> NewKey:
        """Raises StoreError."""
        made = mint(
            tenant=new.tenant,
            app=new.app,
            now_ns=self._clock(),
            scope=new.scope,
            tier=new.tier,
            models=new.models,
            expires_ns=new.expires_ns,
            note=new.note,
            role=new.role,
            account=new.account,
            tiers=new.tiers,
            networks=new.networks,
            limits=new.limits,
        )
        async with self._changing:
            await asyncio.to_thread(self._store.add_key, made.key)
            self._take_up(made.key)
        return made

    async def revoke(self, key_id: str) -> Key:
        """The key works no more when this returns. Raises KeyNotFoundError."""
        async with self._changing:
            key = await asyncio.to_thread(self._store.revoke_key, key_id, self._clock())
            self._take_up(key)
        return key

    async def rotate(self, key_id: str, overlap_ns: int) -> NewKey:
        """As `store.keys.rotate`. Raises KeyNotFoundError."""
        async with self._changing:
            new, old = await asyncio.to_thread(
                lambda: rotate(self._store, key_id, now_ns=self._clock(), overlap_ns=overlap_ns)
            )
            self._take_up(new.key)
            self._take_up(old)
        return new

    async def revoke_with(
        self, remove: Callable[[], Awaitable[tuple[str, ...]]], revoked: Callable[[str], None]
    ) -> tuple[str, ...]:
        """`remove()` revokes keys in the store, along with whose they are: their ids, which `revoked` hears."""
        async with self._changing:
            key_ids = await remove()
            for key_id in key_ids:
                revoked(key_id)
        return key_ids


def tell(desk: CoreDesk, key: Key) -> None:
    """What the core is to know of a key."""
    if key.revoked_ns is not None:
        desk.key_revoked(key.key_id, key.tenant)
    elif key.limits != NO_LIMITS:
        desk.key_limited(key.key_id, key.limits)
