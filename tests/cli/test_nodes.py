"""Given a cluster, when its nodes are asked for, then each device says who has it, and each node how it is."""

import io
import json

import msgspec
import pytest
from rich.console import Console

from commonpool.api.wire import nodes as wire
from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.cli.nodes import picture
from commonpool.core.events import HostLoad
from commonpool.core.model import Window
from commonpool.core.pictures import DeviceView, HolderView, NodeView, PoolDevices
from tests.api.fakes import NOW, FakeOperations
from tests.cli.serving import serving

CARD = DeviceView("n1/0", "A100", "", "a", True, 1000, 250, 81920, 20480, ())
NODE = NodeView("n1", "main", "node", (), "", 0, 0, None, None, (CARD,))


def drawn(now: wire.Nodes) -> list[list[str]]:
    """The words of each line, columns apart."""
    out = Console(file=io.StringIO(), width=300)
    out.print(picture(out, now))
    assert isinstance(out.file, io.StringIO)
    return [line.split() for line in out.file.getvalue().splitlines() if line.strip()]


def replaced(**changes: object) -> wire.Nodes:
    card = msgspec.structs.replace(CARD, **{k: v for k, v in changes.items() if k in CARD.__struct_fields__})
    node = msgspec.structs.replace(NODE, **{k: v for k, v in changes.items() if k in NODE.__struct_fields__})
    return wire.Nodes((PoolDevices("main", True, 1000, 250, 250),), (msgspec.structs.replace(node, devices=(card,)),))


def test_a_device_and_its_holders() -> None:
    holders = (HolderView("m-0.1", "m", "", 500, 0), HolderView("j1", "", "a", 250, 0), HolderView("x", "", "", 1, 0))
    shown = drawn(replaced(holders=holders, profile="1g.10gb"))
    assert " ".join(shown[0]) == "device gpu memory free free memory busy used memory held by state"
    assert " ".join(shown[2]) == (
        "n1/0 A100 1g.10gb 80GiB 0.25 of 1 20GiB unknown unknown"
        " m-0.1 (m) 0.5, j1 (job of a) 0.25, x (unknown) 0.001 healthy"
    )


def test_what_is_not_known_or_not_well() -> None:
    shown = drawn(replaced(memory_mib=0, free_memory_mib=None, healthy=False, free_milli_gpu=-500))
    assert " ".join(shown[2]) == "n1/0 A100 – -0.5 of 1 – unknown unknown – not healthy"


@pytest.mark.parametrize(("busy", "used", "words"), [(835, 61440, "83 % 60GiB"), (0, None, "0 % unknown")])
def test_what_the_hardware_says(busy: int, used: int | None, words: str) -> None:
    assert f"20GiB {words} –" in " ".join(drawn(replaced(busy=busy, used_memory_mib=used))[2])


def test_a_node_says_how_it_is() -> None:
    node = {
        "isolation": "network",
        "runtimes": ("cuda-12", "rocm"),
        "driver": "570",
        "cpu_milli": 8000,
        "load": HostLoad("n1", 915, 200, 30),
        "window": Window(NOW, NOW + 3600 * 10**9),
    }
    assert " ".join(drawn(replaced(**node))[3]) == (
        "node n1 (pool main): isolation network; 8 cores; driver 570; runtimes cuda-12, rocm;"
        " cpu 91 %, memory 20 %, network 3 % busy; maintained from 2027-01-15 08:00:00Z to 2027-01-15 09:00:00Z"
    )


def test_pools() -> None:
    assert " ".join(drawn(replaced())[-1]) == "pool main: 0.25 of 1 gpu free, 0.25 of that fragmented"
    counted = wire.Nodes((PoolDevices("main", False, 4000, 500, 0),), ())
    assert [" ".join(line) for line in drawn(counted)] == [
        "pool main: 0.5 of 4 gpu free; its nodes are not known, so its GPUs are only counted"
    ]


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeOperations()) as url:
        assert run(["nodes", "--control", url]) == ExitCode.OK
        assert "its nodes are not known" in capsys.readouterr().out
        assert run(["nodes", "--json", "--control", url]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["pools"][0]["capacity_milli_gpu"] == 4000
