"""What a machine has, and how busy it is: GPUs by NVML, CPU, memory and network by psutil.

Only what the configuration does not say is read (`NodeConfig`, None). A machine without NVML has no GPUs but those that
are declared. Called every few seconds; a GPU that is ill can make NVML slow, so it belongs on a thread.
"""

# ruff: noqa: N802, N803 - NVML's own names

import os
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Protocol

import msgspec
import psutil
import pynvml

from commonpool.config.mig import card_of
from commonpool.config.nodes import declared, island_of
from commonpool.config.structs import NodeConfig
from commonpool.core.events import DeviceLoad, HostLoad
from commonpool.core.model import MILLI_PER_GPU, Device, Node

_MIB = 1024 * 1024
_TAKEN_STEP_MIB = 64  # taken memory is rounded up to this, so that a node does not change with every small allocation
_SLICES = 7  # of a card whose kind is not known
_THOUSAND = 1000
_BITS_PER_MEGABIT = 1_000_000
_NS_PER_S = 1_000_000_000


class Nvml(Protocol):
    """What is called of the NVML library, as the module `pynvml` has it. All raise NVMLError."""

    NVMLError: type[Exception]
    NVML_DEVICE_MIG_ENABLE: int
    NVML_P2P_CAPS_INDEX_NVLINK: int
    NVML_P2P_STATUS_OK: int

    def nvmlInit(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str: ...
    def nvmlSystemGetCudaDriverVersion_v2(self) -> int: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetName(self, handle: Any) -> str: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]: ...
    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: Any) -> list[Any]: ...
    def nvmlDeviceGetP2PStatus(self, device1: Any, device2: Any, p2pIndex: int) -> int: ...
    def nvmlDeviceGetMigMode(self, device: Any) -> list[int]: ...
    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: int) -> Any: ...
    def nvmlDeviceGetAttributes(self, device: Any) -> Any: ...


class Reading(msgspec.Struct, frozen=True):
    """The counters of a machine at a time: `at_ns` on a clock that never goes back.

    CPU time in seconds since the start; memory in bytes; of each network interface the bytes received or sent since the
    start, whichever is more, and its speed in Mbit/s where that is known.
    """

    at_ns: int
    cpu_busy_s: float
    cpu_s: float
    memory_used: int
    memory: int
    nics: dict[str, tuple[int, int]]


def read_host() -> Reading:
    """The counters of this machine."""
    cpu, memory = psutil.cpu_times(), psutil.virtual_memory()
    whole = sum(cpu) - getattr(cpu, "guest", 0) - getattr(cpu, "guest_nice", 0)  # which are in user and nice already
    stats, counters = psutil.net_if_stats(), psutil.net_io_counters(pernic=True)
    return Reading(
        at_ns=time.monotonic_ns(),
        cpu_busy_s=whole - cpu.idle - getattr(cpu, "iowait", 0),
        cpu_s=whole,
        memory_used=memory.total - memory.available,
        memory=memory.total,
        nics={
            name: (max(counter.bytes_recv, counter.bytes_sent), stats[name].speed)
            for name, counter in counters.items()
            if name in stats and stats[name].isup and stats[name].speed > 0
        },
    )


class Discovery:
    """What this machine has and does, read again and again.

    `ours` says which processes belong to the product, with their children: what they use of a GPU is on the books.
    """

    def __init__(
        self,
        nvml: Nvml = pynvml,
        read: Callable[[], Reading] = read_host,
        ours: Callable[[], Collection[int]] = lambda: (os.getpid(),),
    ) -> None:
        self._nvml = nvml
        self._read = read
        self._ours = ours
        self._open = False
        self._last = read()
        self._seen: dict[str, dict[int, tuple[Device, ...]]] = {}  # by node, then by GPU

    def discover(self, node: NodeConfig) -> Node:
        """The node as it is now; what the configuration says of it holds."""
        found = declared(node)
        if not node.discover:
            return found
        found = msgspec.structs.replace(
            found,
            cpu_milli=node.cpu_milli or (psutil.cpu_count() or 0) * _THOUSAND,
            memory_mib=node.memory_mib or psutil.virtual_memory().total // _MIB,
        )
        count = self._count()
        if count is None:
            return found
        devices = self._devices(node, count)
        return msgspec.structs.replace(
            found,
            devices=tuple(device for index in sorted(devices) for device in devices[index]),
            runtimes=self._runtimes() if node.runtimes is None else node.runtimes,
            driver=self._driver() if node.driver is None else node.driver,
        )

    def load(self, node: str) -> HostLoad:
        """How busy the machine was since the last call, in thousandths; the network by its busiest interface."""
        before, now = self._last, self._read()
        self._last = now
        return HostLoad(
            node=node,
            cpu=_part(now.cpu_busy_s - before.cpu_busy_s, now.cpu_s - before.cpu_s),
            memory=_part(now.memory_used, now.memory),
            network=max((_traffic(name, before, now) for name in now.nics), default=0),
            devices=tuple(self._loads()),
        )

    # -- GPUs ----------------------------------------------------------------------------------------------------------

    def _count(self) -> int | None:
        """How many GPUs there are; None where there is no driver (yet)."""
        try:
            if not self._open:
                self._nvml.nvmlInit()
                self._open = True
            return self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError:
            # The driver may have been taken away; then what it showed is not there to be used.
            return 0 if self._seen else None

    def _devices(self, node: NodeConfig, count: int) -> dict[int, tuple[Device, ...]]:
        """The devices by the index of their GPU. One that does not answer is as it was last, and not healthy."""
        seen = self._seen.setdefault(node.name, {})
        found: dict[int, tuple[Device, ...]] = {}
        handles: dict[int, Any] = {}
        said: dict[int, tuple[Device, ...]] = {}
        for device in declared(node).devices:
            index = int(device.id.rpartition("/")[2].partition(".")[0])
            said[index] = (*said.get(index, ()), device)
        every = range(node.gpus) if node.gpus is not None else sorted({*range(count), *seen})
        for index in every:
            try:
                handles[index] = self._nvml.nvmlDeviceGetHandleByIndex(index)
                found[index] = self._gpu(node, index, handles[index], said.get(index, ()))
            except self._nvml.NVMLError:
                handles.pop(index, None)
                known = seen.get(index) or said.get(index) or (Device(f"{node.name}/{index}"),)
                found[index] = tuple(msgspec.structs.replace(device, healthy=False) for device in known)
            else:
                seen[index] = found[index]
        if node.links is None:
            whole = [index for index in handles if [device.profile for device in found[index]] == [""]]
            for index, island in self._islands(node.name, whole, handles).items():
                found[index] = (msgspec.structs.replace(found[index][0], island=island),)
        return found

    def _gpu(self, node: NodeConfig, index: int, handle: Any, said: tuple[Device, ...]) -> tuple[Device, ...]:
        nvml = self._nvml
        model = node.gpu_model or nvml.nvmlDeviceGetName(handle)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        whole = Device(
            id=f"{node.name}/{index}",
            model=model,
            memory_mib=node.gpu_memory_mib or memory.total // _MIB,
            healthy=index not in node.unhealthy,
        )
        if said and said[0].profile:
            return said
        if self._is_cut(handle):
            return tuple(self._slices(whole, memory.total // _MIB, handle))
        linked = next((island_of(node.name, group) for group in node.links or () if index in group), "")
        return (msgspec.structs.replace(whole, taken_mib=self._taken(handle, memory), island=linked),)

    def _is_cut(self, handle: Any) -> bool:
        with suppress(self._nvml.NVMLError):  # most GPUs cannot be
            return self._nvml.nvmlDeviceGetMigMode(handle)[0] == self._nvml.NVML_DEVICE_MIG_ENABLE
        return False

    def _loads(self) -> Iterable[DeviceLoad]:
        """How busy each GPU is; of slices only what they hold in memory is told. One that is ill tells nothing."""
        nvml = self._nvml
        for index in range(self._count() or 0):
            with suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                if self._is_cut(handle):
                    yield from (self._load(f"{index}.{number}", piece) for number, piece in self._pieces(handle))
                else:
                    yield self._load(str(index), handle)

    def _load(self, device: str, handle: Any) -> DeviceLoad:
        busy = used_mib = None
        with suppress(self._nvml.NVMLError):
            used_mib = self._nvml.nvmlDeviceGetMemoryInfo(handle).used // _MIB
        with suppress(self._nvml.NVMLError):
            busy = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu * _THOUSAND // 100
        return DeviceLoad(device, busy, used_mib)

    def _pieces(self, handle: Any) -> Iterable[tuple[int, Any]]:
        """The slices of a GPU, by number."""
        for number in range(self._nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with suppress(self._nvml.NVMLError):  # nothing is there
                yield number, self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)

    def _slices(self, whole: Device, memory_mib: int, handle: Any) -> Iterable[Device]:
        nvml = self._nvml
        kind = card_of(whole.model, memory_mib)
        compute = kind.compute if kind else _SLICES
        for number, piece in self._pieces(handle):
            attributes = nvml.nvmlDeviceGetAttributes(piece)
            yield msgspec.structs.replace(
                whole,
                id=f"{whole.id}.{number}",
                memory_mib=attributes.memorySizeMB,
                milli_gpu=attributes.computeInstanceSliceCount * MILLI_PER_GPU // compute,
                profile=nvml.nvmlDeviceGetName(piece).rpartition(" MIG ")[2],
                taken_mib=self._taken(piece, nvml.nvmlDeviceGetMemoryInfo(piece)),
            )

    def _taken(self, handle: Any, memory: Any) -> int:
        """MiB that are not free, less what our processes use: the driver's part and what others run."""
        own = self._ours()
        used = {
            process.pid: process.usedGpuMemory
            for processes in (
                self._nvml.nvmlDeviceGetComputeRunningProcesses,
                self._nvml.nvmlDeviceGetGraphicsRunningProcesses,
            )
            for process in self._quietly(processes, handle)
        }
        ours = {pid: amount for pid, amount in used.items() if _belongs(pid, own)}
        if None in ours.values():  # not told, as in some containers: only what others are known to use is surely taken
            taken = sum(amount or 0 for pid, amount in used.items() if pid not in ours)
        else:
            taken = max(0, memory.total - memory.free - sum(ours.values()))
        return -(-taken // (_TAKEN_STEP_MIB * _MIB)) * _TAKEN_STEP_MIB

    def _quietly(self, processes: Callable[[Any], list[Any]], handle: Any) -> list[Any]:
        with suppress(self._nvml.NVMLError):  # not supported on a slice, or not allowed
            return processes(handle)
        return []

    def _islands(self, node: str, indexes: list[int], handles: dict[int, Any]) -> dict[int, str]:
        """Which GPUs reach each other over NVLink, directly or by way of others; alone is no island."""
        groups: list[set[int]] = []
        for index in indexes:
            linked = {other for other in indexes if other < index and self._linked(handles[other], handles[index])}
            joined = [group for group in groups if group & linked]
            groups = [group for group in groups if not group & linked]
            groups.append({index}.union(*joined))
        return {index: island_of(node, tuple(group)) for group in groups if len(group) > 1 for index in sorted(group)}

    def _linked(self, one: Any, other: Any) -> bool:
        nvml = self._nvml
        with suppress(nvml.NVMLError):
            return nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK
        return False

    def _runtimes(self) -> tuple[str, ...]:
        with suppress(self._nvml.NVMLError):
            version = self._nvml.nvmlSystemGetCudaDriverVersion_v2()  # 12040 is 12.4
            return (f"cuda-{version // 1000}.{version % 1000 // 10}",)
        return ()

    def _driver(self) -> str:
        with suppress(self._nvml.NVMLError):
            return self._nvml.nvmlSystemGetDriverVersion()
        return ""


def _belongs(pid: int, ours: Collection[int]) -> bool:
    """Whether a process is one of ours or was started by one of them."""
    if pid in ours:
        return True
    with suppress(psutil.Error):  # gone meanwhile, or in a container of which only the number is seen
        return any(parent.pid in ours for parent in psutil.Process(pid).parents())
    return False


def _part(used: float, whole: float) -> int:
    return min(_THOUSAND, max(0, int(used * _THOUSAND / whole))) if whole > 0 else 0


def _traffic(name: str, before: Reading, now: Reading) -> int:
    """Thousandths of an interface's speed; 0 for one that was not there before."""
    count, speed = now.nics[name]
    moved = count - before.nics.get(name, (count, speed))[0]
    elapsed_ns = now.at_ns - before.at_ns
    return _part(moved * 8 * _NS_PER_S, speed * _BITS_PER_MEGABIT * elapsed_ns)
