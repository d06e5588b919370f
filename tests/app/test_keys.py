"""Given changes of one key at the same time, when one has revoked it, then it opens nothing, whatever another read."""

import asyncio
import threading

import pytest

from commonpool.app.keys import Keyring
from commonpool.gateway.identity import Identity
from commonpool.store.contract import Key, KeyNotFoundError
from commonpool.store.keys import mint
from commonpool.store.memory import MemoryStore
from tests.gateway.fakes import run


class Held(MemoryStore):
    """A rotation has read and changed the key, and is held before it comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.rotated, self.go_on = threading.Event(), threading.Event()
        self.revoking = 0

    def rotate_key(self, key_id: str, successor: Key, until_ns: int) -> Key:
        old = super().rotate_key(key_id, successor, until_ns)
        self.rotated.set()
        assert self.go_on.wait(120)
        return old

    def revoke_key(self, key_id: str, at_ns: int) -> Key:
        self.revoking += 1
        return super().revoke_key(key_id, at_ns)


def test_what_a_rotation_read_brings_no_revoked_key_back() -> None:
    async def main() -> None:
        store = Held()
        identity = Identity([], lambda: 10)
        ring = Keyring(store, lambda: 10, identity.add)
        old = mint(tenant="a", app="chat", now_ns=1)
        store.add_key(old.key)
        identity.add(old.key)
        rotating = asyncio.create_task(ring.rotate(old.key.key_id, 1000))
        await asyncio.to_thread(store.rotated.wait, 120)
        revoking = asyncio.create_task(ring.revoke(old.key.key_id))
        removing = asyncio.create_task(ring.revoke_with(lambda: gone(store, old.key.key_id), identity.revoke))
        for _ in range(100):
            await asyncio.sleep(0)
        assert store.revoking == 0  # it waits for its turn
        store.go_on.set()
        new = await rotating
        assert (await revoking).revoked_ns == 10
        assert await removing == (old.key.key_id,)
        assert identity.identify(b"Bearer " + old.text.encode(), None) is None
        assert identity.identify(b"Bearer " + new.text.encode(), None) is not None

    run(main)


async def gone(store: MemoryStore, key_id: str) -> tuple[str, ...]:
    store.revoke_key(key_id, 10)
    return (key_id,)


def test_what_was_revoked_has_no_successor() -> None:
    async def main() -> None:
        store = MemoryStore()
        taken: list[Key] = []
        ring = Keyring(store, lambda: 10, taken.append)
        old = mint(tenant="a", app="chat", now_ns=1)
        store.add_key(old.key)
        both = await asyncio.gather(
            ring.revoke(old.key.key_id), ring.rotate(old.key.key_id, 1000), return_exceptions=True
        )
        assert isinstance(both[1], KeyNotFoundError)
        assert [key.revoked_ns for key in taken] == [10]

    run(main)


def test_what_there_is_not_is_told_and_the_next_goes_on() -> None:
    async def main() -> None:
        store = MemoryStore()
        ring = Keyring(store, lambda: 10, lambda _: None)
        for change in (ring.revoke("unknown"), ring.rotate("unknown", 1)):
            with pytest.raises(KeyNotFoundError):
                await change

    run(main)
