"""Given a machine, when it is looked at, then the node is what it has, and what the configuration says of it holds."""

# ruff: noqa: ARG002, N802, N803 - the fake is called as NVML is

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from commonpool.backends.discovery import Discovery, Nvml, Reading, read_host
from commonpool.config.structs import NodeConfig
from commonpool.core.events import DeviceLoad
from commonpool.core.model import Device, Window

GIB = 1024**3
HERE = NodeConfig("n", "main", discover=True)
PARENT = os.getppid()  # a process that is there, and not ours
STRANGER = 2**22 + 1  # one that is not: process ids end below


class Gpu:
    """A GPU as the fake library shows it. `error` is raised by whatever asks for more than its handle."""

    def __init__(self, name: str = "NVIDIA A100-SXM4-80GB", total: int = 80 * GIB) -> None:
        self.name = name
        self.total = total
        self.driver = 512 * 1024**2  # what the driver keeps for itself
        self.processes: list[tuple[int, int | None]] = []
        self.linked: set[int] = set()
        self.slices: list[Gpu | None] | None = None
        self.shape = (0, 0)
        self.error = 0
        self.busy: int | None = 0  # percent; None where it cannot say


class FakeNvml:
    """The part of NVML that is called, behaving as the library does: handles, structs, and its own exceptions."""

    NVMLError = pynvml.NVMLError
    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE
    NVML_P2P_CAPS_INDEX_NVLINK = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    NVML_P2P_STATUS_OK: int = pynvml.NVML_P2P_STATUS_OK

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus = list(gpus)
        self.absent = 0  # why it cannot be opened

    def nvmlInit(self) -> None:
        self._raise(self.absent)

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12080

    def nvmlDeviceGetCount(self) -> int:
        self._raise(self.absent)
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        self._raise(self.absent)
        if index >= len(self.gpus):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self.gpus[index]

    def nvmlDeviceGetName(self, handle: Gpu) -> str:
        self._raise(handle.error)
        return handle.name

    def nvmlDeviceGetMemoryInfo(self, handle: Gpu) -> Any:
        self._raise(handle.error)
        used = handle.driver + sum(amount or GIB for _, amount in handle.processes)
        return SimpleNamespace(total=handle.total, used=used, free=handle.total - used)

    def nvmlDeviceGetUtilizationRates(self, handle: Gpu) -> Any:
        self._raise(handle.error)
        if handle.busy is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=handle.busy, memory=handle.busy // 2)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Gpu) -> list[Any]:
        self._raise(handle.error)
        return [SimpleNamespace(pid=pid, usedGpuMemory=amount) for pid, amount in handle.processes]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: Gpu) -> list[Any]:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetP2PStatus(self, device1: Gpu, device2: Gpu, p2pIndex: int) -> int:
        assert p2pIndex == self.NVML_P2P_CAPS_INDEX_NVLINK
        linked = self.gpus.index(device2) in device1.linked
        apart: int = pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
        return self.NVML_P2P_STATUS_OK if linked else apart

    def nvmlDeviceGetMigMode(self, device: Gpu) -> list[int]:
        if "A100" not in device.name:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(device.slices is not None), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Gpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Gpu, index: int) -> Gpu:
        found = device.slices[index] if device.slices and index < len(device.slices) else None
        if found is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return found

    def nvmlDeviceGetAttributes(self, device: Gpu) -> Any:
        compute, memory_mib = device.shape
        return SimpleNamespace(computeInstanceSliceCount=compute, memorySizeMB=memory_mib)

    @staticmethod
    def _raise(error: int) -> None:
        if error:
            raise pynvml.NVMLError(error)


def piece(profile: str, compute: int, memory_mib: int) -> Gpu:
    made = Gpu(f"NVIDIA A100-SXM4-80GB MIG {profile}", memory_mib * 1024**2)
    made.shape = compute, memory_mib
    made.busy = None  # the library tells it of whole GPUs alone
    made.driver = 0
    return made


def link(nvml: FakeNvml, *pairs: tuple[int, int]) -> None:
    for one, other in pairs:
        nvml.gpus[one].linked.add(other)
        nvml.gpus[other].linked.add(one)


def still() -> Reading:
    return Reading(0, 0, 0, 0, 0, {})


def looking(nvml: FakeNvml) -> Discovery:
    return Discovery(nvml, still)


def test_the_library_has_what_the_fake_has() -> None:
    for name in (name for name in dir(Nvml) if name.startswith("nvml")):
        assert callable(getattr(pynvml, name))
        assert callable(getattr(FakeNvml, name))


def test_a_node_that_is_not_here_is_what_is_said() -> None:
    node = looking(FakeNvml(Gpu())).discover(NodeConfig("n", "main", gpus=2))
    assert node.devices == (Device("n/0"), Device("n/1"))
    assert (node.cpu_milli, node.driver) == (0, "")


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_without_a_driver_there_are_no_gpus_until_it_comes(error: int) -> None:
    nvml = FakeNvml(Gpu())
    nvml.absent = error
    discovery = looking(nvml)
    node = discovery.discover(HERE)
    assert (node.devices, node.runtimes, node.driver) == ((), (), "")
    assert node.cpu_milli == (psutil.cpu_count() or 0) * 1000
    assert node.memory_mib == psutil.virtual_memory().total // 1024**2
    assert discovery.discover(NodeConfig("n", "main", gpus=1, discover=True)).devices == (Device("n/0"),)
    nvml.absent = 0
    assert len(discovery.discover(HERE).devices) == 1


def test_what_is_there() -> None:
    nvml = FakeNvml(Gpu(), Gpu("NVIDIA L40S", 46068 * 1024**2))
    node = looking(nvml).discover(HERE)
    assert node.devices == (
        Device("n/0", "NVIDIA A100-SXM4-80GB", 81920, taken_mib=512),
        Device("n/1", "NVIDIA L40S", 46068, taken_mib=512),
    )
    assert (node.runtimes, node.driver) == (("cuda-12.8",), "570.86.15")


def test_what_is_said_holds() -> None:
    window = Window(1, 2)
    node = looking(FakeNvml(Gpu(), Gpu(), Gpu())).discover(
        NodeConfig(
            name="n",
            pool="main",
            gpus=2,
            gpu_model="A100",
            gpu_memory_mib=70000,
            links=((0, 1),),
            cpu_milli=500,
            memory_mib=1000,
            isolation="network",
            runtimes=("rt",),
            driver="1",
            windows=(window,),
            unhealthy=(1,),
            discover=True,
        )
    )
    assert node.devices == (
        Device("n/0", "A100", 70000, island="n/0", taken_mib=512),
        Device("n/1", "A100", 70000, island="n/0", taken_mib=512, healthy=False),
    )
    assert (node.cpu_milli, node.memory_mib, node.runtimes, node.driver) == (500, 1000, ("rt",), "1")
    assert (node.isolation, node.windows) == ("network", (window,))


def test_islands_are_those_that_reach_each_other() -> None:
    nvml = FakeNvml(*(Gpu() for _ in range(6)))
    link(nvml, (0, 3), (3, 5), (1, 2))
    devices = looking(nvml).discover(HERE).devices
    assert [device.island for device in devices] == ["n/0", "n/1", "n/1", "n/0", "", "n/0"]


def test_memory_is_taken_by_what_is_not_ours() -> None:
    gpu = Gpu()
    discovery = looking(FakeNvml(gpu))

    def taken(*processes: tuple[int, int | None]) -> int:
        gpu.processes = list(processes)
        return discovery.discover(HERE).devices[0].taken_mib

    assert taken() == 512
    assert taken((os.getpid(), 30 * GIB)) == 512
    assert taken((PARENT, 10 * GIB), (os.getpid(), 30 * GIB)) == 512 + 10240
    assert taken((STRANGER, GIB)) == 512 + 1024
    # A little more or less is not another node.
    assert taken((PARENT, GIB + 1)) == taken((PARENT, GIB + 60 * 1024**2)) == 512 + 1024 + 64
    # What ours use is not told: only what others are known to use is surely theirs.
    assert taken((os.getpid(), None), (PARENT, 2 * GIB)) == 2048


def test_children_of_ours_are_ours(child: psutil.Popen) -> None:
    gpu = Gpu()
    gpu.processes = [(child.pid, 5 * GIB)]
    assert looking(FakeNvml(gpu)).discover(HERE).devices[0].taken_mib == 512
    elsewhere = Discovery(FakeNvml(gpu), still, ours=lambda: (STRANGER,))
    assert elsewhere.discover(HERE).devices[0].taken_mib == 512 + 5120


@pytest.fixture
def child(tmp_path: Path) -> Any:
    process = psutil.Popen(["sleep", "60"], cwd=tmp_path)
    yield process
    process.kill()
    process.wait()


def test_a_card_that_is_cut_is_its_slices() -> None:
    nvml = FakeNvml(Gpu(), Gpu())
    link(nvml, (0, 1))
    nvml.gpus[1].slices = [piece("3g.40gb", 3, 40192), None, piece("1g.10gb", 1, 9728)]
    devices = looking(nvml).discover(HERE).devices
    model = "NVIDIA A100-SXM4-80GB"
    assert devices == (
        Device("n/0", model, 81920, taken_mib=512),
        Device("n/1.0", model, 40192, 428, "3g.40gb"),
        Device("n/1.2", model, 9728, 142, "1g.10gb"),
    )


def test_a_card_that_is_cut_and_has_no_slice_runs_nothing() -> None:
    nvml = FakeNvml(Gpu(), Gpu())
    nvml.gpus[0].slices = []
    assert [device.id for device in looking(nvml).discover(HERE).devices] == ["n/1"]


def test_slices_that_are_said_hold() -> None:
    said = NodeConfig("n", "main", gpus=1, gpu_model="A100", gpu_memory_mib=81920, mig={0: ("7g.80gb",)}, discover=True)
    assert looking(FakeNvml(Gpu())).discover(said).devices == (Device("n/0.0", "A100", 80384, 1000, "7g.80gb"),)


def lose_the_card(nvml: FakeNvml) -> None:
    nvml.gpus[1].error = pynvml.NVML_ERROR_GPU_IS_LOST


def take_the_card(nvml: FakeNvml) -> None:
    nvml.gpus.pop()


@pytest.mark.parametrize("happen", [lose_the_card, take_the_card])
def test_a_card_that_is_gone_is_not_healthy_until_it_is_back(happen: Callable[[FakeNvml], None]) -> None:
    nvml = FakeNvml(Gpu(), Gpu(), Gpu())
    nvml.gpus = nvml.gpus[:2]
    link(nvml, (0, 1))
    gpus = list(nvml.gpus)
    discovery = looking(nvml)
    assert [device.healthy for device in discovery.discover(HERE).devices] == [True, True]
    happen(nvml)
    first, second = discovery.discover(HERE).devices
    assert (first.healthy, first.island) == (True, "")  # linked with nothing that works
    assert (second.id, second.model, second.healthy) == ("n/1", "NVIDIA A100-SXM4-80GB", False)
    nvml.gpus = gpus
    gpus[1].error = 0
    assert [device.healthy for device in discovery.discover(HERE).devices] == [True, True]


def test_all_are_gone_with_the_driver() -> None:
    nvml = FakeNvml(Gpu(), Gpu())
    discovery = looking(nvml)
    discovery.discover(HERE)
    nvml.absent = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert [device.healthy for device in discovery.discover(HERE).devices] == [False, False]


def test_a_card_that_is_said_and_not_there_is_not_healthy() -> None:
    said = NodeConfig("n", "main", gpus=2, gpu_model="A100", gpu_memory_mib=81920, discover=True)
    devices = looking(FakeNvml(Gpu())).discover(said).devices
    assert devices[1] == Device("n/1", "A100", 81920, healthy=False)


def test_a_card_that_is_ill_from_the_start_is_named() -> None:
    nvml = FakeNvml(Gpu(), Gpu())
    lose_the_card(nvml)
    assert looking(nvml).discover(HERE).devices[1] == Device("n/1", healthy=False)


# -- load --------------------------------------------------------------------------------------------------------------


def loads(*readings: Reading) -> list[tuple[int, int, int]]:
    left = list(readings)
    discovery = Discovery(FakeNvml(), lambda: left.pop(0))
    found = [discovery.load("n") for _ in readings[1:]]
    assert {load.node for load in found} == {"n"}
    return [(load.cpu, load.memory, load.network) for load in found]


S = 1_000_000_000


def test_load_is_since_the_last_time() -> None:
    gigabit = {"eth0": (0, 1000), "eth1": (0, 10_000)}
    assert loads(
        Reading(0, 100.0, 400.0, 1, 8, gigabit),
        Reading(2 * S, 103.0, 408.0, 2, 8, {"eth0": (125_000_000, 1000), "eth1": (250_000_000, 10_000)}),
        Reading(3 * S, 107.0, 412.0, 8, 8, {"eth0": (125_000_000, 1000), "eth1": (875_000_000, 10_000)}),
    ) == [(375, 250, 500), (1000, 1000, 500)]


def test_load_is_bounded_and_what_is_not_known_is_nothing() -> None:
    assert loads(
        Reading(0, 1.0, 2.0, 1, 4, {"a": (10**9, 1000)}),
        # No time has passed; then a counter went back, an interface came, and one was faster than it says.
        Reading(0, 1.0, 2.0, 1, 4, {"a": (10**9, 1000)}),
        Reading(S, 0.5, 3.0, 1, 4, {"a": (0, 1000), "b": (10**9, 1000)}),
        Reading(2 * S, 5.0, 4.0, 1, 0, {"b": (2 * 10**9, 1000)}),
        Reading(3 * S, 5.0, 5.0, 1, 4, {}),
    ) == [(0, 250, 0), (0, 250, 0), (1000, 0, 1000), (0, 250, 0)]


def test_this_machine_is_read() -> None:
    first = read_host()
    sum(range(200_000))
    second = read_host()
    assert second.at_ns > first.at_ns
    assert 0 < first.cpu_busy_s <= first.cpu_s <= second.cpu_s
    assert 0 < first.memory_used < first.memory
    assert all(count >= 0 and speed > 0 for count, speed in first.nics.values())
    load = Discovery(FakeNvml()).load("n")
    assert all(0 <= part <= 1000 for part in (load.cpu, load.memory, load.network))


def device_loads(nvml: FakeNvml) -> tuple[DeviceLoad, ...]:
    return looking(nvml).load("n").devices


def test_each_gpu_says_how_busy_it_is_and_what_is_in_its_memory() -> None:
    one, other = Gpu(), Gpu()
    one.busy, one.processes = 83, [(PARENT, 3 * GIB)]
    assert device_loads(FakeNvml(one, other)) == (DeviceLoad("0", 830, 3 * 1024 + 512), DeviceLoad("1", 0, 512))


def test_slices_say_what_is_in_their_memory() -> None:
    cut, small = Gpu(), piece("1g.10gb", 1, 9728)
    small.processes = [(PARENT, GIB)]
    cut.busy, cut.slices = 50, [None, small]
    nvml = FakeNvml(cut, Gpu())
    assert device_loads(nvml) == (DeviceLoad("0.1", None, 1024), DeviceLoad("1", 0, 512))
    assert [device.id for device in looking(nvml).discover(HERE).devices] == ["n/0.1", "n/1"]


def test_what_the_hardware_does_not_say_is_unknown_and_never_zero() -> None:
    mute, ill = Gpu(), Gpu()
    mute.busy, ill.error = None, pynvml.NVML_ERROR_GPU_IS_LOST
    assert device_loads(FakeNvml(mute, ill, Gpu())) == (
        DeviceLoad("0", None, 512),
        DeviceLoad("1", None, None),
        DeviceLoad("2", 0, 512),
    )
    away = FakeNvml(Gpu())
    away.absent = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert device_loads(away) == ()
