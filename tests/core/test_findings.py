"""Given what replicas and tenants used, what costs more than it need is found, with its saving."""

import msgspec

from commonpool.core.findings import Finding, ModelUse, TenantUse, findings
from commonpool.core.model import NS_PER_HOUR

HOUR = NS_PER_HOUR
QUIET = TenantUse("a", 100, 0, 0, 1000, 10, 2_000_000)


def only(found: list[Finding]) -> Finding:
    (one,) = found
    return one


def test_replicas_that_the_busiest_interval_does_not_need_could_go() -> None:
    use = ModelUse("m", 3, 2000, 2000 * HOUR, 1500, 2_000_000)
    found = only(findings([use], [], 10 * HOUR))
    assert (found.kind, found.about) == ("low_use", "m")
    assert found.saving_milli_gpu_ns == 2 * 2000 * 10 * HOUR
    assert found.saving_micro == 2 * 2 * 10 * 2_000_000
    assert found.sentence == "Model m uses 3 % of its 3 replica(s) on average and 1.5 gpu at most: 1 would do."
    assert not findings([msgspec.structs.replace(use, peak_milli_gpu=5000)], [], 10 * HOUR)


def test_one_replica_that_never_uses_half_of_itself_is_too_large() -> None:
    found = only(findings([ModelUse("m", 1, 4000, 0, 1600, 1_000_000)], [], HOUR))
    assert (found.kind, found.saving_micro) == ("over_sized", 2 * 1_000_000)
    assert not findings([ModelUse("m", 1, 4000, 0, 1700, 1_000_000)], [], HOUR)


def test_retries_are_found_where_more_than_one_attempt_in_twenty_fails() -> None:
    failing = msgspec.structs.replace(QUIET, failed=5, failed_milli_gpu_ns=1000 * HOUR)
    found = only(findings([], [failing], HOUR))
    assert (found.kind, found.saving_micro) == ("retries", 2_000_000)
    assert not findings([], [msgspec.structs.replace(failing, failed=4)], HOUR)


def test_a_tenant_is_expensive_beside_the_median_only() -> None:
    dear = msgspec.structs.replace(QUIET, tenant="dear", requests_milli_gpu_ns=5000)
    others = [msgspec.structs.replace(QUIET, tenant=name) for name in "bc"]
    found = only(findings([], [dear, *others], HOUR))
    assert (found.kind, found.about, found.saving_milli_gpu_ns) == ("expensive", "dear", 4000)
    assert "5.0 times" in found.sentence
    assert not findings([], [dear, others[0]], HOUR)


def test_the_largest_saving_comes_first() -> None:
    use = [ModelUse(name, 2, size, 0, 0, 1) for name, size in (("small", 1000), ("large", 2000))]
    assert [each.about for each in findings(use, [], HOUR)] == ["large", "small"]
