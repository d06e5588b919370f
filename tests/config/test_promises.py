"""What is guaranteed of a pool, at every level of its tree, and the warnings where there is less."""

# ruff: noqa: E501 - a table of sentences is read by the line

from collections.abc import Callable

import pytest

from commonpool.config import parse
from commonpool.config.promises import promised, promised_resource

Edit = Callable[..., str]


@pytest.mark.parametrize(
    ("top", "low", "milli_gpu"),
    [
        ("", "", 4000),
        ("guaranteed: 7", "", 7000),
        ("", "guaranteed: 5", 6000),
        ("guaranteed: 8", "guaranteed: 5", 8000),
    ],
)
def test_what_groups_are_guaranteed_counts_in_place_of_what_is_below_them(
    tree: Edit, top: str, low: str, milli_gpu: int
) -> None:
    assert promised(parse(tree(top, low)).policy, "main") == milli_gpu


def test_each_pool_has_its_own_sum(tree: Edit) -> None:
    text = (
        tree("guaranteed: 5")
        .replace("pools: {", "pools: {other: {gpus: 3}, ")
        .replace("main: 1}", "main: 1, other: 1}")
    )
    text = text.replace("{version", "{pool: main, version").replace("tenant: {group", "tenant: {pool: main, group")
    policy = parse(text + "  d: {tenant: {pool: other, guaranteed: 2}}\n").policy
    assert (promised(policy, "main"), promised(policy, "other")) == (5000, 2000)


def test_who_names_no_part_of_a_resource_has_the_fraction_of_its_gpus(tree: Edit) -> None:
    policy = parse(tree(a="resources: {memory: {guaranteed: 50GiB}}")).policy
    assert promised_resource(policy, policy.pools["main"], "memory_mib") == (50 + 10 + 10) * 1024


@pytest.mark.parametrize(
    ("top", "low", "a", "warning"),
    [
        ("guaranteed: 11", "", "", "1: pools.main.gpus: 10 gpu are fewer than is guaranteed (11 gpu): guarantees are scaled pro rata"),
        ("", "guaranteed: 10", "", "1: pools.main.gpus: 10 gpu are fewer than is guaranteed (11 gpu): guarantees are scaled pro rata"),
        ("", "", "resources: {memory: {guaranteed: 81GiB}}", "1: pools.main.resources.memory: 100GiB is less than is guaranteed (101GiB): guarantees are scaled pro rata"),
        ("", "", "resources: {cpu_cores: {elastic_cap: 41}}", "8: tenants.a.tenant.resources.cpu_cores.elastic_cap: 41 cores is more than pool main has (40 cores)"),
    ],
)  # fmt: skip
def test_more_than_there_is_is_a_warning(tree: Edit, top: str, low: str, a: str, warning: str) -> None:
    assert parse(tree(top, low, a), "c.yaml").warnings == (f"c.yaml:{warning}",)


@pytest.mark.parametrize(("top", "a"), [("guaranteed: 10", ""), ("", "resources: {memory: {guaranteed: 80GiB}}")])
def test_all_there_is_may_be_guaranteed(tree: Edit, top: str, a: str) -> None:
    assert parse(tree(top, a=a)).warnings == ()


def test_a_guarantee_that_nobody_is_below_has_no_effect(tree: Edit) -> None:
    config = parse(tree().replace("  top: {}", "  top: {}\n  empty: {guaranteed: 20}"), "c.yaml")
    assert config.warnings == ("c.yaml:6: groups.empty.guaranteed: has no effect, since no tenant is below this group",)
    assert promised(config.policy, "main") == 4000
