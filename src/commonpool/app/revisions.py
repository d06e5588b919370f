"""Which configuration is in force: that of the file at the start, then whatever was applied last.

Each has a number, its revision, and is kept in the store before it holds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from commonpool.api.operations import ConflictError, OperationError, UnavailableError
from commonpool.config import Config, Sources
from commonpool.control.replicas import StartError
from commonpool.core.said import Said, say
from commonpool.store.contract import ConfigRevision, Store, StoreError


class Revisions:
    """Belongs to one event loop. `config` is in force, `sources` are its files, `notes` say what is odd about it."""

    def __init__(self, store: Store, clock: Callable[[], int], sources: Sources, config: Config) -> None:
        """The file wins over what was applied last; its revision follows on, and a difference is noted. Blocks."""
        self._store = store
        self._clock = clock
        self._applying = asyncio.Lock()
        self.sources = sources
        self.notes: tuple[Said, ...] = ()
        last = next(iter(store.configs(1)), None)
        before = last.revision if last else 0
        revision = before + 1
        if last and _named(last.sources) == _named(sources.files):
            revision = before
        elif last:
            self.notes = (say("note.file_wins", file=sources.main, revision=str(before)),)
        if revision != before:
            store.add_config(ConfigRevision(revision, clock(), sources.files))
        self.config = _numbered(config, revision)

    async def apply(
        self,
        sources: Sources,
        config: Config,
        revision: int,
        *,
        check: Callable[[Config], None],
        begin: Callable[[Config], Awaitable[None]],
    ) -> None:
        """Keep it as `revision + 1`, then `begin` to work by it; one at a time.

        Nothing is changed where `revision` is not in force any more (ConflictError), `check` raises StartError
        (OperationError), or it cannot be kept (UnavailableError).
        """
        async with self._applying:
            if revision != self.config.policy.revision:
                raise ConflictError(
                    f"revision {self.config.policy.revision} is in force now, not {revision}; try again"
                )
            try:
                check(config)
            except StartError as error:
                raise OperationError(f"Nothing was changed. {error}") from error
            try:
                kept = ConfigRevision(revision + 1, self._clock(), sources.files)
                await asyncio.to_thread(self._store.add_config, kept)
            except StoreError as error:
                raise UnavailableError(
                    f"the configuration could not be kept, so nothing was changed: {error}"
                ) from error
            self.config = _numbered(config, revision + 1)
            self.sources = sources
            self.notes = ()
            await begin(self.config)


def _numbered(config: Config, revision: int) -> Config:
    return msgspec.structs.replace(config, policy=msgspec.structs.replace(config.policy, revision=revision))


def _named(files: Mapping[str, str]) -> dict[str, str]:
    """The texts by the names of their files, wherever those lie: a tenant's file is called as the tenant is."""
    return {Path(file).name: text for file, text in files.items()}
