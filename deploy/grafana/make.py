# ruff: noqa: INP001 - a script among the files that it writes
"""Writes the dashboards beside it: python deploy/grafana/make.py

A panel is a line here; Grafana's JSON says each of them in forty. `tests/deploy` holds the files to this.
"""

import json
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
WIDTH: Final = 24
DATASOURCE: Final = {"type": "prometheus", "uid": "${source}"}
RATE: Final = "$__rate_interval"

Panel = tuple[str, str, str, list[tuple[str, str]], str]  # title, kind, unit, queries with legends, what it says


def quantile(percent: int, metric: str, by: str, where: str = "") -> str:
    rate = f"rate(commonpool_{metric}_bucket{{{where}}}[{RATE}])"
    return f"histogram_quantile(0.{percent}, sum by (le, {by}) ({rate}))"


def rate(metric: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate(commonpool_{metric}_total{{{where}}}[{RATE}]))"


MISSED: Final = "tenant_tier:commonpool_promise_missed:ratio_rate"
ONE: Final = 'tenant=~"$tenant"'
PLATFORM: Final[list[Panel]] = [
    (
        "Pools",
        "timeseries",
        "none",
        [
            ("commonpool_pool_capacity_gpus", "{{pool}} capacity"),
            ("commonpool_pool_free_gpus", "{{pool}} free"),
            ("commonpool_pool_fragmented_gpus", "{{pool}} fragmented"),
        ],
        "GPUs; fragmented is free and of no use.",
    ),
    ("GPUs in use", "timeseries", "none", [("commonpool_tenant_in_use_gpus", "{{tenant}}")], "By whose work they are."),
    (
        "Slowest tenants: p99 wait",
        "bargauge",
        "s",
        [(f"sort_desc({quantile(99, 'wait_seconds', 'tenant')})", "{{tenant}}")],
        "From arrival to dispatch.",
    ),
    (
        "Burn rate of promises, 1 h",
        "timeseries",
        "none",
        [(f"{MISSED}1h / 0.01", "{{tenant}} {{tier}} {{promise}}")],
        "1 spends exactly the 1 % that may be late; 14.4 wakes somebody up.",
    ),
    (
        "On loan, by lender and borrower",
        "timeseries",
        "none",
        [("commonpool_loaned_gpus", "{{lender}} to {{borrower}}")],
        "Without a lender: the pool's unowned part.",
    ),
    (
        "Lent and needed back",
        "timeseries",
        "none",
        [("commonpool_tenant_due_gpus", "{{tenant}}")],
        "GPUs that a tenant has lent while its own work waits.",
    ),
    (
        "Could be released",
        "timeseries",
        "none",
        [("commonpool_tenant_underused_gpus > 0", "{{tenant}}")],
        "Guarantees that nobody wanted for days.",
    ),
    ("Refusals", "timeseries", "reqps", [(rate("refusals", "reason"), "{{reason}}")], "By why."),
    (
        "Books: seconds since the last closed hour",
        "stat",
        "s",
        [("commonpool_books_behind_seconds", "{{pool}}")],
        "An hour is closed within seconds of its end.",
    ),
    (
        "Reconciliation difference",
        "stat",
        "s",
        [
            ("commonpool_books_uncharged_gpu_seconds", "{{pool}} uncharged"),
            ("commonpool_books_unreported_gpu_seconds", "{{pool}} unreported"),
        ],
        "GPU seconds of the last closed hour; uncharged is always 0.",
    ),
    (
        "Usage not yet stored",
        "timeseries",
        "bytes",
        [("commonpool_journal_backlog_bytes", "backlog")],
        "Grows while the database is away.",
    ),
    (
        "Nodes",
        "timeseries",
        "percentunit",
        [
            ("commonpool_node_cpu_ratio", "{{node}} CPU"),
            ("commonpool_node_memory_ratio", "{{node}} memory"),
            ("commonpool_node_network_ratio", "{{node}} network"),
        ],
        "How busy the machines themselves are.",
    ),
]
TENANT: Final[list[Panel]] = [
    (
        "Quota",
        "timeseries",
        "none",
        [
            (f"commonpool_tenant_guaranteed_gpus{{{ONE}}}", "{{tenant}} guaranteed"),
            (f"commonpool_tenant_in_use_gpus{{{ONE}}}", "{{tenant}} in use"),
            (f"commonpool_tenant_lent_gpus{{{ONE}}}", "{{tenant}} lent"),
            (f"commonpool_tenant_borrowed_gpus{{{ONE}}}", "{{tenant}} borrowed"),
            (f"commonpool_tenant_elastic_cap_gpus{{{ONE}}}", "{{tenant}} cap"),
        ],
        "GPUs.",
    ),
    (
        "Requests",
        "timeseries",
        "reqps",
        [(rate("requests", "tenant, outcome", ONE), "{{tenant}} {{outcome}}")],
        "Attempts that ended, by how.",
    ),
    (
        "Wait",
        "timeseries",
        "s",
        [
            (quantile(50, "wait_seconds", "tenant, tier", ONE), "{{tenant}} {{tier}} p50"),
            (quantile(99, "wait_seconds", "tenant, tier", ONE), "{{tenant}} {{tier}} p99"),
            ("commonpool_tier_queue_target_seconds", "{{tier}} promised"),
        ],
        "From arrival to dispatch.",
    ),
    (
        "First token",
        "timeseries",
        "s",
        [
            (quantile(50, "first_token_seconds", "tenant, tier", ONE), "{{tenant}} {{tier}} p50"),
            (quantile(99, "first_token_seconds", "tenant, tier", ONE), "{{tenant}} {{tier}} p99"),
            ("commonpool_tier_first_token_target_seconds", "{{tier}} promised"),
        ],
        "From arrival.",
    ),
    (
        "From token to token",
        "timeseries",
        "s",
        [
            (quantile(50, "output_token_seconds", "tenant, model", ONE), "{{tenant}} {{model}} p50"),
            (quantile(99, "output_token_seconds", "tenant, model", ONE), "{{tenant}} {{model}} p99"),
        ],
        "Of streams.",
    ),
    (
        "Missed of what was promised",
        "timeseries",
        "percentunit",
        [
            (f"{MISSED}1h{{{ONE}}}", "{{tenant}} {{tier}} {{promise}} 1 h"),
            (f"{MISSED}6h{{{ONE}}}", "{{tenant}} {{tier}} {{promise}} 6 h"),
        ],
        "1 % may be.",
    ),
    (
        "Queue",
        "timeseries",
        "none",
        [
            (f"commonpool_tenant_waiting_requests{{{ONE}}}", "{{tenant}} requests"),
            (f"commonpool_tenant_waiting_jobs{{{ONE}}}", "{{tenant}} jobs"),
        ],
        "What waits now.",
    ),
    (
        "Longest wait now",
        "timeseries",
        "s",
        [
            (f"commonpool_oldest_wait_seconds{{{ONE}}}", "{{tenant}} {{model}}"),
            (f"commonpool_tenant_max_wait_seconds{{{ONE}}}", "{{tenant}} max_wait"),
        ],
        "Of what waits.",
    ),
    (
        "Refusals",
        "timeseries",
        "reqps",
        [
            (rate("refusals", "tenant, reason", ONE), "{{tenant}} {{reason}}"),
            (rate("slowed", "tenant, why", ONE), "{{tenant}} held back: {{why}}"),
        ],
        "By why.",
    ),
    (
        "Retries",
        "timeseries",
        "reqps",
        [(rate("retries", "tenant, model", ONE), "{{tenant}} {{model}}")],
        "Attempts beyond a first.",
    ),
]
MODELS: Final[list[Panel]] = [
    (
        "Replicas",
        "timeseries",
        "none",
        [("sum by (model, state) (commonpool_replicas) > 0", "{{model}} {{state}}")],
        "By what they do.",
    ),
    (
        "Wanted and ready",
        "timeseries",
        "none",
        [
            ("commonpool_model_wanted_replicas", "{{model}} wanted"),
            ("commonpool_model_ready_replicas", "{{model}} ready"),
            ("commonpool_model_starting_replicas", "{{model}} starting"),
        ],
        "Replicas.",
    ),
    (
        "Slots in use",
        "timeseries",
        "percentunit",
        [
            (
                "sum by (model) (commonpool_replica_running_requests) / sum by (model) (commonpool_replica_slots)",
                "{{model}}",
            )
        ],
        "Of those of all its replicas.",
    ),
    ("Waiting", "timeseries", "none", [("sum by (model) (commonpool_waiting_requests)", "{{model}}")], "Requests."),
    (
        "Request, p99",
        "timeseries",
        "s",
        [(quantile(99, "request_seconds", "model"), "{{model}}")],
        "From arrival to the end.",
    ),
    (
        "From token to token, p50",
        "timeseries",
        "s",
        [(quantile(50, "output_token_seconds", "model"), "{{model}}")],
        "Of streams.",
    ),
    ("Tokens", "timeseries", "none", [(rate("tokens", "model, kind"), "{{model}} {{kind}}")], "A second."),
    (
        "Failed attempts",
        "timeseries",
        "reqps",
        [(rate("requests", "model", 'outcome="failed"'), "{{model}}")],
        "The engine failed, or answered with an error.",
    ),
    (
        "Circuits that are not closed",
        "timeseries",
        "none",
        [('commonpool_replica_circuit{circuit!="closed"} == 1', "{{replica}} {{circuit}}")],
        "Replicas that get nothing new, or one request at a time.",
    ),
    (
        "Since an engine said that it is well",
        "timeseries",
        "s",
        [("commonpool_replica_unheard_seconds", "{{replica}}")],
        "Asked every two seconds.",
    ),
    (
        "In the engines",
        "timeseries",
        "none",
        [
            ("sum by (model) (commonpool_engine_running_requests)", "{{model}} running"),
            ("sum by (model) (commonpool_engine_waiting_requests)", "{{model}} waiting"),
        ],
        "As the engines say.",
    ),
    (
        "KV cache in use",
        "timeseries",
        "percentunit",
        [("commonpool_engine_kv_ratio", "{{replica}}")],
        "As the engines say.",
    ),
    (
        "Past the gateway",
        "timeseries",
        "none",
        [("commonpool_engine_foreign_requests > 0", "{{replica}}")],
        "In an engine, and not sent from here.",
    ),
    (
        "Devices that work",
        "timeseries",
        "percentunit",
        [("commonpool_device_busy_ratio", "{{device}}")],
        "Of the time, as their drivers say.",
    ),
    (
        "Memory in use on devices",
        "timeseries",
        "bytes",
        [("commonpool_device_used_memory_bytes", "{{device}}")],
        "As their drivers say.",
    ),
    (
        "Starts that failed",
        "timeseries",
        "none",
        [("commonpool_model_failed_starts > 0", "{{model}}")],
        "Since the last good one.",
    ),
]
MONEY: Final[list[Panel]] = [
    (
        "Charged for GPU time, an hour",
        "timeseries",
        "none",
        [("sum by (tenant) (rate(commonpool_cost_micro_total[1h])) * 3600 / 1e6", "{{tenant}}")],
        "In the currency; bills have all the rest.",
    ),
    (
        "Charged in this range",
        "bargauge",
        "none",
        [("sort_desc(sum by (tenant) (increase(commonpool_cost_micro_total[$__range])) / 1e6)", "{{tenant}}")],
        "For GPU time, in the currency.",
    ),
    (
        "Per million tokens",
        "timeseries",
        "none",
        [
            (
                f"{rate('cost_micro', 'model')} / {rate('tokens', 'model')}",
                "{{model}}",
            )
        ],
        "GPU time, in the currency, for a million tokens of any kind.",
    ),
    (
        "Budgets",
        "bargauge",
        "percentunit",
        [("commonpool_tenant_budget_spent_micro / commonpool_tenant_budget_micro", "{{tenant}}")],
        "Spent of this month's.",
    ),
    (
        "GPU time used",
        "timeseries",
        "none",
        [("sum by (tenant) (rate(commonpool_gpu_seconds_total[1h]))", "{{tenant}}")],
        "GPUs, on average of an hour.",
    ),
    (
        "Lent and borrowed",
        "timeseries",
        "none",
        [
            ("sum by (tenant) (rate(commonpool_lent_gpu_seconds_total[1h]))", "{{tenant}} lent"),
            ("sum by (tenant) (rate(commonpool_borrowed_gpu_seconds_total[1h]))", "{{tenant}} borrowed"),
        ],
        "GPUs, on average of an hour, of loans that ended.",
    ),
    ("Tokens", "timeseries", "none", [(rate("tokens", "tenant, kind"), "{{tenant}} {{kind}}")], "A second."),
    ("Currency", "stat", "none", [("commonpool_currency_info", "{{currency}}")], "Of all amounts here."),
]
BOARDS: Final[dict[str, tuple[str, list[Panel]]]] = {
    "platform": ("Commonpool: platform", PLATFORM),
    "tenant": ("Commonpool: tenant", TENANT),
    "models": ("Commonpool: models and replicas", MODELS),
    "money": ("Commonpool: money", MONEY),
}


def variable(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "label": name, **more}


def board(uid: str, title: str, panels: list[Panel]) -> dict[str, Any]:
    """A dashboard as Grafana takes it, from version 10 on; two panels in a row."""
    variables = [variable("source", type="datasource", query="prometheus")]
    if uid == "tenant":
        query = "label_values(commonpool_tenant_guaranteed_gpus, tenant)"
        asked = {"type": "query", "datasource": DATASOURCE, "query": query, "definition": query, "refresh": 2}
        variables.append(variable("tenant", **asked, includeAll=True, multi=True, allValue=".*", sort=1))
    return {
        "uid": f"commonpool-{uid}",
        "title": title,
        "tags": ["commonpool"],
        "schemaVersion": 38,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": variables},
        "links": [{"type": "dashboards", "title": "commonpool", "tags": ["commonpool"], "asDropdown": False}],
        "panels": [panel(number, *each) for number, each in enumerate(panels)],
    }


def panel(number: int, title: str, kind: str, unit: str, queries: list[tuple[str, str]], says: str) -> dict[str, Any]:
    return {
        "id": number + 1,
        "title": title,
        "description": says,
        "type": kind,
        "datasource": DATASOURCE,
        "gridPos": {"h": 8, "w": WIDTH // 2, "x": WIDTH // 2 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": DATASOURCE,
                "expr": asked,
                "legendFormat": legend,
                **({} if kind == "timeseries" else {"instant": True}),
            }
            for at, (asked, legend) in enumerate(queries)
        ],
    }


def boards() -> dict[str, str]:
    """What is in each file."""
    return {
        f"{uid}.json": json.dumps(board(uid, title, panels), indent=2) + "\n" for uid, (title, panels) in BOARDS.items()
    }


if __name__ == "__main__":
    for name, text in boards().items():
        (HERE / name).write_text(text)
