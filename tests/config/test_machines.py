"""Nodes and the pools that they make: what is derived, and what contradicts itself."""

# ruff: noqa: E501 - a table of sentences is read by the line

from collections.abc import Callable

import pytest

from commonpool.config import parse

Wrong = Callable[[str], list[str]]

TEXT = """\
nodes:
  n1: {gpus: 4, gpu_model: A100, gpu_memory: 80GiB}
  n2: {gpus: 2}
pools: {main: {}}
models: {m: {version: 1, gpu: 1, slots: 1, context: 10, engine: {kind: embedded, file: x}}}
prices: {currency: EUR, gpu_hour: {main: 1}}
tenants: {t: {}}
"""
CARD = "gpus: 4, gpu_model: A100, gpu_memory: 80GiB"


def edit(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new, 1)


def test_a_pool_has_the_gpus_of_its_nodes() -> None:
    config = parse(TEXT)
    assert (config.policy.pools["main"].milli_gpu, config.policy.pools["main"].placed) == (6000, True)
    assert config.policy.tenants["t"].elastic_cap == 6000
    cut = parse(edit(CARD, f"{CARD}, mig: {{0: [1g.10gb, 1g.10gb], 2: [7g.80gb]}}"))
    assert cut.policy.pools["main"].milli_gpu == 2 * 142 + 1000 + 2000 + 2000
    assert parse(edit(CARD, f"{CARD}, unhealthy: [1]")).policy.pools["main"].milli_gpu == 6000


def test_a_pool_without_nodes_counts_its_gpus(base: str) -> None:
    pool = parse(base).policy.pools["main"]
    assert (pool.milli_gpu, pool.placed) == (4000, False)


def test_what_both_say_agrees() -> None:
    assert parse(edit("{main: {}}", "{main: {gpus: 6}}")).policy.pools["main"].milli_gpu == 6000


def test_of_a_discovered_node_the_pool_says_what_is_planned(wrong: Wrong) -> None:
    text = edit("n2: {gpus: 2}", "n2: {discover: true}")
    assert wrong(text) == [
        "c.yaml:4: pools.main.gpus: is missing, and what node n2 has is not known yet; write how many are planned"
    ]
    assert parse(text.replace("{main: {}}", "{main: {gpus: 12}}")).policy.pools["main"].milli_gpu == 12000


def test_all_links_all_that_are_whole() -> None:
    assert parse(edit(CARD, f"{CARD}, links: all")).nodes["n1"].links == ((0, 1, 2, 3),)
    assert parse(edit(CARD, f"{CARD}, links: all, mig: {{1: [7g.80gb]}}")).nodes["n1"].links == ((0, 2, 3),)
    assert parse(edit("n2: {gpus: 2}", "n2: {gpus: 1, links: all}")).nodes["n2"].links == ()


@pytest.mark.parametrize(
    ("rule", "isolation"), [("elastic", "shared"), ("guaranteed", "guaranteed"), ("dedicated", "node")]
)
def test_a_rule_is_kept_apart_as_it_promises(rule: str, isolation: str) -> None:
    text = edit("{main: {}}", f"{{main: {{rule: {rule}}}}}").replace("{t: {}}", "{t: {tenant: {guaranteed: 2}}}")
    assert parse(text).policy.pools["main"].isolation == isolation


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        # What a node has.
        ("n2: {gpus: 2}", "n2: {}", "3: nodes.n2.gpus: is missing; write how many GPUs it has, or discover: true where it is"),
        ("gpus: 2", "gpus: 65", '3: nodes.n2.gpus: "65" is not a whole number from 0 to 64'),
        ("80GiB", "0GiB", '2: nodes.n1.gpu_memory: "0GiB" must be from 1MiB to 1TiB'),
        ("80GiB", "80TiB", '2: nodes.n1.gpu_memory: "80TiB" must be from 1MiB to 1TiB'),
        ("gpus: 2", "gpus: 2, memory: 64MiB", '3: nodes.n2.memory: "64MiB" must be from 256MiB to 64TiB'),
        ("gpus: 2", "gpus: 2, cpus: 0", '3: nodes.n2.cpus: "0" must be from 0.1 to 4096'),
        ("gpus: 2", "gpus: 2, pool: man", '3: nodes.n2.pool: there is no pool "man"; did you mean main? Known: main'),
        # Indexes.
        ("gpus: 2", "gpus: 2, unhealthy: [2]", "3: nodes.n2.unhealthy.0: there is no GPU 2; the node has 0 to 1"),
        ("gpus: 2", "gpus: 0, unhealthy: [0]", "3: nodes.n2.unhealthy.0: there is no GPU 0; the node has none"),
        ("gpus: 2", "gpus: 2, links: [[0, 2]]", "3: nodes.n2.links.0.1: there is no GPU 2; the node has 0 to 1"),
        (CARD, f"{CARD}, mig: {{4: [7g.80gb]}}", "2: nodes.n1.mig.4: there is no GPU 4; the node has 0 to 3"),
        # Links.
        (CARD, f"{CARD}, links: [[0, 1], [1, 2]]", "2: nodes.n1.links.1.0: GPU 1 is in two lists; those that are linked are in one"),
        (CARD, f"{CARD}, links: [[0, 0]]", '2: nodes.n1.links.0.1: "0" is in the list twice; remove one'),
        (CARD, f"{CARD}, links: [[0, 1]], mig: {{1: [7g.80gb]}}", "2: nodes.n1.links.0.1: GPU 1 is cut into slices, which have no links; take it out"),
        (CARD, f"{CARD}, links: some", '2: nodes.n1.links: "some" is not known here; allowed: all; or write a list, each item a list, each item a whole number from 0 to 63'),
        # MIG.
        (CARD, f"{CARD}, mig: {{0: [1g.5gb]}}", '2: nodes.n1.mig.0.0: there is no MIG profile "1g.5gb" on this GPU; it has 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb, 1g.10gb+me'),
        (CARD, f"{CARD}, mig: {{0: [half]}}", '2: nodes.n1.mig.0.0: "half" is not a MIG profile; write it like 3g.40gb'),
        (CARD, f"{CARD}, mig: {{0: [4g.40gb, 4g.40gb]}}", "2: nodes.n1.mig.0: asks for 8 compute slices, and the GPU has 7; take some out"),
        (CARD, f"{CARD}, mig: {{0: [3g.40gb, 3g.40gb, 1g.10gb]}}", "2: nodes.n1.mig.0: asks for 9 memory slices, and the GPU has 8; take some out"),
        (CARD, f"{CARD}, mig: {{0: [1g.10gb+me, 1g.10gb+me]}}", "2: nodes.n1.mig.0: asks for media engines (+me) twice, and the GPU has them once; take one out"),
        ("gpus: 2", "gpus: 2, mig: {0: [7g.80gb]}", "3: nodes.n2.mig: needs gpu_model and gpu_memory, since profiles depend on them; write both"),
        ("A100", "L40S, mig: {0: [7g.80gb]}", "2: nodes.n1.mig: L40S with 80GiB is no GPU whose profiles are known; known: A30 24GB, A100 40GB, A100 80GB, H100 80GB, H100 94GB, GH200 96GB, H200 141GB, B200 180GB"),
        # Windows.
        ("gpus: 2", "gpus: 2, maintenance: [{from: 2027-01-02T00:00:00Z, until: 2027-01-01T00:00:00Z}]", "3: nodes.n2.maintenance.0.until: is not after from, so the window ends before it begins; swap the two"),
        ("gpus: 2", "gpus: 2, maintenance: [{from: 2027-01-02T00:00:00Z}]", "3: nodes.n2.maintenance.0.until: is missing; write a time in UTC like 2027-03-01T22:00:00Z"),
        # Pools.
        ("{main: {}}", "{main: {gpus: 5}}", "4: pools.main.gpus: is 5 gpu, but its nodes have 6 gpu; leave gpus out, or correct the nodes"),
        ("{main: {}}", "{main: {isolation: network}}", None),
        ("gpus: 2", "gpus: 2, isolation: shared", None),
    ],
)  # fmt: skip
def test_a_contradiction_is_one_line(wrong: Wrong, old: str, new: str, problem: str | None) -> None:
    text = edit(old, new)
    if problem is not None:
        assert wrong(text) == [f"c.yaml:{problem}"]


def test_a_pool_has_gpus(base: str, wrong: Wrong) -> None:
    assert wrong(base.replace("gpus: 4_gpu", "")) == [
        (
            "c.yaml:2: pools.main.gpus: is missing, and the pool has no nodes; write how many GPUs it has, or declare its "
            "nodes"
        )
    ]
    assert wrong(base.replace("gpus: 4_gpu", "") + "nodes: {n: {gpus: 0}}\n")[0] == (
        "c.yaml:2: pools.main.gpus: is missing, and its nodes have no GPU; a pool has some"
    )


def test_nodes_give_what_their_pool_demands(base: str, wrong: Wrong) -> None:
    assert wrong(edit("{main: {}}", "{main: {isolation: network}}")) == [
        (
            f"c.yaml:{line}: nodes.{node}.isolation: is node, and pool main demands network, so nothing could run there; "
            "raise it, or put the node into another pool"
        )
        for line, node in ((2, "n1"), (3, "n2"))
    ]
    assert wrong(base.replace("gpus: 4_gpu", "gpus: 4_gpu, isolation: node")) == [
        (
            "c.yaml:2: pools.main.isolation: is node, which is kept by choosing nodes, and none is known; declare its nodes"
        )
    ]


def test_where_a_node_serves_one_tenant_so_does_a_model(wrong: Wrong) -> None:
    text = edit("{main: {}}", "{main: {isolation: node}}").replace("{t: {}}", "{t: {}, u: {}}")
    assert wrong(text) == [
        (
            "c.yaml:4: pools.main.isolation: is node, so a node serves one tenant, and model m serves t, u; list the "
            "models of each under tenant.models"
        )
    ]
    apart = text.replace("u: {}", "u: {tenant: {models: []}}")
    assert parse(apart).policy.pools["main"].isolation == "node"


def test_a_wrong_node_proves_nothing_else(wrong: Wrong) -> None:
    """What a pool has is not known then: neither its own figure nor its models are judged by it."""
    assert len(wrong(edit("gpus: 2", "gpus: two"))) == 1
    assert len(wrong(edit("80GiB", "80").replace("gpu: 1,", "gpu_memory: 300GiB,"))) == 1
    assert len(wrong(edit("gpus: 2", "gpus: 2, isolation: none"))) == 1
