"""Defaults that follow from other keys."""

from collections.abc import Callable

import pytest

from commonpool.config import parse
from commonpool.core.model import Limits, Tenant, Tier

Edit = Callable[..., str]
S = 1_000_000_000


def quota(text: str) -> tuple[int, int, int, int]:
    tenant = parse(text).policy.tenants["support"]
    return tenant.reserved, tenant.guaranteed, tenant.elastic_cap, tenant.hard_cap


def test_a_tenant_that_says_nothing(edit: Edit) -> None:
    assert parse(edit("    tenant: {guaranteed: 2_gpu}\n", "    {}\n")).policy.tenants["support"] == Tenant(
        name="support",
        pool="main",
        guaranteed=0,
        elastic_cap=4000,
        hard_cap=4000,
        priority={"interactive": 9, "batch": 3},
        max_wait_ns=120 * S,
        reserved=0,
        weight=1,
        group=None,
        models=None,
        reclaim="borrow_not_preempt",
        return_when="task_done",
        limits=Limits(None, 1000, None, None),
    )


@pytest.mark.parametrize(
    ("rule", "given", "expected"),
    [
        ("elastic", "", (0, 0, 4000, 4000)),
        ("elastic", "guaranteed: 2", (0, 2000, 4000, 4000)),
        ("elastic", "guaranteed: 2, borrowable: false", (2000, 2000, 4000, 4000)),
        ("elastic", "guaranteed: 2, borrowable: false, reserved: 2", (2000, 2000, 4000, 4000)),
        ("elastic", "guaranteed: 2, reserved: 0.5", (500, 2000, 4000, 4000)),
        ("elastic", "guaranteed: 2, lending_limit: 0.5", (1500, 2000, 4000, 4000)),
        ("elastic", "guaranteed: 2, lending_limit: 2", (0, 2000, 4000, 4000)),
        ("elastic", "guaranteed: 2, lending_limit: 0.5, reserved: 1.5", (1500, 2000, 4000, 4000)),
        ("elastic", "guaranteed: 2, lending_limit: 0, borrowable: false", (2000, 2000, 4000, 4000)),
        ("elastic", "guaranteed: 2, elastic_cap: 3", (0, 2000, 3000, 3000)),
        ("elastic", "guaranteed: 2, hard_cap: 3", (0, 2000, 3000, 3000)),
        ("elastic", "elastic_cap: 3, hard_cap: 4", (0, 0, 3000, 4000)),
        ("elastic", "guaranteed: 6", (0, 6000, 6000, 6000)),  # more than there is: scaled, with a warning
        ("guaranteed", "guaranteed: 2", (0, 2000, 2000, 2000)),
        ("guaranteed", "guaranteed: 2, hard_cap: 4", (0, 2000, 2000, 4000)),
        ("dedicated", "", (0, 4000, 4000, 4000)),
        ("dedicated", "elastic_cap: 3", (0, 3000, 3000, 3000)),
    ],
)
def test_the_quota_that_is_not_given(base: str, rule: str, given: str, expected: tuple[int, ...]) -> None:
    assert quota(base.replace("4_gpu", f"4, rule: {rule}").replace("guaranteed: 2_gpu", given)) == expected


@pytest.mark.parametrize(
    ("rule", "given", "problem"),
    [
        ("elastic", "reserved: 1", "reserved: 1 gpu is more than guaranteed (0 gpu)"),
        ("elastic", "guaranteed: 2, reserved: 3", "reserved: 3 gpu is more than guaranteed (2 gpu)"),
        ("elastic", "guaranteed: 3, elastic_cap: 2", "guaranteed: 3 gpu is more than elastic_cap (2 gpu)"),
        ("elastic", "guaranteed: 3, hard_cap: 2", "guaranteed: 3 gpu is more than hard_cap (2 gpu)"),
        ("elastic", "elastic_cap: 3, hard_cap: 2", "elastic_cap: 3 gpu is more than hard_cap (2 gpu)"),
    ],
)
def test_the_order_of_the_quotas_holds(
    base: str, wrong: Callable[[str], list[str]], rule: str, given: str, problem: str
) -> None:
    text = base.replace("4_gpu", f"4, rule: {rule}").replace("guaranteed: 2_gpu", given)
    order = "reserved ≤ guaranteed ≤ elastic_cap ≤ hard_cap"
    assert wrong(text) == [f"c.yaml:13: tenants.support.tenant.{problem}; {order}"]


@pytest.mark.parametrize(
    ("rule", "given", "problem"),
    [
        (
            "elastic",
            "guaranteed: 2, reserved: 1, borrowable: false",
            "reserved: is 1 gpu, but borrowable: false reserves all of guaranteed; remove one",
        ),
        (
            "elastic",
            "guaranteed: 2, reserved: 1, lending_limit: 0.5",
            "lending_limit: is 0.5 gpu, but of guaranteed (2 gpu) what is reserved leaves 1 gpu; remove one",
        ),
        (
            "elastic",
            "guaranteed: 2, borrowable: false, lending_limit: 1",
            "lending_limit: is 1 gpu, but of guaranteed (2 gpu) what is reserved leaves 0 gpu; remove one",
        ),
        (
            "elastic",
            "guaranteed: 2, lending_limit: 3",
            "lending_limit: 3 gpu is more than guaranteed (2 gpu), and no more than that can be lent",
        ),
        (
            "elastic",
            "guaranteed: 2, headroom: 3",
            "headroom: 3 gpu is more than guaranteed (2 gpu), of which it is a part; lower it",
        ),
        ("elastic", "headroom: 1", "headroom: 1 gpu is more than guaranteed (0 gpu), of which it is a part; lower it"),
        (
            "guaranteed",
            "guaranteed: 2, elastic_cap: 3",
            (
                "elastic_cap: 3 gpu is more than guaranteed (2 gpu), "
                "and the pool's rule guaranteed knows no loans; leave it out"
            ),
        ),
    ],
)
def test_quotas_that_contradict_a_rule(
    base: str, wrong: Callable[[str], list[str]], rule: str, given: str, problem: str
) -> None:
    text = base.replace("4_gpu", f"4, rule: {rule}").replace("guaranteed: 2_gpu", given)
    assert wrong(text) == [f"c.yaml:13: tenants.support.tenant.{problem}"]


def test_tiers_are_there_without_being_named(base: str) -> None:
    assert parse(base).policy.tiers == {
        "interactive": Tier("interactive", 2 * S, 3 * S),
        "batch": Tier("batch", 120 * S, None),
    }


def test_priorities_are_those_of_the_tiers_that_exist(edit: Edit, wrong: Callable[[str], list[str]]) -> None:
    config = parse(edit(end="tiers: {interactive: , gold: }\n"))
    assert config.policy.tenants["support"].priority == {"interactive": 9}
    assert wrong(edit(end="tiers: {gold: }\n")) == [
        (
            "c.yaml:12: tenants.support.queue.priority: is missing, and no tier is called interactive or batch; "
            "give a priority to gold"
        )
    ]


def test_the_pool_is_the_only_one_or_has_to_be_named(edit: Edit, wrong: Callable[[str], list[str]]) -> None:
    text = edit("  main: {gpus: 4_gpu}\n", "  main: {gpus: 4_gpu}\n  other: {gpus: 1}\n").replace(
        "2.50", "2.50, other: 0"
    )
    assert wrong(text) == [
        f"c.yaml:{line}: {key}.pool: is missing, and there are several pools; write one of main, other"
        for line, key in ((5, "models.small"), (14, "tenants.support.tenant"))
    ]


@pytest.mark.parametrize(
    ("engine", "replicas", "kv_tokens"),
    [
        ("{kind: embedded, file: a}", 1, 8192),
        ("{kind: attached, urls: [http://a, http://b]}", 2, 8192),
        ("{kind: embedded, file: a}\n    replicas: 3", 3, 8192),
        ("{kind: embedded, file: a}\n    kv_tokens: 4Ki", 1, 4096),
    ],
)
def test_a_model_s_shape(edit: Edit, engine: str, replicas: int, kv_tokens: int) -> None:
    model = parse(edit("{kind: embedded, file: small.gguf}", engine)).models["small"]
    assert (model.replicas, model.kv_tokens) == (replicas, kv_tokens)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("slots: 4", (1, 1, "resident")),
        ("slots: 4\n    replicas: 2", (2, 2, "resident")),
        ("slots: 4\n    replicas_max: 3", (1, 3, "resident")),
        ("slots: 4\n    residency: standby", (1, 1, "standby")),
        ("slots: 4\n    residency: on_demand", (0, 1, "on_demand")),
        ("slots: 4\n    residency: async\n    replicas_max: 4", (0, 4, "async")),
    ],
)
def test_how_many_replicas_there_may_be(edit: Edit, given: str, expected: tuple[int, int, str]) -> None:
    scaling = parse(edit("slots: 4", given)).policy.deployments["small"].scaling
    assert scaling is not None
    assert (scaling.replicas_min, scaling.replicas_max, scaling.residency) == expected
    assert (scaling.idle_ns, scaling.start_deadline_ns) == (300 * S, 120 * S)
