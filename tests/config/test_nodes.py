"""What the core knows of a node that was declared."""

from commonpool.config.nodes import declared, milli_gpu
from commonpool.config.structs import NodeConfig
from commonpool.core.model import Device, Node, Window


def test_what_is_not_said_is_not_known() -> None:
    assert declared(NodeConfig("n", "main", gpus=1)) == Node("n", "main", (Device("n/0"),))
    assert declared(NodeConfig("n", "main", discover=True)) == Node("n", "main")


def test_all_that_is_said() -> None:
    node = NodeConfig(
        name="n",
        pool="main",
        gpus=4,
        gpu_model="A100",
        gpu_memory_mib=81920,
        links=((2, 1),),
        mig={3: ("3g.40gb", "1g.10gb")},
        cpu_milli=8000,
        memory_mib=1024,
        isolation="network",
        runtimes=("cuda-12.4",),
        driver="550",
        windows=(Window(1, 2),),
        unhealthy=(0, 3),
    )
    assert declared(node) == Node(
        name="n",
        pool="main",
        devices=(
            Device("n/0", "A100", 81920, healthy=False),
            Device("n/1", "A100", 81920, island="n/1"),
            Device("n/2", "A100", 81920, island="n/1"),
            Device("n/3.0", "A100", 40192, 428, "3g.40gb", healthy=False),
            Device("n/3.1", "A100", 9728, 142, "1g.10gb", healthy=False),
        ),
        cpu_milli=8000,
        memory_mib=1024,
        isolation="network",
        runtimes=("cuda-12.4",),
        driver="550",
        windows=(Window(1, 2),),
    )


def test_slices_are_their_compute_parts_and_what_is_out_of_use_counts() -> None:
    node = NodeConfig(
        "n", "main", gpus=3, gpu_model="A30", gpu_memory_mib=24576, mig={1: ("2g.12gb", "1g.6gb")}, unhealthy=(0,)
    )
    assert milli_gpu(node) == 1000 + 500 + 250 + 1000
