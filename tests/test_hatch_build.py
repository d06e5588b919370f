"""Given a build of the wheel, pure or compiled, then what it holds, and that both cores decide the same."""

import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest
from hatch_build import STRUCT, WITH_STRUCTS

from commonpool.core.events import DevicesChanged, Granted, Produced, ReplicaDraining, ReplicaLost, Spent
from commonpool.core.model import Budget, Group, Outcome, Policy, Usage
from tests.core.replay import Log
from tests.core.worlds import S, World, policy, tenant

ROOT = Path(__file__).parents[1]
NAMES = ("a", "b", "c")
STEPS = 4000
DESCRIBE = """
import msgspec
from commonpool.api.openapi import document
from commonpool.api.routes import ENDPOINTS
print(msgspec.json.encode(document(ENDPOINTS, ""), order="deterministic").decode())
"""


def build(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=600
    )


def replay(log: bytes, product: Path) -> tuple[bytes, str]:
    """The effects, a line an event, and the file of the machine."""
    command = [sys.executable, "-m", "tests.core.replay"]
    environment = os.environ | {"PYTHONPATH": str(product)}
    done = subprocess.run(command, cwd=ROOT, env=environment, input=log, capture_output=True, check=True, timeout=300)
    return done.stdout, done.stderr.decode()


def rules(draw: random.Random) -> Policy:
    """Guarantees, caps, a group and weights of all kinds, changed as a log goes on."""
    members = []
    for name in NAMES:
        guaranteed = draw.randrange(0, 3001, 250)
        cap = max(guaranteed, draw.randrange(1000, 8001, 250))
        reserved = draw.choice([0, guaranteed // 2, guaranteed])
        group = draw.choice([None, "g"])
        weight = draw.randrange(1, 4)
        wait = draw.choice([5, 60]) * S
        more = {"group": group, "max_wait_ns": wait, "budget": draw.choice([None, None, Budget(300_000)])}
        members.append(tenant(name, guaranteed, reserved=reserved, elastic_cap=cap, weight=weight, **more))
    return policy(*members, milli_gpu=9000, groups=(Group("g", None, draw.choice([1500, 8000])),))


def happen(world: World, draw: random.Random, step: int) -> None:
    """One event of any kind, whatever comes of it."""
    name = draw.choice(NAMES)
    tier = draw.choice(["interactive", "batch"])
    if step % 200 == 0:
        world.configure(rules(draw))
    elif step % 97 == 0:
        replicas = 1 + step // 97
        old = f"m-{draw.randrange(replicas)}"
        world.send(ReplicaLost(old) if step % 2 else ReplicaDraining(old))
        world.ready(f"m-{replicas}")
    elif step % 89 == 0:
        world.send(DevicesChanged("main", draw.randrange(6000, 10001, 500)))
    elif step % 83 == 0:
        world.send(Granted(name, draw.randrange(0, 9001, 500), world.now + 5 * S))
    elif step % 79 == 0:
        world.send(Spent(name, draw.randrange(300_000), world.now, world.now + draw.choice([5, 500]) * S))
    elif step % 41 == 0:
        world.submit(f"job-{step}", name, draw.randrange(250, 1001, 250), expected_ns=draw.choice([None, 60 * S]))
    elif step % 37 == 0:
        world.cancel(f"r-{draw.randrange(step)}")
    elif step % 11 == 0:
        world.later(draw.choice([0.001, 0.3, 4])).tick()
    elif world.running and draw.random() < 0.5:
        end(world, draw)
    else:
        sequences, tokens = draw.choice([1, 1, 1, 2, 4]), draw.randrange(1, 900)
        world.arrive(f"r-{step}", name, tier, sequences=sequences, tokens_in=tokens, tokens_out_max=50)


def end(world: World, draw: random.Random) -> None:
    """Something that runs ends, in any way."""
    running = draw.choice(world.running)
    outcome = draw.choice([Outcome.COMPLETED, Outcome.COMPLETED, Outcome.CANCELLED, Outcome.FAILED])
    world.later(draw.random())
    if running.startswith("job"):
        world.finish(running, outcome, retry=outcome is Outcome.FAILED)
    else:
        world.send(Produced(running, draw.randrange(20)))
        usage = Usage(draw.randrange(1, 300), 0, draw.randrange(40))
        world.end(running, outcome, usage=usage, retry=outcome is Outcome.FAILED)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product with a compiled core, unpacked."""
    folder = tmp_path_factory.mktemp("compiled")
    done = build(folder, HATCH_BUILD_HOOKS_ENABLE="1")
    if done.returncode and "this machine lacks" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "product")
    return folder / "product"


def test_compiled_and_pure_core_give_the_same_effects_byte_for_byte(compiled: Path) -> None:
    draw = random.Random(20)
    first = rules(draw)
    world = World(first, replicas=2)
    for step in range(1, STEPS):
        happen(world, draw, step)
    log = msgspec.json.encode(Log(first, world.log))

    pure_effects, pure_file = replay(log, ROOT / "src")
    compiled_effects, compiled_file = replay(log, compiled)

    assert pure_file.endswith("machine.py")
    assert compiled_file.startswith(str(compiled))
    assert not compiled_file.endswith(".py")
    assert pure_effects.count(b'"Dispatch"') > STEPS // 10
    assert b'"Start"' in pure_effects
    assert b'"budget"' in pure_effects
    assert compiled_effects == pure_effects


def test_a_compiled_wheel_carries_its_sources_and_names_its_platform(compiled: Path) -> None:
    core = compiled / "commonpool/core"
    modules = {path.name.partition(".")[0] for path in core.glob("*.so")}
    sources = {path.stem: path.read_text(encoding="utf-8") for path in core.glob("*.py")}

    assert {"machine", "dispatch", "queueing", "quota", "lending", "ranking"} < modules
    assert modules < set(sources)
    assert {name for name in modules if STRUCT.search(sources[name])} == WITH_STRUCTS
    (tags,) = compiled.glob("*.dist-info/WHEEL")
    assert "Root-Is-Purelib: false" in tags.read_text(encoding="utf-8")


def test_with_either_core_the_api_says_the_same_of_what_it_hears_and_answers(compiled: Path) -> None:
    pure, ours = (
        subprocess.run(
            [sys.executable, "-c", DESCRIBE],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(product)},
            capture_output=True,
            check=True,
            timeout=300,
        ).stdout
        for product in (ROOT / "src", compiled)
    )

    assert msgspec.json.decode(pure)["paths"]
    assert ours == pure


def test_a_wheel_is_pure_unless_asked_otherwise(tmp_path: Path) -> None:
    done = build(tmp_path, CC="no-such-compiler")

    assert done.returncode == 0, done.stderr
    assert [path.name.endswith("-py3-none-any.whl") for path in tmp_path.iterdir()] == [True]


def test_without_a_compiler_one_sentence_says_so(tmp_path: Path) -> None:
    done = build(tmp_path, HATCH_BUILD_HOOKS_ENABLE="1", CC="no-such-compiler")

    assert done.returncode != 0
    assert done.stderr == (
        "The core cannot be compiled: this machine lacks the C compiler no-such-compiler (Debian: apt install gcc).\n"
    )
    assert not list(tmp_path.iterdir())
