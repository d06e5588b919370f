"""A real `kill -9` at every step of the closing of an hour."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from commonpool.core.model import NS_PER_HOUR as HOUR
from commonpool.store.contract import Store
from commonpool.store.ledger import Reading
from tests.store.ledgers import NOTHING, noted, posting, ran
from tests.store.places import Place, SqlitePlace
from tests.store.records import T0

# Closes an hour and dies at the step of its transaction that it is told, the last one is its commit.
CHILD = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from commonpool.store.ledger import Closing
from commonpool.store.postgres import PostgresStore
from commonpool.store.sqlite import SqliteStore
from tests.store.records import T0
from tests.store.ledgers import NOTHING, posting

place, url, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
steps = 0

def step():
    global steps
    steps += 1
    if steps > last:
        os.kill(os.getpid(), signal.SIGKILL)

class Mortal:
    def __init__(self, connection):
        self.query = self._counted(connection.query)
        self.run = self._counted(connection.run)
        self.insert = self._counted(connection.insert)

    def _counted(self, function):
        def called(*args):
            result = function(*args)
            step()
            return result
        return called

class Store(PostgresStore if url else SqliteStore):
    @contextmanager
    def _transaction(self, *, durable):
        with super()._transaction(durable=durable) as connection:
            yield Mortal(connection)
        step()

store = Store(url, place) if url else Store(place)
work = store.hour_work("main", T0)
assert store.close_hour(Closing("main", T0, (posting(),), NOTHING, work))
print(steps)
"""


def close_in_a_child(place: Place, last: int) -> subprocess.CompletedProcess[str]:
    url = "" if isinstance(place, SqlitePlace) else place.url
    return subprocess.run(
        [sys.executable, "-c", CHILD, place.folder, url, str(last)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


def kept(store: Store) -> tuple[int, int, int, int]:
    """What there is of a closed hour: itself, its postings, its counts, and what the next one must not post again."""
    hour = T0, T0 + HOUR
    following = store.hour_work("main", T0 + HOUR)
    return (
        store.closed_until("main") is not None,
        len(store.posting_sums([], *hour, {})),
        len(store.hourly_sums([], *hour, {})),
        len(store.hour_work("main", T0).readings) == 0 and not following.late and not following.readings,
    )


def test_an_hour_is_closed_wholly_or_not_at_all(place: Place) -> None:
    # given an hour with an attempt that goes on, another one, and a reading
    with closing(place.open()) as store:
        goes_on = ran("r1", HOUR - 10, 20)
        store.save_running([noted(goes_on, HOUR)])
        store.add_usage([ran("r2", 5, 5)])
        store.add_reading(Reading("d1", "storage_gib_hour", "a", 100, T0, T0 + HOUR, pool="main"))
    # when the process dies at each step in turn, then nothing is left of it until it was committed
    step = 0
    while (child := close_in_a_child(place, step)).returncode == -9:
        with closing(place.open()) as store:
            if store.closed_until("main") is not None:
                break
            assert kept(store)[:3] == (False, 0, 0)
            assert len(store.hour_work("main", T0).readings) == 1
        step += 1
    assert (child.returncode, step) == (-9, 8), child.stderr
    # and then all of it is there
    with closing(place.open()) as store:
        assert kept(store) == (True, 1, 1, True)
        store.save_running([])
        store.add_usage([goes_on])
        assert [each.milli_gpu_ns for each in store.hour_work("main", T0 + HOUR).uses] == [2500]
        assert store.hour_work("main", T0 + HOUR).late == ()
        assert posting().quantity == store.posting_sums([], T0, T0 + HOUR, {})[0].quantity
        assert store.reconciliations(T0, T0 + HOUR) == (NOTHING,)
