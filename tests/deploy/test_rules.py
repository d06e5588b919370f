"""The rules for Prometheus: each alert fires where it should alone, and is the product's own of that name."""

import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from commonpool.core.alerts import CONDITIONS
from tests.deploy.tools import RULES, promtool

TENANT: Final = {"tenant": "a"}
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Case(msgspec.Struct, frozen=True):
    """What is measured where an alert fires, and where it does not; values in promtool's own notation, a minute apart.

    `first` is the minute at which it fires first.
    """

    fires: dict[str, str]
    quiet: dict[str, str]
    labels: dict[str, str]
    first: int = 1


def _promise(late: str, promised: str = "0+100x5000") -> dict[str, str]:
    return {
        'commonpool_wait_late_total{tenant="a",tier="interactive"}': late,
        'commonpool_wait_promised_total{tenant="a",tier="interactive"}': promised,
    }


_PROMISED: Final = {**TENANT, "tier": "interactive", "promise": "queue"}
_REPLICA: Final = {"replica": "m-0", "model": "m"}
CASES: Final = {
    # In 15 of 100 it is late; in 14 of 100 that is not enough for an hour, and too much for six.
    "CommonpoolPromiseBurningFast": Case(_promise("0+15x5000"), _promise("0+5x5000"), _PROMISED, first=3),
    "CommonpoolPromiseBurning": Case(_promise("0+1x5000"), _promise("0+0x5000"), _PROMISED, first=3),
    "CommonpoolStarvationNear": Case(
        {
            'commonpool_oldest_wait_seconds{tenant="a",model="m"}': "0+30x10",
            'commonpool_tenant_max_wait_seconds{tenant="a"}': "120+0x10",
        },
        {
            'commonpool_oldest_wait_seconds{tenant="a",model="m"}': "107+0x10",
            'commonpool_tenant_max_wait_seconds{tenant="a"}': "120+0x10",
        },
        {**TENANT, "model": "m"},
        first=5,
    ),
    "CommonpoolLoanOverdue": Case(
        {'commonpool_tenant_due_gpus{tenant="a"}': "2+0x20"},
        {'commonpool_tenant_due_gpus{tenant="a"}': "2+0x8 0+0x12"},
        TENANT,
        first=10,
    ),
    "CommonpoolModelDown": Case(
        {
            'commonpool_model_wanted_replicas{model="m"}': "1+0x10",
            'commonpool_model_failed_starts{model="m"}': "0+0x10",
            'commonpool_model_ready_replicas{model="m"}': "0+0x10",
        },
        {
            'commonpool_model_wanted_replicas{model="m"}': "0+0x10",
            'commonpool_model_failed_starts{model="m"}': "2+0x10",
            'commonpool_model_ready_replicas{model="m"}': "0+0x10",
        },
        {"model": "m"},
        first=2,
    ),
    "CommonpoolEngineUnknown": Case(
        {'commonpool_replica_unheard_seconds{replica="m-0",model="m"}': "1 12+60x10"},
        {'commonpool_replica_unheard_seconds{replica="m-0",model="m"}': "7+0x10"},
        _REPLICA,
        first=2,
    ),
    "CommonpoolEngineShared": Case(
        {'commonpool_engine_foreign_requests{replica="m-0",model="m"}': "0 5+0x10"},
        {'commonpool_engine_foreign_requests{replica="m-0",model="m"}': "0 5 0+0x10"},
        _REPLICA,
        first=2,
    ),
    "CommonpoolEngineUnread": Case(
        {
            'commonpool_engine_known{replica="m-0",model="m"}': "1 0+0x10",
            'commonpool_replica_ready{replica="m-0",model="m"}': "1+0x10",
        },
        {
            'commonpool_engine_known{replica="m-0",model="m"}': "1 0+0x10",
            'commonpool_replica_ready{replica="m-0",model="m"}': "0+0x10",
        },
        _REPLICA,
        first=6,
    ),
    "CommonpoolReplicaFailing": Case(
        {'commonpool_replica_circuit{replica="m-0",model="m",circuit="closed"}': "0+0x10"},
        {
            'commonpool_replica_circuit{replica="m-0",model="m",circuit="closed"}': "1+0x10",
            'commonpool_replica_circuit{replica="m-0",model="m",circuit="open"}': "0+0x10",
        },
        {**_REPLICA, "circuit": "closed"},
    ),
    "CommonpoolGatewayAway": Case(
        {'commonpool_gateway_listening{node="n1"}': "0+0x10"},
        {'commonpool_gateway_listening{node="n1"}': "1+0x10"},
        {"node": "n1"},
    ),
    "CommonpoolReconciliationDifference": Case(
        {'commonpool_books_uncharged_gpu_seconds{pool="main"}': "-3+0x10"},
        {'commonpool_books_uncharged_gpu_seconds{pool="main"}': "0+0x10"},
        {"pool": "main"},
    ),
    "CommonpoolBooksBehind": Case(
        {'commonpool_books_behind_seconds{pool="main"}': "7201+60x10"},
        {'commonpool_books_behind_seconds{pool="main"}': "3700+60x10"},
        {"pool": "main"},
    ),
    "CommonpoolJournalAway": Case(
        {"commonpool_journal_healthy": "1+0x10", "commonpool_journal_overdue": "1+0x10"},
        {"commonpool_journal_healthy": "1+0x10", "commonpool_journal_overdue": "0+0x10"},
        {},
    ),
    "CommonpoolStoreAway": Case(
        {"commonpool_usage_writer_alarm": "1+0x10"}, {"commonpool_usage_writer_alarm": "0+0x10"}, {}
    ),
    "CommonpoolBudgetSoft": Case(
        {'commonpool_tenant_budget_soft{tenant="a"}': "1+0x10"},
        {'commonpool_tenant_budget_soft{tenant="a"}': "0+0x10"},
        TENANT,
    ),
    "CommonpoolBudgetHard": Case(
        {
            'commonpool_tenant_budget_spent_micro{tenant="a"}': "7+0x10",
            'commonpool_tenant_budget_micro{tenant="a"}': "7+0x10",
        },
        {
            'commonpool_tenant_budget_spent_micro{tenant="a"}': "6+0x10",
            'commonpool_tenant_budget_micro{tenant="a"}': "7+0x10",
        },
        TENANT,
    ),
    "CommonpoolGuaranteesScaled": Case(
        {'commonpool_pool_scaled{pool="main"}': "1+0x10"},
        {'commonpool_pool_scaled{pool="main"}': "0+0x10"},
        {"pool": "main"},
    ),
    "CommonpoolUnderuse": Case(
        {'commonpool_tenant_underused_gpus{tenant="a"}': "2+0x10"},
        {'commonpool_tenant_underused_gpus{tenant="a"}': "0+0x10"},
        TENANT,
    ),
    "CommonpoolAway": Case(
        {'up{job="commonpool",instance="h:1"}': "0+0x10"},
        {'up{job="commonpool",instance="h:1"}': "1+0x10", 'up{job="other"}': "0+0x10"},
        {"job": "commonpool", "instance": "h:1"},
    ),
    "CommonpoolTracesDropped": Case(
        {'commonpool_traces_dropped_total{instance="h:1",reason="queue_full"}': "0+5x10"},
        {'commonpool_traces_dropped_total{instance="h:1",reason="queue_full"}': "5+0x10"},
        {"instance": "h:1", "reason": "queue_full"},
        first=2,
    ),
}


def alerts() -> dict[str, Any]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def test_the_rules_and_the_example_of_a_configuration_are_valid() -> None:
    assert "SUCCESS" in promtool("check", "rules", RULES)
    assert "SUCCESS" in promtool("check", "config", RULES.with_name("prometheus.yml"))


def test_each_alert_has_a_case() -> None:
    assert set(alerts()) == set(CASES)


def test_an_alert_is_the_products_own_of_that_name() -> None:
    own = {f"Commonpool{''.join(map(str.capitalize, name.split('_')))}": each for name, each in CONDITIONS.items()}
    shared = {name: rule for name, rule in alerts().items() if name in own}
    assert len(shared) == len(CASES) - 2  # that it cannot be read, and what a collector did not take, it cannot tell
    for name, rule in shared.items():
        condition = own[name]
        assert rule["labels"] == {"severity": condition.severity}, name
        assert _ns(rule.get("for", "0s")) == condition.for_ns, name
        assert _ns(rule.get("keep_firing_for", "0s")) == condition.keep_ns, name
        assert rule["annotations"]["description"] == condition.advice, name


def test_each_alert_fires_where_it_should_and_nowhere_else(tmp_path: Path) -> None:
    severity = {name: rule["labels"]["severity"] for name, rule in alerts().items()}
    tests = []
    for name, case in CASES.items():
        expected = {"exp_labels": {**case.labels, "severity": severity[name]}}
        for series, fires in ((case.fires, True), (case.quiet, False)):
            times = [(case.first, fires), (case.first + 1, fires)] + ([(0, False)] if case.first > 1 else [])
            asked = [
                {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": [expected] if firing else []}
                for minute, firing in times
            ]
            tests.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": key, "values": value} for key, value in series.items()],
                    "alert_rule_test": asked,
                }
            )
    file = tmp_path / "test.yml"
    stripped = tmp_path / "rules.yml"
    stripped.write_text(yaml.safe_dump(_no_annotations(yaml.safe_load(RULES.read_text()))))
    file.write_text(yaml.safe_dump({"rule_files": [str(stripped)], "evaluation_interval": "15s", "tests": tests}))
    assert "SUCCESS" in promtool("test", "rules", file)


@pytest.mark.parametrize("name", CASES)
def test_a_summary_names_only_labels_that_are_there(name: str) -> None:
    said = alerts()[name]["annotations"]["summary"]
    assert set(re.findall(r"\$labels\.(\w+)", said)) <= {*CASES[name].labels}


def _no_annotations(rules: Any) -> Any:
    """What is measured goes into a summary, so that it would have to be repeated here."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    return rules


def _ns(text: str) -> int:
    return int(text[:-1]) * _UNITS_S[text[-1]] * 10**9
