"""Given a store, when the product starts or a configuration is applied, then which is in force, and what is kept."""

import asyncio

import pytest

from commonpool.api.operations import ConflictError, OperationError, UnavailableError
from commonpool.app.revisions import Revisions
from commonpool.config import Config, Sources, parse_sources
from commonpool.control.replicas import StartError
from commonpool.core.english import english
from commonpool.store.contract import ConfigRevision, StoreError
from commonpool.store.memory import MemoryStore
from tests.api.fakes import CONFIG, sources

CHANGED = CONFIG.replace("guaranteed: 1_gpu", "guaranteed: 2_gpu")


class Full(MemoryStore):
    """A store that takes no configuration but the first."""

    def add_config(self, config: ConfigRevision) -> None:
        if config.revision > 1:
            raise StoreError("the disk is full")
        super().add_config(config)


def revisions(store: MemoryStore, text: str = CONFIG, now: int = 7) -> Revisions:
    files = sources(text)
    return Revisions(store, lambda: now, files, parse_sources(files))


def apply(held: Revisions, text: str, revision: int, unfit: str = "") -> list[Config]:
    """Returns what was begun."""
    begun = []

    def check(_config: Config) -> None:
        if unfit:
            raise StartError(unfit)

    async def begin(config: Config) -> None:
        assert config is held.config
        begun.append(config)

    files = sources(text)
    asyncio.run(held.apply(files, parse_sources(files), revision, check=check, begin=begin))
    return begun


def test_the_first_start_keeps_the_file_as_revision_one() -> None:
    store = MemoryStore()
    held = revisions(store)
    assert held.config.policy.revision == 1
    assert store.configs(10) == (ConfigRevision(1, 7, sources().files),)
    assert held.notes == ()


def test_the_same_file_is_the_same_revision_wherever_it_lies() -> None:
    store = MemoryStore()
    revisions(store)
    moved = Sources("/elsewhere/commonpool.yaml", {"/elsewhere/commonpool.yaml": CONFIG})
    held = Revisions(store, lambda: 8, moved, parse_sources(moved))
    assert held.config.policy.revision == 1
    assert len(store.configs(10)) == 1


def test_the_file_wins_over_what_was_applied_and_says_so() -> None:
    store = MemoryStore()
    (applied,) = apply(revisions(store), CHANGED, 1)
    assert applied.policy.revision == 2
    held = revisions(store, now=9)
    assert held.config.policy.revision == 3
    assert held.config.policy.tenants["research"].guaranteed == 1000
    assert [each.revision for each in store.configs(10)] == [3, 2, 1]
    (note,) = held.notes
    assert "revision 2" in english(note)
    apply(held, CHANGED, 3)
    assert held.notes == ()


@pytest.mark.parametrize(
    ("store", "revision", "unfit", "error"),
    [
        (MemoryStore(), 2, "", ConflictError),
        (MemoryStore(), 1, "It does not fit.", OperationError),
        (Full(), 1, "", UnavailableError),
    ],
)
def test_what_cannot_be_applied_changes_nothing(
    store: MemoryStore, revision: int, unfit: str, error: type[OperationError]
) -> None:
    held = revisions(store)
    before = held.config
    with pytest.raises(error):
        apply(held, CHANGED, revision, unfit)
    assert held.config is before
    assert held.sources == sources()
    assert len(store.configs(10)) == 1
