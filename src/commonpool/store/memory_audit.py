"""The audit log in memory: the part of `store.memory` that keeps it."""

from collections.abc import Mapping, Sequence

from commonpool.store.audit import EMPTY, AuditEntry, Head, chained
from commonpool.store.summary import check_audit


class MemoryAudit:
    """An `audit.AuditStore` that forgets everything at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._audit: list[AuditEntry] = []

    def add_audit(self, entries: Sequence[AuditEntry]) -> Head:
        """See `AuditStore.add_audit`."""
        self._audit += list(chained(entries, self.audit_head()))
        return self.audit_head()

    def audit_head(self) -> Head:
        """See `AuditStore.audit_head`."""
        return self._audit[-1].head if self._audit else EMPTY

    def audit(
        self, filters: Mapping[str, Sequence[str]], since_ns: int, until_ns: int, before: int | None, limit: int
    ) -> tuple[AuditEntry, ...]:
        """See `AuditStore.audit`."""
        check_audit(filters, since_ns, until_ns)
        found = (
            entry
            for entry in reversed(self._audit)
            if since_ns <= entry.at_ns < until_ns
            and (before is None or entry.number < before)
            and all(getattr(entry, name) in allowed for name, allowed in filters.items())
        )
        return tuple(entry for entry, _ in zip(found, range(limit), strict=False))

    def audit_chain(self, after: int, limit: int) -> tuple[AuditEntry, ...]:
        """See `AuditStore.audit_chain`."""
        return tuple(self._audit[after : after + limit])
