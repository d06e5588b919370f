"""Waits through crashes: a real `kill -9` while records are stored and counted loses none and doubles none."""

import random
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from commonpool.core.model import NS_PER_HOUR as HOUR
from commonpool.core.model import NS_PER_S as S
from commonpool.core.model import Tier
from commonpool.core.waits import WINDOW_NS as WINDOW
from tests.store.places import Place
from tests.store.records import DAY, T0

# Stores records with the ids PREFIX-0, ... for ever, each ten minutes after the one before, counts them and makes hours
# and days of them. Says so on stdout, a byte for each turn.
CHILD = """
import os, sys
from pathlib import Path
from commonpool.core.model import Tier
from commonpool.core.waits import WINDOW_NS
from commonpool.store.postgres import PostgresStore
from commonpool.store.sqlite import SqliteStore
from tests.store.records import DAY, T0, usage_record

folder, url, prefix = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
store = PostgresStore(url, folder) if url else SqliteStore(folder)
tiers = {"interactive": Tier("interactive", 4)}
number = 0
while True:
    ended = [T0 + (number + each) % 432 * WINDOW_NS for each in range(5)]
    store.add_usage(
        usage_record(f"{prefix}-{number + each}", arrived_ns=at - 25, tenant="ab"[each % 2])
        for each, at in enumerate(ended)
    )
    store.count_waits(tiers, 3)
    store.roll_waits(T0 + 3 * DAY)
    store.forget_waits(T0 + DAY, T0 + DAY)
    os.write(1, b".")
    number += 5
"""

ROOT = Path(__file__).parents[2]


def test_kill_9_loses_and_doubles_nothing_that_is_counted(place: Place) -> None:
    # given a process that is killed while it stores and counts, again and again
    chance = random.Random(20_240_102)
    for prefix in ("p0", "p1", "p2"):
        command = [sys.executable, "-c", CHILD, str(place.folder), place.url, prefix]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout is not None
            child.stdout.read(chance.randrange(10, 60))
            child.send_signal(signal.SIGKILL)
            child.communicate()
            assert child.returncode == -signal.SIGKILL
    # when the next one counts what is left
    with closing(place.open()) as store:
        while store.count_waits({"interactive": Tier("interactive", 4)}, 1000).records:
            continue
        while store.roll_waits(T0 + 3 * DAY):
            continue
        # then every record is counted once, in days, hours and windows alike
        total = store.waits((), 0, 2**62, {}).total
        stored = store.usage([], 0, 2**62).total.attempts
        assert total.completed == total.wait.count == total.judged.queue_late == stored > 0
        for by, length_ns, since_ns in (("day", DAY, T0), ("hour", HOUR, T0 + DAY), ("window", WINDOW, T0 + DAY)):
            lines = store.waits([by, "tenant"], T0, T0 + 3 * DAY, {}).lines
            assert lines
            for line in lines:
                assert line.start_ns is not None
                expected = store.usage(
                    [], line.start_ns - 25, line.start_ns + length_ns - 25, {"tenant": [line.keys[1]]}
                )
                assert (line.tally.completed, line.start_ns >= since_ns) == (expected.total.attempts, True)
        assert total.wait.max_ns < S
