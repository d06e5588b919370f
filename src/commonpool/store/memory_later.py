"""What is answered later, in memory: the part of `store.memory` that keeps it."""

from commonpool.store.contract import StoreError
from commonpool.store.later import LaterHead, SealedLater


class MemoryLater:
    """A `LaterStore` that forgets everything at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._later: dict[str, SealedLater] = {}

    def laters(self) -> tuple[LaterHead, ...]:
        """See `LaterStore.laters`."""
        heads = (each.head for each in self._later.values())
        return tuple(sorted(heads, key=lambda head: (head.taken_ns, head.id)))

    def later(self, id_: str) -> SealedLater | None:
        """See `LaterStore.later`."""
        return self._later.get(id_)

    def add_later(self, entry: SealedLater) -> None:
        """See `LaterStore.add_later`."""
        if entry.head.id in self._later:
            raise StoreError(f"Something with the id {entry.head.id} is kept already.")
        self._later[entry.head.id] = entry

    def end_later(self, entry: SealedLater) -> bool:
        """See `LaterStore.end_later`."""
        known = self._later.get(entry.head.id)
        if known is None or known.head.status:
            return False
        self._later[entry.head.id] = entry
        return True

    def delete_later(self, id_: str) -> bool:
        """See `LaterStore.delete_later`."""
        return self._later.pop(id_, None) is not None
