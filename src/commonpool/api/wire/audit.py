"""The audit log, and whether it is whole."""

import msgspec

from commonpool.store.audit import Fault, Outcome


class AuditEntry(msgspec.Struct, frozen=True):
    """Decisions alike, `count` of them, from `at_ns` until `until_ns`; the rest is of the first one.

    `tenant` is whose things it was about, "" where those of the platform or of several. `lost` counts decisions that
    could not be kept. `hash` is in hexadecimal: docs/authorization.md says what it is made of.
    """

    number: int
    at_ns: int
    until_ns: int
    count: int
    caller: str
    action: str
    tenant: str
    outcome: Outcome
    method: str
    path: str
    peer: str
    policies: tuple[str, ...]
    hash: str


class AuditEntries(msgspec.Struct, frozen=True):
    """Entries, the newest first. `after` asks for those that follow, None where these are the last."""

    entries: tuple[AuditEntry, ...]
    after: str | None


class AuditVerdict(msgspec.Struct, frozen=True):
    """Whether the log is as it was written, up to `head`: `faults` says where it is not.

    `more`: it may go on behind that; ask again `after` it. The last head is what to keep elsewhere.
    """

    whole: bool
    head: str
    faults: tuple[Fault, ...]
    more: bool
