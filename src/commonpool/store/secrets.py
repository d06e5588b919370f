"""What the store keeps of secrets: the data keys of tenants, wrapped. No key is in it that opens anything by itself."""

from typing import Protocol

import msgspec


class DataKey(msgspec.Struct, frozen=True):
    """The key that a tenant's secrets are encrypted with, wrapped by the master key whose id is `master`."""

    tenant: str
    created_ns: int
    master: str
    wrapped: bytes


class SecretStore(Protocol):
    """The part of a store that keeps data keys."""

    def data_keys(self) -> tuple[DataKey, ...]:
        """All of them, by tenant."""

    def data_key(self, tenant: str) -> DataKey | None:
        """A tenant's, None where it has none."""

    def add_data_key(self, key: DataKey) -> DataKey:
        """Keeps the key of a tenant that has none; returns the one that it has then."""

    def rewrap_data_key(self, old: DataKey, new: DataKey) -> bool:
        """Puts `new` in the place of `old`; False where that is not there any more."""

    def forget_data_key(self, tenant: str) -> None:
        """What was encrypted with it is lost."""
