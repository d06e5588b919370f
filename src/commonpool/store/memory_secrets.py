"""Data keys and prompts in memory: the part of `store.memory` that keeps them."""

from collections.abc import Sequence

from commonpool.store.prompts import PromptHead, PromptLog, PromptPlace, SealedPrompt
from commonpool.store.secrets import DataKey


class MemorySecrets:
    """A `SecretStore` and a `PromptStore` that forget everything at their end."""

    def __init__(self) -> None:
        super().__init__()
        self._data_keys: dict[str, DataKey] = {}
        self._prompt_logs: dict[str, PromptLog] = {}
        self._prompts: dict[tuple[str, int, str], SealedPrompt] = {}

    def data_keys(self) -> tuple[DataKey, ...]:
        """See `SecretStore.data_keys`."""
        return tuple(key for _, key in sorted(self._data_keys.items()))

    def data_key(self, tenant: str) -> DataKey | None:
        """See `SecretStore.data_key`."""
        return self._data_keys.get(tenant)

    def add_data_key(self, key: DataKey) -> DataKey:
        """See `SecretStore.add_data_key`."""
        return self._data_keys.setdefault(key.tenant, key)

    def rewrap_data_key(self, old: DataKey, new: DataKey) -> bool:
        """See `SecretStore.rewrap_data_key`."""
        if self._data_keys.get(old.tenant) != old:
            return False
        self._data_keys[old.tenant] = new
        return True

    def forget_data_key(self, tenant: str) -> None:
        """See `SecretStore.forget_data_key`."""
        self._data_keys.pop(tenant, None)

    def prompt_logs(self) -> tuple[PromptLog, ...]:
        """See `PromptStore.prompt_logs`."""
        return tuple(log for _, log in sorted(self._prompt_logs.items()))

    def save_prompt_log(self, log: PromptLog) -> None:
        """See `PromptStore.save_prompt_log`."""
        self._prompt_logs[log.tenant] = log

    def drop_prompt_log(self, tenant: str) -> None:
        """See `PromptStore.drop_prompt_log`."""
        self._prompt_logs.pop(tenant, None)

    def add_prompts(self, entries: Sequence[SealedPrompt]) -> None:
        """See `PromptStore.add_prompts`."""
        for each in entries:
            self._prompts.setdefault((each.head.tenant, each.head.at_ns, each.head.request_id), each)

    def prompts(self, tenant: str, before: PromptPlace | None, limit: int) -> tuple[PromptHead, ...]:
        """See `PromptStore.prompts`."""
        ordered = sorted((each.head for each in self._of(tenant)), key=_place, reverse=True)
        return tuple(head for head in ordered if before is None or _place(head) < before)[:limit]

    def prompt(self, tenant: str, request_id: str) -> SealedPrompt | None:
        """See `PromptStore.prompt`."""
        return next((each for each in self._of(tenant) if each.head.request_id == request_id), None)

    def prompt_bytes(self, tenant: str) -> int:
        """See `PromptStore.prompt_bytes`."""
        return sum(each.head.size for each in self._of(tenant))

    def delete_prompts(self, tenant: str, request_id: str | None = None) -> int:
        """See `PromptStore.delete_prompts`."""
        gone = [each for each in self._of(tenant) if request_id in (None, each.head.request_id)]
        return self._delete(gone)

    def trim_prompts(self, tenant: str, before_ns: int, bytes_max: int) -> int:
        """See `PromptStore.trim_prompts`."""
        gone = []
        left = self.prompt_bytes(tenant)
        for each in sorted(self._of(tenant), key=lambda each: _place(each.head)):
            if each.head.at_ns >= before_ns and left <= bytes_max:
                break
            gone.append(each)
            left -= each.head.size
        return self._delete(gone)

    def _of(self, tenant: str) -> list[SealedPrompt]:
        return [each for each in self._prompts.values() if each.head.tenant == tenant]

    def _delete(self, gone: Sequence[SealedPrompt]) -> int:
        for each in gone:
            del self._prompts[each.head.tenant, each.head.at_ns, each.head.request_id]
        return len(gone)


def _place(head: PromptHead) -> PromptPlace:
    return head.at_ns, head.request_id
