"""The audit log: who was allowed or denied what. Entries are only ever added, each chained to the one before it.

The hash of an entry is the SHA-256 of the hash before it and of the entry as a JSON list, without spaces, of its fields
from `number` to `policies`. The first one follows 32 zero bytes. So whoever changes, removes, adds or moves an entry
has to write anew all that follow it, and then the last hash is another one. What is cut off at the end leaves a chain
that is whole: only who kept a later `Head` can tell.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol

import msgspec

Outcome = Literal["allowed", "denied", "lost"]

FILTERABLE: Final = ("caller", "action", "tenant", "outcome")
BEGINNING: Final = bytes(32)  # what the first entry follows


class AuditEntry(msgspec.Struct, frozen=True):
    """Decisions alike, `count` of them, from `at_ns` until `until_ns`; the rest is of the first one.

    `tenant` is whose things it was about, "" where those of the platform or of several. `peer` is the address it came
    from. `policies` are those that decided. `lost` counts decisions that could not be kept. `number` counts entries,
    from 1, and `hash` chains them; they are 0 and b"" before one is kept.
    """

    at_ns: int
    until_ns: int
    count: int
    caller: str
    action: str
    tenant: str
    outcome: Outcome
    method: str = ""
    path: str = ""
    peer: str = ""
    policies: tuple[str, ...] = ()
    number: int = 0
    hash: bytes = b""

    @property
    def head(self) -> "Head":
        """The log as it is up to here."""
        return Head(self.number, self.hash)


class Head(msgspec.Struct, frozen=True):
    """How far the log goes, and the hash of its last entry: what to keep elsewhere. As text it is `NUMBER:HASH`."""

    number: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.number}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        """ValueError where this is no `NUMBER:HASH`."""
        number, _, digest = text.strip().partition(":")
        head = cls(int(number), bytes.fromhex(digest))
        if not 0 <= head.number < 2**63 or len(head.hash) != len(BEGINNING):
            raise ValueError(text)
        return head


EMPTY: Final = Head(0, BEGINNING)


class AuditStore(Protocol):
    """The part of a store that keeps the audit log. What it has taken survives a power cut."""

    def add_audit(self, entries: Sequence[AuditEntry]) -> Head:
        """Keeps these behind all others, in this order, all or none, and returns the new head."""

    def audit_head(self) -> Head:
        """The last entry's; EMPTY where there is none."""

    def audit(
        self, filters: Mapping[str, Sequence[str]], since_ns: int, until_ns: int, before: int | None, limit: int
    ) -> tuple[AuditEntry, ...]:
        """Entries that began in [since_ns, until_ns), the newest first, those with numbers below `before`.

        `filters` keeps what has one of the values of each of FILTERABLE named; none named keeps nothing. QueryError.
        """

    def audit_chain(self, after: int, limit: int) -> tuple[AuditEntry, ...]:
        """Entries in the order of their numbers, from the one after this number on."""


def chained(entries: Iterable[AuditEntry], head: Head) -> Iterator[AuditEntry]:
    """These entries as they are kept behind this head."""
    number, digest = head.number, head.hash
    for entry in entries:
        number += 1
        digest = link(digest, msgspec.structs.replace(entry, number=number))
        yield msgspec.structs.replace(entry, number=number, hash=digest)


def link(before: bytes, entry: AuditEntry) -> bytes:
    """The hash of an entry that follows the one with this hash."""
    fields = msgspec.structs.replace(entry, hash=b"")
    content = (
        fields.number,
        fields.at_ns,
        fields.until_ns,
        fields.count,
        fields.caller,
        fields.action,
        fields.tenant,
        fields.outcome,
        fields.method,
        fields.path,
        fields.peer,
        fields.policies,
    )
    return hashlib.sha256(before + msgspec.json.encode(content)).digest()


class Fault(msgspec.Struct, frozen=True):
    """Where the log is not as it was written, in a sentence."""

    number: int
    sentence: str


def faults(
    chain: Iterable[AuditEntry], kept: Iterable[Head] = (), start: Head = EMPTY, *, to_its_end: bool = True
) -> Iterator[Fault | Head]:
    """What is wrong with these entries, in order from the one after `start`; at last the head that they come to.

    `kept` are heads that were kept elsewhere: an entry that differs from one of them was tampered with even where the
    chain is whole. So was the log, where they are behind its end; it may go on where this is not `to_its_end`.
    """
    wanted = sorted({head for head in kept if head.number > start.number}, key=lambda head: (head.number, head.hash))
    wanted.reverse()
    number, digest = start.number, start.hash
    for entry in chain:
        if entry.number != number + 1:
            yield _gap(number, entry.number)
        elif link(digest, entry) != entry.hash:
            yield Fault(entry.number, f"Entry {entry.number} is not what was written, or not in its place.")
        number, digest = entry.number, entry.hash
        while wanted and wanted[-1].number <= number:
            head = wanted.pop()
            if head.number == number and head.hash != digest:
                yield Fault(number, f"Entry {number} is another one than the head that was kept: it was written anew.")
    for head in reversed(wanted) if to_its_end else ():
        yield Fault(head.number, f"The log ends at entry {number}, and the head that was kept is entry {head.number}.")
    yield Head(number, digest)


def _gap(before: int, number: int) -> Fault:
    missing = f"Entry {before + 1} is" if number == before + 2 else f"Entries {before + 1} to {number - 1} are"
    return Fault(before + 1, f"{missing} missing.")
