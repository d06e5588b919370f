"""Stores of earlier releases, with what they kept, opened by this one."""

import re
from contextlib import closing
from importlib import resources

import pytest

from commonpool.core.model import Cause, Hardware, Job, Wait
from commonpool.core.underuse import Demand
from commonpool.store.contract import ConfigRevision, Key, StoreError
from commonpool.store.jobs import JobAttempt, JobRecord, JobState, Task
from commonpool.store.releases import Release
from tests.store.places import Place
from tests.store.records import DAY, T0, loan, usage_record

_USAGE = (
    "'a', 'chat', 'cc-1', 'm', '1', 'interactive', 'chat', 1, 'main', 'm-0', 'completed', 200, '',"
    f" {T0}, 5, 10, 25, 20, 100, 40, 30, 'engine', 250, 5000, 2000000"
)
# What a release with this schema had written.
KEPT = {
    1: f"""
    INSERT INTO usage VALUES ('r1', 1, {_USAGE});
    INSERT INTO loans VALUES ('r1', 1, 0, 'b', 'a', 250, {T0}, {T0 + 20}, 'task_done');
    INSERT INTO keys VALUES
        ('k1', X'73616c74', X'646967657374', 'data', 'a', 'chat', 'batch', '["m"]', 5, NULL, 9, 'of Ann');
    INSERT INTO config_history VALUES (1, 10, '{{"c.yaml": "pools: {{}}"}}');
    """,
    2: f"""
    INSERT INTO usage VALUES ('r2', 1, {_USAGE}, '[["own_queue", "", 3], ["elastic_cap", "a", 2]]');
    """,
    3: """
    INSERT INTO jobs VALUES ('j1', 'a', 5, 6, 'failed', 1, 8, 'why',
        '[{"id": "j1", "tenant": "a", "app": "default", "pool": "main", "tier": "batch", "milli_gpu": 2000,
           "hardware": {"milli_gpu": 2000}}, {"command": ["train"], "cwd": "/home", "env": {}}]');
    INSERT INTO job_attempts VALUES ('j1', 1, 'n0', '["n0/0"]', 6, 8, -9);
    """,
    4: f"""
    INSERT INTO usage VALUES ('r4', 1, {_USAGE}, '[]', 3);
    """,
    5: """
    INSERT INTO releases VALUES (1, 'a', 1500, 10, 'local', 'summer', NULL, NULL), (2, 'b', 5, 20, 'k1', '', 30, 'k2');
    INSERT INTO demand VALUES ('a', 5, '[0, 7]');
    """,
    6: """
    INSERT INTO job_attempts VALUES ('j1', 2, 'n0', '["n0/1"]', 7, NULL, NULL, 500, 10240);
    """,
}


def store_of(place: Place, version: int) -> None:
    """A store as the release with this schema left it."""
    files = resources.files("commonpool.store").joinpath("migrations").iterdir()
    texts = {int(file.name[:4]): file.read_text() for file in files if re.match(r"\d{4}_", file.name)}
    place.run("CREATE TABLE schema_version (version INTEGER NOT NULL PRIMARY KEY)")
    for number in range(1, version + 1):
        place.run(f"{texts[number]}; INSERT INTO schema_version VALUES ({number})")
        place.run(KEPT[number])


@pytest.mark.parametrize("version", KEPT)
def test_what_an_earlier_release_kept_is_kept(place: Place, version: int) -> None:
    # given a store of this schema, when it is opened
    store_of(place, version)
    with closing(place.open()) as store:
        # then everything that was in it is there
        first = usage_record("r1", loans=(loan("b"),))
        waited = usage_record("r2", waits=(Wait(Cause.OWN_QUEUE, "", 3), Wait(Cause.ELASTIC_CAP, "a", 2)))
        huge = usage_record("r4", milli_gpu_ns=3 * 10**18 + 5000)
        kept = [first, waited, huge][: 1 + (version >= 2) + (version >= 4)]
        assert store.records(T0, T0 + DAY, None, 9) == tuple(kept)
        assert store.usage([], T0, T0 + DAY).total.milli_gpu_ns == sum(record.milli_gpu_ns for record in kept)
        assert store.list_keys() == (
            Key("k1", b"salt", b"digest", "data", "a", "chat", 5, "batch", ("m",), revoked_ns=9, note="of Ann"),
        )
        assert store.configs() == (ConfigRevision(1, 10, {"c.yaml": "pools: {}"}),)
        job = Job("j1", "a", "default", "main", "batch", 2000, hardware=Hardware(2000))
        attempts = (JobAttempt(1, "n0", ("n0/0",), 6, 8, -9), JobAttempt(2, "n0", ("n0/1",), 7, None, None, 500, 10240))
        latest = attempts[version >= 6]
        failed = JobRecord(job, Task(("train",), "/home", {}), 5, 6, JobState.FAILED, 1, 8, "why", latest)
        assert store.job("j1") == (failed if version >= 3 else None)
        assert store.job_attempts("j1", 9) == attempts[: (version >= 3) + (version >= 6)]
        releases = (Release("b", 5, 20, "k1", "", 2, 30, "k2"), Release("a", 1500, 10, "local", "summer", 1))
        assert store.releases() == (releases if version >= 5 else ())
        assert store.demand() == ((Demand("a", 5, (0, 7)),) if version >= 5 else ())
        # and it takes more: what was there before counts once
        assert store.add_usage([first, usage_record("r9")]) == ()
        assert store.usage([], T0, T0 + DAY).total.attempts == len(kept) + 1


def test_a_newer_schema_is_refused(place: Place) -> None:
    place.open().close()
    place.run("INSERT INTO schema_version VALUES (99)")
    newest = max(int(file.name[:4]) for file in resources.files("commonpool.store").joinpath("migrations").iterdir())
    for _ in range(2):  # the refusal gives the locks back
        with pytest.raises(
            StoreError, match=rf"has schema 99 and this version of commonpool knows {newest} at most: use the version"
        ):
            place.open()


def test_a_migration_that_fails_leaves_nothing_behind(place: Place) -> None:
    place.run("CREATE TABLE loans (mine INTEGER)")
    with pytest.raises(StoreError, match=r"cannot be opened \(.*\bloans.* already exists\)"):
        place.open()
    assert place.tables() == {"loans", "schema_version"}
    assert place.rows("SELECT * FROM schema_version") == []
    place.run("DROP TABLE loans")
    place.open().close()
    assert {"usage", "loans", "keys"} < place.tables()
