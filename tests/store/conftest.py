"""The stores to test, and a PostgreSQL server for the time of all tests."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from commonpool.store.contract import Store
from commonpool.store.memory import MemoryStore
from commonpool.store.sql.base import SqlStore
from tests.store.places import Place, PostgresPlace, SqlitePlace
from tests.store.server import PostgresServer


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with closing(PostgresServer()) as running:
        yield running


@pytest.fixture
def postgres(server: PostgresServer, tmp_path: Path) -> Iterator[PostgresPlace]:
    """A new place in it."""
    with closing(PostgresPlace(server, tmp_path / "state")) as place:
        yield place


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a store over SQL can be, of each kind in turn."""
    if request.param == "sqlite":
        return SqlitePlace(tmp_path / "state")
    found: PostgresPlace = request.getfixturevalue("postgres")
    return found


@pytest.fixture
def sql_store(place: Place) -> Iterator[SqlStore]:
    with closing(place.open()) as opened:
        yield opened


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each kind of store in turn, empty."""
    opened: Store
    match request.param:
        case "memory":
            opened = MemoryStore()
        case "sqlite":
            opened = SqlitePlace(tmp_path / "state").open()
        case _:
            opened = request.getfixturevalue("postgres").open()
    with closing(opened):
        yield opened
