"""Which store a configuration names, and what a person is told when there is none."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from commonpool.config import Config, parse
from commonpool.store.contract import StoreError
from commonpool.store.opening import open_store
from commonpool.store.postgres import PostgresStore
from commonpool.store.sqlite import FILE, SqliteStore
from tests.store.places import PostgresPlace

CONFIG = """
pools: {main: {gpus: 1}}
models: {m: {version: 1, gpu: 1, slots: 1, context: 10, engine: {kind: embedded, file: x}}}
prices: {currency: EUR, gpu_hour: {main: 1}}
"""

WITHOUT_ASYNCPG = """
import sys
sys.modules["asyncpg"] = None
from pathlib import Path
import msgspec
from commonpool.config import parse
from commonpool.store.contract import StoreError
from commonpool.store.opening import open_store
try:
    parsed = parse(sys.argv[1])
    open_store(msgspec.structs.replace(parsed, state=Path(sys.argv[2]), store_url="postgresql://db/books"))
except StoreError as error:
    print(error)
"""


def config(folder: str, url: str | None) -> Config:
    return msgspec.structs.replace(parse(CONFIG), state=Path(folder) / "state", store_url=url)


def test_it_is_sqlite_in_the_state_folder_where_nothing_is_said(tmp_path: Path) -> None:
    with closing(open_store(config(str(tmp_path), None), {})) as store:
        assert isinstance(store, SqliteStore)
    assert (tmp_path / "state" / FILE).exists()


@pytest.mark.parametrize("where", ["as it is", "env", "file"])
def test_it_is_postgresql_where_a_url_is_said(postgres: PostgresPlace, tmp_path: Path, where: str) -> None:
    (tmp_path / "url").write_text(f"{postgres.url}\n")
    url = {"as it is": postgres.url, "env": "env:BOOKS", "file": f"file:{tmp_path}/url"}[where]
    with closing(open_store(config(str(tmp_path), url), {"BOOKS": postgres.url})) as store:
        assert isinstance(store, PostgresStore)
        assert store.configs() == ()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("env:NONE", "store.url is env:NONE, and the environment variable NONE is not set; set it."),
        ("file:/none", "store.url is file:/none, and that file cannot be read: No such file or directory."),
        (
            "env:OTHER",
            (
                "store.url is env:OTHER, and what is there is no URL of a PostgreSQL database; write it like "
                "postgresql://USER:PASSWORD@HOST:5432/DATABASE."
            ),
        ),
    ],
)
def test_a_url_that_is_not_there_is_one_sentence(tmp_path: Path, url: str, sentence: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(config(str(tmp_path), url), {"OTHER": "mysql://u:hidden@db"})
    assert str(caught.value) == sentence


def test_without_the_driver_it_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ASYNCPG, CONFIG, tmp_path],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == (
        "store.url names a PostgreSQL database, and asyncpg is not installed; run "
        "`pip install 'commonpool[postgresql]'`.\n"
    )
