"""What differs, in the words that people write, and what applying it does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.config import Change, Config, Kind, diff, load, parse
from commonpool.core.model import Lending, Price, Window

Edit = Callable[..., str]

FIRST = "4.00 a month, layer operation, split uniform, pool main, from 2026-12-01, until 2027-01-01"
UNCLOSED = "at once, for hours and months that are not closed yet"
DECEMBER = "pool: main, from: 2026-12-01, until: 2027-01-01"
ROOM = "name: room, layer: request, month: 5, split: proportional"


def changes(old: str, new: str) -> list[tuple[str, str | None, str | None, str]]:
    return [(c.key, c.old, c.new, c.effect) for c in diff(parse(old), parse(new))]


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("    gpu: 1_gpu", "    kv_tokens: 8192\n    gpu: 1_gpu", None),
        (
            "guaranteed: 2_gpu",
            "guaranteed: 0.5_gpu",
            ("tenants.support.tenant.guaranteed", "2 gpu", "0.5 gpu", "at once"),
        ),
        (
            "    tenant: {guaranteed: 2_gpu}",
            "    tenant: {guaranteed: 2_gpu}\n    queue: {max_wait: 30s}",
            ("tenants.support.queue.max_wait", "120s", "30s", "at once"),
        ),
        (
            "    tenant: {guaranteed: 2_gpu}",
            "    tenant: {guaranteed: 2_gpu}\n    queue: {fallback: false}",
            ("tenants.support.queue.fallback", "true", "false", "at once"),
        ),
        (
            "    tenant: {guaranteed: 2_gpu}",
            "    tenant: {guaranteed: 2_gpu}\n    response_cache: 2h",
            ("tenants.support.response_cache", None, "2h", "at once"),
        ),
        (
            "    tenant: {guaranteed: 2_gpu}",
            "    tenant: {guaranteed: 2_gpu}\n    queue: {later: true}\nsecrets: {master_key: env:X}",
            [
                ("secrets.master_key", None, "env:X", "needs a restart of the product"),
                ("tenants.support.queue.later", None, "true", "at once"),
            ],
        ),
        (
            "    tenant: {guaranteed: 2_gpu}",
            "    tenant: {guaranteed: 2_gpu}\n    limits: {requests: 10/s}",
            ("tenants.support.limits.requests", None, "600/min", "at once"),
        ),
        (
            "    tenant: {guaranteed: 2_gpu}",
            "    tenant: {guaranteed: 2_gpu}\n    apps: {helpdesk: {cost_center: CC-1}}",
            ("tenants.support.apps.helpdesk", None, "cost_center CC-1", "at once"),
        ),
        (
            "    tenant: {guaranteed: 2_gpu}",
            "    tenant: {guaranteed: 2_gpu}\n    limits: {bandwidth: 10MB/s}",
            ("tenants.support.limits.bandwidth", None, "10MB/s", "at once"),
        ),
        ("{guaranteed: 2_gpu}", "{guaranteed: 2_gpu, lending_limit: 2_gpu}", None),
        (
            "{guaranteed: 2_gpu}",
            "{guaranteed: 2_gpu, lending_limit: 0.5_gpu}",
            ("tenants.support.tenant.reserved", "0 gpu", "1.5 gpu", "at once"),
        ),
        (
            "{gpus: 4_gpu}",
            "{gpus: 4_gpu, resources: {memory: 1TiB}}",
            ("pools.main.resources.memory", None, "1024GiB", "at once"),
        ),
        ("2.50", "2.5", None),
        ("2.50", "[{price: 2.5}]", None),
        (
            "2.50",
            "[{price: 2.5}, {price: 3, from: 2026-12-01}]",
            (
                "prices.gpu_hour.main",
                "2.50",
                "2.50, 3.00 from 2026-12-01",
                UNCLOSED,
            ),
        ),
        (
            "EUR,",
            "EUR, lending: {main: {rate: 87.5%, hours: {20-6: 50%}}},",
            (
                "prices.lending.main",
                None,
                "87.5%, 20-6: 50%",
                UNCLOSED,
            ),
        ),
        (
            "EUR,",
            "EUR, meters: {network_gb: [{price: 0.02, from: 2026-12-01}]},",
            (
                "prices.meters.network_gb",
                None,
                "0.02 from 2026-12-01",
                UNCLOSED,
            ),
        ),
        (
            "EUR,",
            "EUR, time_zone: Europe/Berlin,",
            ("prices.time_zone", "UTC", "Europe/Berlin", "needs a restart of the product"),
        ),
        (
            "tenants:",
            f"costs: [{{name: room, layer: operation, month: 4, split: uniform, {DECEMBER}}}, {{{ROOM}}}]\ntenants:",
            (
                "costs.room",
                None,
                f"{FIRST}; 5.00 a month, layer request, split proportional",
                UNCLOSED,
            ),
        ),
        ("tenants:", "retention: 30d\ntenants:", ("retention", "90d", "30d", "at once")),
        (
            "    tenant: {guaranteed: 2_gpu}",
            "    tenant: {guaranteed: 2_gpu}\n    budget: {month: 50, soft: 80%}",
            [
                ("tenants.support.budget.month", None, "50.00", "at once"),
                ("tenants.support.budget.soft", None, "80%", "at once"),
            ],
        ),
        (
            "2.50",
            "3",
            ("prices.gpu_hour.main", "2.50", "3.00", UNCLOSED),
        ),
        ("version: v1", "version: v2", ("models.small.version", "v1", "v2", "restarts replicas of small (drained)")),
        (
            "    gpu: 1_gpu",
            "    replicas_max: 3\n    gpu: 1_gpu",
            ("models.small.replicas_max", "1", "3", "at once"),
        ),
        (
            "    gpu: 1_gpu",
            "    idle_after: 10m\n    gpu: 1_gpu",
            ("models.small.idle_after", "300s", "10m", "at once"),
        ),
        (
            "    gpu: 1_gpu",
            "    gpu_memory: 10GiB\n    gpu: 1_gpu",
            ("models.small.gpu_memory", None, "10GiB", "restarts replicas of small (drained)"),
        ),
        (
            "    tenant: {guaranteed: 2_gpu}",
            "    tenant: {guaranteed: 2_gpu}\n    reclaim: {policy: checkpoint}",
            ("tenants.support.reclaim.policy", "borrow_not_preempt", "checkpoint", "at once"),
        ),
        (
            "pools:",
            "state: data\npools:",
            ("state", f"{Path.cwd()}/var", f"{Path.cwd()}/data", "needs a restart of the product"),
        ),
        (
            "pools:",
            "store: {url: postgresql://db/books}\npools:",
            ("store.url", None, "postgresql://db/books", "needs a restart of the product"),
        ),
        (
            "pools:",
            "listen: {gateway: '[::]:80'}\npools:",
            ("listen.gateway", "127.0.0.1:8080", "[::]:80", "needs a restart of the product"),
        ),
        (
            "pools:",
            "listen: {gateway_tls: {certificate: /tls/a.pem, key: /tls/a.key}}\npools:",
            [
                ("listen.gateway_tls.certificate", None, "/tls/a.pem", "needs a restart of the product"),
                ("listen.gateway_tls.key", None, "/tls/a.key", "needs a restart of the product"),
            ],
        ),
        (
            "pools:",
            "outgoing: [10.0.0.0/8, id.example]\npools:",
            ("outgoing", None, "[10.0.0.0/8, id.example]", "needs a restart of the product"),
        ),
        ("pools:", "timeouts: {drain: 1m}\npools:", ("timeouts.drain", "30s", "60s", "at once")),
        ("pools:", "body_max: 1MiB\npools:", ("body_max", "32MiB", "1MiB", "at once")),
        (
            "pools:",
            "jobs: {submitters: tenants}\npools:",
            ("jobs.submitters", "operators", "tenants", "at once"),
        ),
    ],
)
def test_one_key(
    base: str, edit: Edit, old: str, new: str, change: list[tuple[str | None, ...]] | tuple[str | None, ...] | None
) -> None:
    assert changes(base, edit(old, new)) == (change if isinstance(change, list) else [change] if change else [])


def test_users_of_jobs_are_for_the_next_start(base: str) -> None:
    local = f"access: {{local: false}}\n{base}"
    assert changes(local, f"jobs: {{users: {{support: jobs-support}}}}\n{local}") == [
        ("jobs.users.support", None, "jobs-support", "needs a restart of the product")
    ]


def test_what_follows_from_a_key_changes_with_it(base: str, edit: Edit) -> None:
    assert changes(base, edit("4_gpu", "6_gpu, rule: guaranteed")) == [
        ("pools.main.gpus", "4 gpu", "6 gpu", "at once"),
        ("pools.main.rule", "elastic", "guaranteed", "at once"),
        ("pools.main.isolation", "shared", "guaranteed", "at once"),
        ("tenants.support.tenant.elastic_cap", "4 gpu", "2 gpu", "at once"),
        ("tenants.support.tenant.hard_cap", "4 gpu", "2 gpu", "at once"),
    ]


def test_more_replicas_are_started_and_fewer_stopped(base: str, edit: Edit) -> None:
    more = edit("    gpu: 1_gpu", "    replicas: 3\n    gpu: 1_gpu")
    assert changes(base, more) == [
        ("models.small.replicas", "1", "3", "starts 2 replicas of small"),
        ("models.small.replicas_max", "1", "3", "at once"),
    ]
    assert changes(more, base)[0][3] == "stops 2 replicas of small (drained)"


def test_a_node_comes_changes_and_goes(edit: Edit) -> None:
    one = edit(end="nodes: {n1: {gpus: 4}}\n")
    two = edit(end="nodes: {n1: {gpus: 4}, n2: {gpus: 0, links: [], cpus: 2, maintenance: []}}\n")
    said = "pool: main, gpus: 0, links: [], cpus: 2 cores, isolation: node, discover: false"
    assert changes(one, two) == [("nodes.n2", None, said, "at once: work may be placed there")]
    assert changes(two, one) == [("nodes.n2", said, None, "at once: nothing new is placed there")]
    bad = edit(end="nodes: {n1: {gpus: 4, unhealthy: [1, 3]}}\n")
    assert changes(one, bad) == [("nodes.n1.unhealthy", None, "[1, 3]", "at once")]


def test_nodes_of_a_pool_start_no_replica_anew(base: str, edit: Edit) -> None:
    """Declaring what is there already leaves what runs alone."""
    assert [change.key for change in diff(parse(base), parse(edit(end="nodes: {n1: {gpus: 4}}\n")))] == ["nodes.n1"]


def test_what_appears_or_goes_is_one_change(base: str, edit: Edit) -> None:
    other = edit(end="  research: {tenant: {guaranteed: 1}, queue: {priority: {batch: 1}}}\n")
    said = (
        "tenant.pool: main, tenant.guaranteed: 1 gpu, tenant.reserved: 0 gpu, tenant.headroom: 0 gpu, "
        "tenant.elastic_cap: 4 gpu, tenant.hard_cap: 4 gpu, tenant.weight: 1, queue.priority.batch: 1, "
        "queue.max_wait: 120s, queue.fallback: true, reclaim.policy: borrow_not_preempt, "
        "reclaim.return_when: task_done, limits.queue_length: 1000, apps.default: {}"
    )
    assert changes(base, other) == [("tenants.research", None, said, "at once")]
    assert changes(other, base) == [
        ("tenants.research", said, None, "at once: admits nothing new; what runs goes on"),
    ]


def test_models_that_come_and_go(base: str, edit: Edit) -> None:
    other = edit("  small:", "  large:")
    assert [(c.key, c.kind, c.effect) for c in diff(parse(base), parse(other))] == [
        ("models.large", Kind.REPLICAS, "starts 1 replica of large"),
        ("models.small", Kind.REPLICAS, "stops 1 replica of small (drained)"),
    ]


def test_a_tier_without_targets_is_a_change_too(edit: Edit) -> None:
    tiers = "tiers: {interactive: , batch: }\n"
    assert changes(edit(end=tiers), edit(end=tiers.replace("}", ", gold: }"))) == [
        ("tiers.gold", None, "no targets", "at once")
    ]


def test_a_change_is_data(base: str, edit: Edit) -> None:
    found = diff(parse(base), parse(edit("slots: 4", "slots: 8")))
    assert msgspec.json.decode(msgspec.json.encode(found), type=list[Change]) == found
    assert [change.kind for change in found] == [Kind.REPLICAS, Kind.REPLICAS]


def test_order_comments_and_spelling_are_no_change(root: Path) -> None:
    config = load(root / "commonpool.yaml")
    text = (root / "commonpool.yaml").read_text()
    respelt = text.replace("4_gpu", "4000 milli_gpu").replace("120s", "2m").replace("#", "##")
    assert diff(config, parse(respelt, str(root / "commonpool.yaml"))) == []


@given(st.sampled_from(["commonpool.yaml", "examples/cluster.yaml", "examples/divisions.yaml", "examples/nodes.yaml"]))
def test_nothing_changes_from_a_configuration_to_itself(file: str) -> None:
    config = load(Path(__file__).parents[2] / file)
    assert diff(config, config) == []


def altered(value: Any) -> list[Any]:  # noqa: C901, PLR0911, PLR0912 - one for each kind of value
    """Every copy of a value that differs in one place, of a kind that the configuration can have."""
    match value:
        case Window():  # in whole seconds
            return [Window(value.start_ns + 10**9, value.end_ns), Window(value.start_ns, value.end_ns + 10**9)]
        case msgspec.Struct():
            # Not settings, or said under models and nodes; no model asks for several devices by memory or profile.
            skipped = {"source", "warnings", "revision", "deployments", "placed", "count", "hour_offset_ns"}
            # A thing's name is its key; that of a time zone has a test of its own.
            skipped |= {"name", "pool"} if isinstance(value, Price | Lending) else {"name", "time_zone"}
            return [
                msgspec.structs.replace(value, **{field: other})
                for field in value.__struct_fields__
                if field not in skipped
                for other in altered(getattr(value, field))
            ]
        case dict():
            return [{**value, key: other} for key, item in value.items() for other in altered(item)] + [
                {key: item for key, item in value.items() if key != gone} for gone in value
            ]
        case bool():
            return [not value]
        case int() if value > 10**18:  # an instant of which the day is said
            return [value + 86400 * 10**9]
        case int():
            return [value + 1]
        case str():
            return [value + "x"]
        case ():  # of what, is not known here
            return []
        case (int(), *_):
            return [(*value[:at], other, *value[at + 1 :]) for at in range(len(value)) for other in altered(value[at])]
        case (msgspec.Struct(), *_) | ((int(), *_), *_):
            return [value[:-1], *((*value[:-1], other) for other in altered(value[-1]))]
        case tuple():
            return [(*value, "x")]
        case Path():
            return [value / "x"]
        case _:
            return []


@pytest.mark.parametrize(("file", "least"), [("cluster.yaml", 140), ("divisions.yaml", 160), ("nodes.yaml", 110)])
def test_no_setting_can_change_unseen(root: Path, file: str, least: int) -> None:
    config: Config = load(root / "examples" / file)
    others = altered(config)
    assert len(others) > least
    for other in others:
        assert diff(config, other), other
