"""The law of replay: the same log gives the same effects, byte for byte, in any process."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from commonpool.core.effects import Effect
from tests.core.laws import Commons
from tests.core.replay import Log

ROOT = Path(__file__).parents[2]


def a_log(seed: int) -> tuple[Log, list[Effect]]:
    """What happened in some busy whiles, and what came of it."""
    commons = Commons()
    commons.start(seed=seed)
    for n in range(20):
        commons.a_busy_while(seed=seed + n, count=30, wild=True)
    return Log(commons.first_rules, commons.world.log), commons.world.effects


def test_the_order_of_hashes_decides_nothing() -> None:
    log, effects = a_log(7)
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
