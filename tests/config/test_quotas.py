"""Groups and other resources: what they do not say follows from what is below them, and what they say agrees with it."""

# ruff: noqa: E501 - a table of sentences is read by the line

from collections.abc import Callable

import pytest

from commonpool.config import parse
from commonpool.core.model import Group, Share

Wrong = Callable[[str], list[str]]
Edit = Callable[..., str]


@pytest.mark.parametrize(
    ("top", "low", "expected"),
    [
        ("", "", (None, 0, None, 0)),
        ("guaranteed: 5", "guaranteed: 4", (5000, 0, 4000, 0)),
        ("guaranteed: 4, reserved: 4, elastic_cap: 4", "guaranteed: 3", (4000, 4000, 3000, 0)),
        ("guaranteed: 6, lending_limit: 2", "guaranteed: 3.5, lending_limit: 0", (6000, 4000, 3500, 3500)),
        # What a group does not say is the sum below it: 2 + 1, and 3 + 1 or 3.5 + 1 above that.
        ("lending_limit: 1", "lending_limit: 1", (None, 3000, None, 2000)),
        ("lending_limit: 1", "guaranteed: 3.5", (None, 3500, 3500, 0)),
        ("reserved: 4", "", (None, 4000, None, 0)),
    ],
)
def test_a_group_s_quota(tree: Edit, top: str, low: str, expected: tuple[int | None, ...]) -> None:
    groups = parse(tree(top, low)).policy.groups
    assert (groups["top"].guaranteed, groups["top"].reserved) == expected[:2]
    assert groups["low"] == Group("low", "top", None, expected[2], expected[3] or 0)


@pytest.mark.parametrize(
    ("top", "low", "problem"),
    [
        ("", "guaranteed: 2.5", "6: groups.low.guaranteed: 2.5 gpu is less than what is guaranteed below it (3 gpu); raise it or lower guarantees there"),
        ("guaranteed: 4.5", "guaranteed: 4", "5: groups.top.guaranteed: 4.5 gpu is less than what is guaranteed below it (5 gpu); raise it or lower guarantees there"),
        ("elastic_cap: 3.5", "", "5: groups.top.elastic_cap: 3.5 gpu is less than what is guaranteed below it (4 gpu); raise it or lower guarantees there"),
        ("guaranteed: 5, elastic_cap: 4", "", "5: groups.top.guaranteed: 5 gpu is more than elastic_cap (4 gpu); reserved ≤ guaranteed ≤ elastic_cap"),
        ("guaranteed: 5, reserved: 6", "", "5: groups.top.reserved: 6 gpu is more than guaranteed (5 gpu); reserved ≤ guaranteed ≤ elastic_cap"),
        ("", "reserved: 4", "6: groups.low.reserved: 4 gpu is more than guaranteed (3 gpu); reserved ≤ guaranteed ≤ elastic_cap"),
        ("", "lending_limit: 4", "6: groups.low.lending_limit: 4 gpu is more than guaranteed (3 gpu), and no more than that can be lent"),
        ("", "reserved: 1, lending_limit: 1", "6: groups.low.lending_limit: is 1 gpu, but of guaranteed (3 gpu) what is reserved leaves 2 gpu; remove one"),
    ],
)  # fmt: skip
def test_a_group_that_contradicts_itself_or_what_is_below_it(
    tree: Edit, wrong: Wrong, top: str, low: str, problem: str
) -> None:
    assert wrong(tree(top, low)) == [f"c.yaml:{problem}"]


def test_a_sum_with_a_typo_in_it_proves_nothing(tree: Edit, wrong: Wrong) -> None:
    assert len(wrong(tree("lending_limit: 4", "reserved: 3").replace("guaranteed: 2,", "guaranteed: two,"))) == 1
    assert len(wrong(tree("reserved: 4", "guaranteed: many"))) == 1


def test_around_a_circle_nothing_is_added_up(tree: Edit, wrong: Wrong) -> None:
    assert wrong(tree("parent: low, reserved: 1", "guaranteed: 1")) == [
        "c.yaml:6: groups.low.parent: leads back to itself (low → top → low); a group's parents end at the pool",
    ]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("memory: {}", {}),
        ("memory: {guaranteed: 30GiB}", {"memory_mib": Share(30 * 1024)}),
        ("memory: {guaranteed: 0MiB, elastic_cap: 1GiB}", {"memory_mib": Share(0, 1024)}),
        # Two of ten GPUs: a fifth, as far as its own cap goes.
        ("memory: {elastic_cap: 50GiB}", {"memory_mib": Share(20 * 1024, 50 * 1024)}),
        ("memory: {elastic_cap: 10GiB}, cpu_cores: {guaranteed: 2500m}", {"memory_mib": Share(10240, 10240), "cpu_milli": Share(2500)}),
    ],
)  # fmt: skip
def test_a_tenant_s_parts_of_other_resources(tree: Edit, resources: str, expected: dict[str, Share]) -> None:
    assert parse(tree(a=f"resources: {{{resources}}}")).policy.tenants["a"].resources == expected


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ("memory: {guaranteed: 2GiB, elastic_cap: 1GiB}", "tenants.a.tenant.resources.memory.guaranteed: 2GiB is more than elastic_cap (1GiB); guaranteed ≤ elastic_cap"),
        ("gpu_memory: {guaranteed: 2GiB}", "tenants.a.tenant.resources.gpu_memory: pool main does not count its GPU memory; write pools.main.resources.gpu_memory, or leave this out"),
        ("disk: {guaranteed: 2GiB}", "tenants.a.tenant.resources.disk: is not a known key; known here: gpu_memory, cpu_cores, memory"),
        ("cpu_cores: {guaranteed: 2GiB}", 'tenants.a.tenant.resources.cpu_cores.guaranteed: "2GiB" is not a number of CPU cores; write it like 16, 0.5 or 500m'),
    ],
)  # fmt: skip
def test_parts_that_cannot_be(tree: Edit, wrong: Wrong, resources: str, problem: str) -> None:
    assert wrong(tree(a=f"resources: {{{resources}}}")) == [f"c.yaml:8: {problem}"]


def test_a_pool_s_own_typo_is_one_problem(tree: Edit, wrong: Wrong) -> None:
    text = tree(a="resources: {memory: {guaranteed: 1GiB}}").replace("100GiB", "100GuB")
    assert len(wrong(text)) == 1
