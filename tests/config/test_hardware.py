"""What replicas take of the devices of their pool, said and derived, and what can never be."""

# ruff: noqa: E501 - a table of sentences is read by the line

from collections.abc import Callable

import pytest

from commonpool.config import parse
from commonpool.config.build import fingerprint
from commonpool.core.model import Attached, Hardware

Wrong = Callable[[str], list[str]]

TEXT = """\
nodes:
  n1: {gpus: 2, gpu_model: A100, gpu_memory: 80GiB, links: all, runtimes: [cuda-12.8]}
  n2: {gpus: 2, gpu_model: A100, gpu_memory: 80GiB, mig: {1: [3g.40gb, 2g.20gb, 2g.20gb]}}
pools: {main: {}}
models:
  m: {version: 1, gpu: 1, slots: 1, context: 10, engine: {kind: embedded, file: x}}
prices: {currency: EUR, gpu_hour: {main: 1}}
tenants: {t: {}}
"""
SLICES = """\
nodes: {n: {gpus: 1, gpu_model: A100, gpu_memory: 80GiB, mig: {0: [1g.10gb, 1g.10gb]}}}
pools: {main: {}}
models:
  m: {version: 1, gpu_memory: 18GB, slots: 1, context: 10, engine: {kind: embedded, file: x}}
prices: {currency: EUR, gpu_hour: {main: 1}}
tenants: {t: {}}
"""


def ask(keys: str, text: str = TEXT) -> str:
    assert "gpu: 1," in text
    return text.replace("gpu: 1,", f"{keys},", 1)


def attached(urls: str, devices: str, keys: str = "gpu: 1") -> str:
    engine = f"{{kind: attached, urls: [{urls}], devices: [{devices}]}}"
    return ask(keys).replace("{kind: embedded, file: x}", engine)


@pytest.mark.parametrize(
    ("keys", "milli_gpu", "hardware"),
    [
        ("gpu: 1", 1000, Hardware(1000)),
        ("gpu: 2, together: island", 2000, Hardware(2000, together="island")),
        ("gpu: 0.5", 500, Hardware(500)),
        ("gpu: 0.5, gpu_memory: 60GiB", 750, Hardware(500, 60 * 1024)),  # the memory is the larger part
        ("gpu_memory: 20GiB", 250, Hardware(0, 20 * 1024)),
        ("mig: 3g.40gb", 428, Hardware(profile="3g.40gb")),
        ("gpu: 1, gpu_models: [A100, H100], runtime: cuda-12.8", 1000, Hardware(1000, models=("A100", "H100"), runtime="cuda-12.8")),
    ],
)  # fmt: skip
def test_what_a_replica_asks_for_and_holds(keys: str, milli_gpu: int, hardware: Hardware) -> None:
    config = parse(ask(keys))
    model, deployment = config.models["m"], config.policy.deployments["m"]
    assert (model.milli_gpu, model.hardware) == (milli_gpu, hardware)
    assert (deployment.milli_gpu, deployment.hardware) == (milli_gpu, hardware)


def test_where_nothing_is_known_of_the_gpus_they_are_counted(base: str) -> None:
    model = parse(base.replace("gpu: 1_gpu", "gpu: 1.5_gpu")).models["small"]
    assert (model.milli_gpu, model.hardware) == (1500, None)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("together: node", "6: models.m.gpu: is missing; write the GPUs that a replica holds, or gpu_memory, or mig"),
        ("gpu: 1.5", "6: models.m.gpu: 1.5 GPUs are more than one and not whole; ask for 1 or 2, or for a part of one"),
        ("gpu: 1, mig: 3g.40gb", "6: models.m.mig: it asks for 1 GPUs and for the MIG profile 3g.40gb, and a slice is taken whole; ask for one of the two"),
        ("mig: 1g.10gb", "6: models.m.mig: the MIG profile 1g.10gb is not in pool main, which has 2g.20gb, 3g.40gb; ask for one that it has, or for GPUs"),
        ("gpu: 1, gpu_models: [H100]", "6: models.m.gpu: it asks for the GPU model H100, and pool main has A100; ask for one that it has"),
        ("gpu: 3", "6: models.m.gpu: it asks for 3 GPUs on one node, and no node of pool main has more than 2; ask for fewer"),
        ("gpu: 1, runtime: cuda-13.0", "6: models.m.runtime: it asks for the runtime cuda-13.0, and no node of pool main has it; known: cuda-12.8. Ask for one of those, or for none"),
    ],
)  # fmt: skip
def test_what_can_never_be_is_one_line(wrong: Wrong, keys: str, problem: str) -> None:
    assert wrong(ask(keys)) == [f"c.yaml:{problem}"]


def test_18_gb_do_not_fit_two_slices_of_10(wrong: Wrong) -> None:
    assert wrong(SLICES) == [
        (
            "c.yaml:4: models.m.gpu_memory: it needs 17167 MiB on one device, and the largest MIG slice (1g.10gb) of pool main "
            "that it could have has 9728 MiB; 2 of them do not hold it together: ask for less on each, or a larger device"
        )
    ]


def test_memory_or_a_slice_of_a_pool_that_only_counts_is_nothing_known(base: str, wrong: Wrong) -> None:
    assert wrong(base.replace("gpu: 1_gpu", "gpu_memory: 10GiB")) == [
        (
            "c.yaml:6: models.small.gpu_memory: it asks for 10240 MiB of GPU memory, and what the GPUs of pool main are is not "
            "known; declare its nodes, or ask for GPUs"
        )
    ]


def test_what_is_discovered_later_is_said_now(base: str, wrong: Wrong) -> None:
    nodes = "nodes: {n: {discover: true}}\n"
    assert wrong(base.replace("gpu: 1_gpu", "gpu_memory: 10GiB") + nodes) == [
        (
            "c.yaml:4: models.small.gpu: is missing, and what part of a GPU gpu_memory is shows when n is discovered; write "
            "what a replica holds"
        )
    ]
    assert parse(base.replace("gpu: 1_gpu", "mig: 3g.40gb") + nodes).models["small"].milli_gpu == 428
    both = parse(base.replace("gpu: 1_gpu", "gpu: 0.2\n    gpu_memory: 10GiB") + nodes).models["small"]
    assert (both.milli_gpu, both.hardware) == (200, Hardware(200, 10240))


def test_the_fewest_replicas_have_room_at_once(wrong: Wrong) -> None:
    """Two GPUs each are found on n1 alone, though three GPUs are whole."""
    other = "  b: {version: 1, gpu: 2, slots: 1, context: 10, engine: {kind: embedded, file: x}}\n"
    room = TEXT.replace("prices:", f"{other}prices:")
    assert parse(room).models["b"].replicas == 1
    assert wrong(room.replace("gpu: 1,", "gpu: 1, replicas: 2,")) == [
        (
            "c.yaml:6: models.m.replicas: is 2, and beside the other models' pool main has room for 1 of them on its nodes; "
            "lower it, or add nodes"
        )
    ]
    assert parse(room.replace("gpu: 1,", "gpu: 1, replicas_max: 9,")).models["m"].replicas_max == 9


def test_what_is_out_of_use_for_a_while_forbids_no_replicas() -> None:
    text = ask("gpu: 2").replace(
        "links: all", "unhealthy: [0], maintenance: [{from: 1970-01-01T00:00:00Z, until: 2970-01-01T00:00:00Z}]"
    )
    assert parse(text).models["m"].replicas == 1


def test_attached_engines_say_where_they_are() -> None:
    config = parse(attached("http://a, http://b", "n1/0, n2/0"))
    assert config.policy.deployments["m"].attached == (Attached("http://a", ("n1/0",)), Attached("http://b", ("n2/0",)))
    two = parse(attached("http://a", "n1/0-1", "gpu: 2, together: island"))
    assert two.policy.deployments["m"].attached == (Attached("http://a", ("n1/0", "n1/1")),)
    piece = parse(attached("http://a, http://b", "n2/1.1, n2/1.2", "mig: 2g.20gb"))
    assert [each.devices for each in piece.policy.deployments["m"].attached] == [("n2/1.1",), ("n2/1.2",)]
    # Parts of one device are no contradiction as long as they fit on it.
    assert parse(attached("http://a, http://b", "n1/0, n1/0", "gpu: 0.5")).models["m"].replicas == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (ask("gpu: 1").replace("embedded, file: x", "attached, urls: [http://a]"), "devices: is missing, and pool main has nodes; write the devices of each of the 1 urls"),
        (attached("http://a, http://b", "n1/0"), "devices: has 1 entries, and pool main has nodes; write the devices of each of the 2 urls"),
        (attached("http://a", "n3/0"), "devices.0: there is no node n3 in pool main; it has n1, n2"),
        (attached("http://a", "n1/2"), "devices.0: there is no device n1/2; n1 has n1/0, n1/1"),
        (attached("http://a", "n2/1"), "devices.0: n2/1 is cut into slices; write one of n2/1.0, n2/1.1, n2/1.2"),
        (attached("http://a", "n2/1.0"), "devices.0: n2/1.0 is not a device that the model asks for; name another, or correct what it asks for"),
        (attached("http://a", "n1/0-1"), "devices.0: names 2 devices, and a replica has 1; correct one of the two"),
        (attached("http://a", "n1/1-0"), 'devices.0: "n1/1-0" ends before it begins; write the smaller index first'),
        (attached("http://a", "n1"), 'devices.0: "n1" is not the devices of one engine, of one node: node-1/0, node-1/0-3, or of a MIG slice node-1/0.1'),
        (attached("http://a, http://b", "n1/0, n1/0"), "devices.1: n1/0 is claimed by m (http://a), m (http://b), in all 2 gpu of 1 gpu; give each engine devices of its own"),
    ],
)  # fmt: skip
def test_an_engine_is_on_devices_that_it_can_have(wrong: Wrong, text: str, problem: str) -> None:
    assert wrong(text) == [f"c.yaml:6: models.m.engine.{problem}"]


def test_two_models_do_not_claim_one_device(wrong: Wrong) -> None:
    other = "  o: {version: 1, gpu: 0.5, slots: 1, context: 10, engine: {kind: attached, urls: [http://c], devices: [n1/0]}}\n"
    text = attached("http://a", "n1/0").replace("prices:", f"{other}prices:")
    assert wrong(text) == [
        (
            "c.yaml:7: models.o.engine.devices.0: n1/0 is claimed by m (http://a), o (http://c), in all 1.5 gpu of 1 gpu; give "
            "each engine devices of its own"
        )
    ]


def test_linked_means_linked(wrong: Wrong) -> None:
    text = attached("http://a", "n1/0-1", "gpu: 2, together: island").replace("links: all", "links: []")
    assert wrong(text)[0].startswith("c.yaml:6: models.m.gpu: it asks for 2 GPUs on one link island")
    four = text.replace("gpus: 2, gpu_model: A100, gpu_memory: 80GiB, links: []", "gpus: 4, links: [[0, 1], [2, 3]]")
    assert parse(four).models["m"].milli_gpu == 2000
    assert wrong(four.replace("n1/0-1", "n1/1-2")) == [
        (
            "c.yaml:6: models.m.engine.devices.0: n1/1 to n1/2 are not linked with each other, and together is island; name "
            "others"
        )
    ]


def test_devices_of_a_pool_that_only_counts_are_refused(base: str, wrong: Wrong) -> None:
    text = base.replace("kind: embedded, file: small.gguf", "kind: attached, urls: [http://a], devices: [n/0]")
    assert wrong(text) == [
        (
            "c.yaml:9: models.small.engine.devices: names devices, and pool main has no nodes; leave it out, or declare them "
            "under nodes"
        )
    ]


def test_a_fingerprint_is_of_what_is_started() -> None:
    def of(text: str) -> str:
        return fingerprint(parse(text).models["m"])

    same = of(TEXT)
    assert len(same) == 16
    assert of(ask("gpu: 1, replicas: 2, replicas_max: 3, idle_after: 1s")) == same
    assert of(ask("gpu: 1, start_deadline: 1s, residency: standby")) == same
    others = [
        ask("gpu: 2"),
        ask("gpu: 1, gpu_memory: 1GiB"),
        ask("gpu: 1, runtime: cuda-12.8"),
        TEXT.replace("version: 1", "version: 2"),
        TEXT.replace("slots: 1", "slots: 2"),
        TEXT.replace("context: 10", "context: 11"),
        TEXT.replace("context: 10", "context: 10, kv_tokens: 20"),
        TEXT.replace("file: x", "file: y"),
        TEXT.replace("file: x", "file: x, threads: 2"),
    ]
    assert len({same, *map(of, others)}) == len(others) + 1


def test_more_engines_elsewhere_are_the_same_engine() -> None:
    def of(urls: str, devices: str) -> str:
        return parse(attached(urls, devices)).policy.deployments["m"].engine

    assert of("http://a", "n1/0") == of("http://b, http://c", "n1/1, n2/0")
