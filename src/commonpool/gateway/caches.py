"""What keeps tenants apart in the prompt caches of engines.

An engine does not read again what begins like something that it has read before; how soon it answers, and the
`cached_tokens` that it tells, say so. Each attempt therefore names the part of the cache that it may use, by what its
engine offers (`engines.base.Adapter`): a salt of its tenant's, a slot that holds a prompt of its tenant's, or none.

**Slots** (ADR 21). A slot holds the prompt that ran in it last. An attempt is sent to a slot by its number, and may use
what the slot holds where that is its own tenant's. What is known here is the order in which attempts were sent, and the
engine's may be another one:

- An attempt that was given up before the engine took it up may run yet, behind later ones. Until it has *landed*, which
  the engine tells by its answer or by closing the connection, nobody knows what its slot holds. One that landed without
  having run (it was refused) leaves there what there was.
- A *loose* attempt (an embedding, several sequences) is put into slots by the engine. While one is on its way, or may
  be, nobody knows what any slot holds; and it waits until those have landed that use what theirs holds.

What is not known is not used.
"""

import hashlib
import hmac
import os
from typing import Final, Literal

import msgspec

from commonpool.core.effects import Dispatch
from commonpool.core.model import Replica, Request
from commonpool.engines.base import Target

SALT_BYTES: Final = 16  # of the digest, as hexadecimal digits: no engine takes them for anything else
SALTS_MAX: Final = 4096
_NO: Final = b"false"
_YES: Final = b"true"

Tells = Literal["nothing", "head", "whole"]


class Part(msgspec.Struct, frozen=True, gc=False):
    """The part of an engine's prompt cache that one attempt may use.

    `fields` go into its body, each with its value as JSON. `tells` is what of the answer shows that the attempt has
    landed, "nothing" where nobody needs to know.
    """

    fields: dict[str, bytes]
    tells: Tells = "nothing"


ALL: Final = Part({})


class HeldError(Exception):
    """The attempt is to be sent later: `Caches.landed` or `Caches.ended` gives it back."""


class _Slots:
    """The slots of one replica."""

    __slots__ = ("doubts", "flying", "free", "held", "holder", "loose", "mixed")

    def __init__(self, count: int) -> None:
        self.free = list(range(count))  # the one used longest ago first
        self.holder = [""] * count  # whose prompt a free slot holds; "" where that is not known
        self.mixed = [False] * count  # something else may have run in it beside the attempt that has it
        self.doubts = [0] * count  # attempts that have ended and may yet run there
        self.loose = 0  # loose attempts that run, or may yet
        self.flying = 0  # attempts that use what their slot holds, and have not landed
        self.held: list[Dispatch] = []

    def take(self, tenant: str) -> tuple[int, bool]:
        """A free slot, and whether the tenant may use what it holds."""
        slot = self._choice(tenant)
        uses = self.holder[slot] == tenant and not self.held
        self.free.remove(slot)
        self.holder[slot] = ""
        self.mixed[slot] = self.loose > 0 or self.doubts[slot] > 0
        self.flying += uses
        return slot, uses

    def loosen(self) -> None:
        """The engine puts something into slots."""
        self.loose += 1
        self.holder = [""] * len(self.holder)
        self.mixed = [True] * len(self.mixed)

    def give(self, slot: int, tenant: str, *, landed: bool, holds: bool) -> None:
        """The attempt that had the slot has ended. `holds`: it left nothing but its tenant's there."""
        self.free.append(slot)
        if not landed:
            self.doubts[slot] += 1
        elif holds and not self.mixed[slot]:
            self.holder[slot] = tenant

    def release(self) -> list[Dispatch]:
        """What was held, when it need not wait any more."""
        if not self.held or self.flying:
            return []
        held, self.held = self.held, []
        return held

    def _choice(self, tenant: str) -> int:
        """One that holds a prompt of the tenant's, the latest; else one that holds nobody's; else the oldest."""
        holder = self.holder
        for slot in reversed(self.free):
            if holder[slot] == tenant:
                return slot
        for slot in self.free:
            if not holder[slot]:
                return slot
        return self.free[0]


class _Attempt:
    """An attempt in a slot, or a loose one (None)."""

    __slots__ = ("ended", "landed", "ran", "slot", "slots", "tenant", "uses")

    def __init__(self, slots: _Slots, tenant: str, slot: int | None = None, *, uses: bool = False) -> None:
        self.slots = slots
        self.tenant = tenant
        self.slot = slot
        self.uses = uses
        self.landed = False
        self.ran = False
        self.ended = False

    def land(self, *, ran: bool) -> None:
        if self.landed:
            return
        self.landed = True
        self.ran = ran
        slots = self.slots
        if not self.ended:
            slots.flying -= self.uses
        elif self.slot is None:
            slots.loose -= 1
        else:
            slots.doubts[self.slot] -= 1

    def end(self) -> None:
        if self.ended:
            return
        self.ended = True
        slots = self.slots
        if self.slot is None:
            slots.loose -= self.landed
            return
        if not self.landed:
            slots.flying -= self.uses  # nobody is left who would see what it finds
        slots.give(self.slot, self.tenant, landed=self.landed, holds=self.ran or self.uses)


class Caches:
    """The prompt caches of all replicas. `key` is the secret that salts are made with, or one of this process alone."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or os.urandom(32)
        self._salts: dict[str, bytes] = {}
        self._slots: dict[str, _Slots] = {}
        self._attempts: dict[tuple[str, int], _Attempt] = {}  # those in slots that have not both ended and landed

    def replica_ready(self, replica: Replica, target: Target, *, ours: bool) -> None:
        """`ours`: nothing can be in it that was not sent from here."""
        if ours and target.adapter.slot_field is not None:
            self._slots[replica.id] = _Slots(replica.slots)

    def replica_lost(self, replica_id: str) -> list[Dispatch]:
        """Returns what was held for it, which has to be dispatched elsewhere."""
        slots = self._slots.pop(replica_id, None)
        if slots is None:
            return []
        self._attempts = {name: each for name, each in self._attempts.items() if each.slots is not slots}
        return slots.held

    def part(self, request: Request, effect: Dispatch, target: Target) -> Part:
        """What an attempt may use. Raises HeldError."""
        adapter = target.adapter
        if adapter.salt_field is not None:
            return Part({adapter.salt_field: self._salt(request.tenant)})
        if adapter.cache_field is None:
            return ALL
        slots = self._slots.get(effect.replica_id)
        if slots is None or adapter.slot_field is None:
            return Part({adapter.cache_field: _NO})
        name = (effect.request_id, effect.attempt)
        if request.endpoint == "embeddings" or request.sequences > 1 or not slots.free:
            if slots.flying:
                slots.held.append(effect)
                raise HeldError
            slots.loosen()
            self._attempts[name] = _Attempt(slots, request.tenant)
            return Part({adapter.cache_field: _NO}, "whole")
        slot, uses = slots.take(request.tenant)
        self._attempts[name] = _Attempt(slots, request.tenant, slot, uses=uses)
        return Part({adapter.slot_field: b"%d" % slot, adapter.cache_field: _YES if uses else _NO}, "head")

    def landed(self, request_id: str, attempt: int, *, ran: bool) -> list[Dispatch]:
        """The engine has taken it up, or never will: what is sent to its slot from now on runs behind it.

        `ran`: it certainly runs, or did. Returns what was held and is to be sent now.
        """
        found = self._attempts.get((request_id, attempt))
        if found is None:
            return []
        found.land(ran=ran)
        return self._moved(found, (request_id, attempt))

    def ended(self, request_id: str, attempt: int) -> list[Dispatch]:
        """It has ended for everybody but the engine, if it has not landed. Returns what was held and is to be sent."""
        found = self._attempts.get((request_id, attempt))
        if found is None:
            return []
        found.end()
        return self._moved(found, (request_id, attempt))

    def _moved(self, found: _Attempt, name: tuple[str, int]) -> list[Dispatch]:
        if found.landed and found.ended:
            del self._attempts[name]
        return found.slots.release()

    def _salt(self, tenant: str) -> bytes:
        """As JSON. The name's length goes before it: whatever may follow it one day, no two are alike."""
        salt = self._salts.get(tenant)
        if salt is None:
            if len(self._salts) >= SALTS_MAX:
                self._salts.clear()
            name = tenant.encode()
            digest = hmac.digest(self._key, len(name).to_bytes(4, "big") + name, hashlib.sha256)
            salt = self._salts[tenant] = b'"%b"' % digest[:SALT_BYTES].hex().encode()
        return salt
