"""The law of replay: the same log gives the same effects, byte for byte, in any process."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from commonpool.core.effects import Effect
from tests.core.laws import Commons
from tests.core.replay import Log
from tests.core.test_laws_clusters import Clusters

ROOT = Path(__file__).parents[2]


def a_log(commons: Commons, seed: int) -> tuple[Log, list[Effect]]:
    """What happened in some busy whiles, and what came of it."""
    commons.start(seed=seed)
    for n in range(20):
        commons.a_busy_while(seed=seed + n, count=30, wild=True)
    return Log(commons.first_rules, commons.world.log), commons.world.effects


@pytest.mark.parametrize("world", [Commons, Clusters])
def test_the_order_of_hashes_decides_nothing(world: type[Commons]) -> None:
    log, effects = a_log(world(), 7)
    told = msgspec.json.encode(log)
    said = []
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-m", "tests.core.replay"],
            input=told,
            capture_output=True,
            check=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
        )
        said.append(run.stdout)
    assert said[0] == said[1]
    replayed = [effect for line in said[0].splitlines() for effect in msgspec.json.decode(line)]
    assert replayed == msgspec.json.decode(msgspec.json.encode(effects))
    assert len(replayed) > 500
