"""Given what is asked for and what there is, then what it comes to, or the sentence that says why it can never fit."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.footprint import Footprint, convert, holds
from commonpool.core.model import Device, Hardware, Node, Resource
from tests.core.sheds import GIB, gpus, node, slices


def asked(*nodes: Node, resources: dict[Resource, int] | None = None, **hardware: Any) -> Footprint:
    found = convert(Hardware(**hardware), resources or {}, nodes, "main")
    assert isinstance(found, Footprint), found
    return found


def refused(*nodes: Node, **hardware: Any) -> str:
    found = convert(Hardware(**hardware), {}, nodes, "main")
    assert isinstance(found, str), found
    return found


# -- whole, in parts, by memory ----------------------------------------------------------------------------------------


def test_whole_gpus_are_so_many_devices() -> None:
    found = asked(node("n", 4), milli_gpu=3000)
    assert (found.devices, found.milli_gpu, found.total_milli_gpu) == (3, 1000, 3000)
    assert (found.memory_mib, found.stated) == (80 * GIB, False)


def test_a_part_takes_the_same_part_of_the_smallest_devices_memory() -> None:
    mixed = node("n", devices=(*gpus("n", 1, 80 * GIB), Device("n/9", "A10", 24 * GIB)))
    assert asked(mixed, milli_gpu=500).memory_mib == 12 * GIB
    assert asked(mixed, milli_gpu=500, models=("A100",)).memory_mib == 40 * GIB


def test_more_memory_than_milli_gpu_raises_milli_gpu_to_its_part_rounded_up() -> None:
    found = asked(node("n"), milli_gpu=250, memory_mib=60 * GIB)
    assert (found.milli_gpu, found.memory_mib, found.stated) == (750, 60 * GIB, True)
    assert asked(node("n"), milli_gpu=500, memory_mib=60 * GIB + 1).milli_gpu == 751
    assert asked(node("n"), milli_gpu=500, memory_mib=8 * GIB).milli_gpu == 500


def test_memory_alone_is_its_part_of_the_smallest_device_that_holds_it() -> None:
    mixed = node("n", devices=(*gpus("n", 2, 80 * GIB), Device("n/9", "A10", 24 * GIB)))
    assert asked(mixed, memory_mib=12 * GIB).milli_gpu == 500
    found = asked(mixed, memory_mib=40 * GIB, count=2)
    assert (found.devices, found.milli_gpu, found.memory_mib) == (2, 500, 40 * GIB)


def test_memory_alone_takes_the_smallest_slice_whole_where_only_slices_can() -> None:
    found = asked(node("n", devices=slices("n", "1g.10gb", "2g.20gb", "3g.40gb")), memory_mib=18 * GIB)
    assert (found.profile, found.milli_gpu, found.devices) == ("2g.20gb", 285, 1)


def test_a_profile_takes_slices_whole() -> None:
    found = asked(node("n", devices=slices("n", "1g.10gb", "1g.10gb")), profile="1g.10gb", count=2)
    assert (found.devices, found.milli_gpu, found.total_milli_gpu) == (2, 142, 284)


def test_what_the_hosts_give_is_of_all_together() -> None:
    resources: dict[Resource, int] = {"cpu_milli": 8000, "memory_mib": 1000, "gpu_memory_mib": 100 * GIB}
    found = asked(node("n"), resources=resources, milli_gpu=2000)
    assert (found.cpu_milli, found.memory_mib_host, found.memory_mib) == (8000, 1000, 50 * GIB)


def test_where_no_node_is_known_only_counts_convert() -> None:
    assert asked(milli_gpu=2000) == Footprint(2, 1000)
    assert asked(milli_gpu=300) == Footprint(1, 300)
    for hardware in ({"memory_mib": 1000}, {"profile": "1g.10gb"}):
        assert "declare its nodes" in refused(**hardware)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_18_gb_do_not_fit_two_slices_of_10() -> None:
    said = refused(node("n", devices=slices("n", "1g.10gb", "1g.10gb")), memory_mib=18 * GIB)
    assert said.startswith("It needs 18432 MiB on one device, and the largest MIG slice (1g.10gb) of pool main")
    assert "has 10240 MiB; 2 of them do not hold it together" in said


def test_what_cannot_be_is_refused_with_its_values() -> None:
    two = node("n", 2)
    cut = node("m", devices=slices("m", "1g.10gb", "2g.20gb"))
    assert "1.5 GPUs are more than one" in refused(two, milli_gpu=1500)
    assert "ask for 1 or 2" in refused(two, milli_gpu=1500)
    assert "runtime cuda-99, and no node of pool main has it; known: none" in refused(
        two, milli_gpu=500, runtime="cuda-99"
    )
    assert "profile 9g.99gb is not in pool main, which has 1g.10gb, 2g.20gb" in refused(two, cut, profile="9g.99gb")
    assert "pool main has A100" in refused(two, milli_gpu=1000, models=("H100",))
    assert "no node of pool main has more than 2" in refused(two, node("o", 2), milli_gpu=4000)
    assert "pool main has 4" in refused(two, node("o", 2), milli_gpu=5000, together="any")
    assert "no link island of pool main has more than 1" in refused(two, milli_gpu=2000, together="island")
    assert "pool main has MIG slices only" in refused(cut, milli_gpu=500)
    assert "81920 MiB" in refused(two, milli_gpu=500, memory_mib=90 * GIB)
    assert "asks for no GPU" in refused(two)
    assert "one of the two" in refused(cut, profile="1g.10gb", milli_gpu=100)
    assert "at least one device" in refused(two, memory_mib=-1)
    assert "goes with a MIG profile" in refused(two, milli_gpu=500, count=2)
    assert "is not known" in refused(node("n", devices=gpus("n", 2, 0)), memory_mib=1000)


def test_several_may_lie_apart_where_that_is_said() -> None:
    assert asked(node("n", 2), node("o", 2), milli_gpu=4000, together="any").devices == 4


def test_islands_are_counted_on_one_node() -> None:
    linked = [node(name, devices=gpus(name, 4, island="0")) for name in ("n", "o")]
    assert asked(*linked, milli_gpu=4000, together="island").devices == 4
    assert "more than 4" in refused(*linked, milli_gpu=8000, together="island")


# -- laws --------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 8), st.sampled_from([0, 16, 24, 80])), min_size=1, max_size=4),
    st.one_of(st.integers(1, 999), st.integers(1, 8).map(lambda whole: 1000 * whole)),
    st.integers(0, 100),
)
def test_what_is_converted_fits_devices_that_there_are(
    sizes: list[tuple[int, int]], milli_gpu: int, memory_gib: int
) -> None:
    nodes = [node(f"n{at}", devices=gpus(f"n{at}", count, gib * GIB)) for at, (count, gib) in enumerate(sizes)]
    found = convert(Hardware(milli_gpu, memory_gib * GIB), {}, nodes, "main")
    if isinstance(found, str):
        assert found.endswith((".", ")."))
        return
    fitting = [[device for device in each.devices if holds(device, found)] for each in nodes]
    assert max(map(len, fitting)) >= found.devices
    assert found.total_milli_gpu >= milli_gpu
    # As much memory as is taken with as much of the GPU never exceeds the device that it was worked out for.
    known = [device.memory_mib for devices in fitting for device in devices if device.memory_mib]
    if known and found.milli_gpu < 1000:
        assert 1000 // found.milli_gpu * found.memory_mib <= max(known)
