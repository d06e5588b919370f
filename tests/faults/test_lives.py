"""The product ends after any step of the life of a request, a flush, an hour or a migration, and its books close."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commonpool.core.model import NS_PER_HOUR
from commonpool.store.sql.migrations import missing_migrations
from commonpool.store.sqlite import FILE, SqliteStore
from tests.store.records import loan, usage_record

ROOT = Path(__file__).parents[2]
# Applies the migrations up to each one, and of that one so many statements, each time in a process that then ends.
MIGRATING = """
import os, sqlite3, sys
from pathlib import Path
from commonpool.store.sql.migrations import missing_migrations
from commonpool.store.sqlite import FILE

def statements(text):
    lines = [line.partition("--")[0] for line in text.splitlines()]
    return [each for each in "\\n".join(lines).split(";") if each.strip()]

def migrate(folder, number, last):
    database = sqlite3.connect(folder / FILE, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE schema_version (version INTEGER NOT NULL PRIMARY KEY)")
    for earlier, text in migrations:
        if earlier < number:
            database.executescript(f"BEGIN IMMEDIATE; {text}; INSERT INTO schema_version VALUES ({earlier}); COMMIT;")
    database.execute("BEGIN IMMEDIATE")
    for statement in statements(dict(migrations)[number])[:last]:
        database.execute(statement)

migrations = list(missing_migrations(0, "the store"))
for number, text in migrations:
    for last in range(len(statements(text)) + 1):
        folder = Path(sys.argv[1]) / f"{number:04}-{last:04}"
        folder.mkdir()
        child = os.fork()
        if not child:
            migrate(folder, number, last)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
"""
STEPS = {
    "up",
    "dispatch noted",
    "sent",
    "first byte",
    "recorded",
    "answered",
    "submitted",
    "started",
    "job ended",
    "metered",
    "hour noted",
    "records committed",
    "meters committed",
    "running saved",
    "store synced",
    "flushed",
    "hour half closed",
    "hour closed",
}
CAPACITY = 3000


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The same three hours, whole and killed after each step and once more in the life that follows."""
    command = [sys.executable, "-m", "tests.faults.lives", str(tmp_path_factory.mktemp("lives"))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_every_step_is_one_to_be_killed_after(lives: list[dict[str, Any]]) -> None:
    whole, *killed = lives
    assert set(whole["steps"]) == STEPS
    assert [life["kills"][0] for life in killed] == list(range(1, len(whole["steps"]) + 1))


def test_each_attempt_has_one_record_whatever_is_killed(lives: list[dict[str, Any]]) -> None:
    for life in lives:
        records = life["records"]
        # none is sent twice, and what was sent is recorded: completed where the client was told so
        assert len(set(life["sent"])) == len(life["sent"]), life["kills"]
        assert set(life["sent"]) <= set(records), life["kills"]
        assert {records[attempt] for attempt in life["answered"]} <= {"completed"}, life["kills"]
        # what is recorded beside that was noted and not sent any more: at most one by each kill
        beside = set(records) - set(life["sent"])
        assert len(beside) <= len(life["kills"]), life["kills"]
        assert {records[attempt] for attempt in beside} <= {"failed"}, life["kills"]
        assert life["running"] == [], life["kills"]
        assert life["heard"] == [], life["kills"]


def test_a_killed_life_loses_only_what_was_under_way(lives: list[dict[str, Any]]) -> None:
    whole, *killed = lives
    assert set(whole["records"].values()) == {"completed", "failed"}
    assert sum(outcome == "failed" for outcome in whole["records"].values()) == 1  # the one that its engine failed
    assert all(life["records"] for life in killed)
    assert sum(life["records"] != whole["records"] for life in killed) > len(killed) // 2  # the kills do something


def test_every_hour_closes_once_with_capacity_times_time(lives: list[dict[str, Any]]) -> None:
    for life in lives:
        assert life["hours"] == [0, 1, 2], life["kills"]
        assert life["charged"] == life["there"], life["kills"]
        assert life["there"][1:] == [CAPACITY * NS_PER_HOUR] * 2, life["kills"]
        # all that ran, and nothing twice, is somebody's: its tenant's, or the platform's
        assert life["posted"] == life["used"] > 0, life["kills"]


def test_a_migration_that_is_killed_after_any_statement_is_begun_again(tmp_path: Path) -> None:
    # given processes that applied some of the migrations, and ended after any statement of the next one
    subprocess.run([sys.executable, "-c", MIGRATING, str(tmp_path)], check=True, cwd=ROOT)
    kept = usage_record("r1", loans=(loan("b"),))
    every = [number for number, _ in missing_migrations(0, "the store")]
    folders = sorted(tmp_path.iterdir())
    assert len(folders) > 2 * len(every)
    for folder in folders:
        # then the next process finds the store as it was, and brings it up to date
        with closing(SqliteStore(folder)) as store:
            store.add_usage([kept])
            assert store.record("r1") == (kept,)
        with closing(sqlite3.connect(folder / FILE)) as database:
            found = database.execute("SELECT version FROM schema_version ORDER BY version").fetchall()
        assert [version for (version,) in found] == every
