"""What must hold between keys, and what is allowed but worth a warning."""

# ruff: noqa: E501 - a table of sentences is read by the line

from collections.abc import Callable

import pytest

from commonpool.config import parse

Wrong = Callable[[str], list[str]]
Edit = Callable[..., str]

ROOM = "name: room, layer: infrastructure, month: 4000, split: uniform"
ATTACHED = "kind: attached, urls: [http://a, http://b]"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        # Listeners.
        ("pools:", "listen: {gateway: 0.0.0.0:9, control: 127.0.0.1:9}\npools:", "1: listen.control: 127.0.0.1:9 is taken by listen.gateway (0.0.0.0:9); use another port"),
        ("pools:", "listen: {gateway_tls: {certificate: a.pem}}\npools:", "1: listen.gateway_tls.key: is missing; write the PEM file, or leave the whole of it out"),
        ("pools:", "listen: {gateway_tls: {key: a.key, client_ca: b.pem}}\npools:", "1: listen.gateway_tls.certificate: is missing; write the PEM file, or leave the whole of it out"),
        ("pools:", "listen: {control_tls: {certificate: a.pem, key: a.key}}\npools:", None),
        # Jobs as users of their own.
        ("pools:", "access: {local: false}\njobs: {users: {suport: jobs-a}}\npools:", '2: jobs.users.suport: there is no tenant "suport"; did you mean support? Known: support'),
        ("pools:", "access: {local: false}\njobs: {users: {support: root}}\npools:", "2: jobs.users.support: is root, which may do anything; name a user of its own"),
        ("pools:", "jobs: {users: {support: jobs-a}}\npools:", "1: jobs.users: keeps jobs from what is the product's, and on this machine whoever shows no credential is an administrator; set access.local to false"),
        ("pools:", "access: {local: false}\njobs: {users: {support: jobs-a}}\npools:", None),
        ("pools:", "jobs: {users: {support: Jobs A}}\npools:", '1: jobs.users.support: "Jobs A" is not a user of the operating system; write it like jobs-research'),
        # Names that are not defined.
        ("    gpu:", "    pool: mian\n    gpu:", '6: models.small.pool: there is no pool "mian"; did you mean main? Known: main'),
        ("guaranteed: 2_gpu", "pool: other", '13: tenants.support.tenant.pool: there is no pool "other"; known: main'),
        ("guaranteed: 2_gpu", "group: ops", '13: tenants.support.tenant.group: there is no group "ops"; known: none'),
        ("guaranteed: 2_gpu", "models: [small, smal]", '13: tenants.support.tenant.models.1: there is no model "smal"; did you mean small? Known: small'),
        ("guaranteed: 2_gpu}", "guaranteed: 2_gpu}\n    queue: {priority: {fast: 1}}", '14: tenants.support.queue.priority.fast: there is no tier "fast"; known: interactive, batch'),
        ("tenants:", "groups: {a: {parent: b}}\ntenants:", '11: groups.a.parent: there is no group "b"; known: a'),
        # Prompts that are kept need a key.
        ("guaranteed: 2_gpu}", "guaranteed: 2_gpu}\n    queue: {later: true}", "14: tenants.support.queue.later: keeps prompts until they are answered, encrypted, and there is no key for it; set secrets.master_key"),
        ("pools:", "secrets: {master_key: env:X}\npools:", None),
        # Prices.
        ("main: 2.50", "", "10: prices.gpu_hour.main: is missing; write the price of one GPU for an hour, 0 where it is free"),
        ("main: 2.50", "main: 2.50, x: 1", '10: prices.gpu_hour.x: there is no pool "x"; known: main'),
        ("main: 2.50", "main: [{price: 1, from: 2026-12-01}, {price: 2}]", "10: prices.gpu_hour.main.1.from: is missing; write the day from which this price holds: only the first may be without"),
        ("main: 2.50", "main: [{price: 1, from: 2026-12-01}, {price: 2, from: 2026-12-01}]", "10: prices.gpu_hour.main.1.from: 2026-12-01 is not after 2026-12-01, the day of the price before it; sort them by day"),
        ("EUR,", "EUR, meters: {request: [{price: 1}, {price: 2, from: 2027-01-01}, {price: 2, from: 2026-12-01}]},", "10: prices.meters.request.2.from: 2026-12-01 is not after 2027-01-01, the day of the price before it; sort them by day"),
        ("EUR,", "EUR, lending: {mian: 50%},", '10: prices.lending.mian: there is no pool "mian"; did you mean main? Known: main'),
        ("EUR,", "EUR, lending: {main: {hours: {8-12: 50%, 22-9: 10%}}},", "10: prices.lending.main.hours: 22-9 and 8-12 are both about the hour from 8; part them"),
        ("EUR,", "EUR, lending: {main: {hours: {8-12: 50%, 12-8: 10%}}},", None),
        # Shared costs.
        ("tenants:", f"costs: [{{{ROOM}, pool: mian}}]\ntenants:", '11: costs.0.pool: there is no pool "mian"; did you mean main? Known: main'),
        ("tenants:", f"costs: [{{{ROOM}, from: 2026-12-01, until: 2026-12-01}}]\ntenants:", "11: costs.0.until: 2026-12-01 is not after from (2026-12-01); until is the first day without it"),
        ("tenants:", f"costs: [{{{ROOM}, until: 2026-12-01}}, {{{ROOM}, from: 2026-11-30}}]\ntenants:", "11: costs.1.name: is there twice for the same days, and would be charged twice; end one before the other begins"),
        ("tenants:", f"costs: [{{{ROOM}, until: 2026-12-01}}, {{{ROOM}, from: 2026-12-01}}, {{{ROOM}, pool: main}}]\ntenants:", None),
        ("tenants:", "costs: [{name: room, layer: request, month: 1, split: request}]\ntenants:", "11: costs.0.split: request has no price, so it is not metered; write one under prices.meters, if only 0"),
        # Models.
        ("context: 2048", "context: 2048\n    kv_tokens: 2000", "9: models.small.kv_tokens: 2000 is less than context (2048), so one sequence would not fit; write at least that"),
        ("kind: embedded, file: small.gguf}", f"{ATTACHED}}}\n    replicas: 3", "10: models.small.replicas: is 3, but there are 2 urls, one a replica; leave replicas out"),
        ("context: 2048", "context: 2048\n    residency: on_demand\n    replicas: 1", "10: models.small.replicas: is 1, and residency on_demand keeps none while nobody asks; leave it out"),
        ("context: 2048", "context: 2048\n    replicas: 0", "9: models.small.replicas: is 0, and residency resident keeps replicas ready; write 1, or residency: on_demand"),
        ("context: 2048", "context: 2048\n    replicas: 2\n    replicas_max: 1", "9: models.small.replicas: 2 is more than replicas_max (1); raise that or lower this"),
        ("kind: embedded, file: small.gguf}", f"{ATTACHED}}}\n    residency: async", "10: models.small.residency: is async, and attached engines are always there; leave it out"),
        ("kind: embedded, file: small.gguf}", f"{ATTACHED}}}\n    replicas_max: 3", "10: models.small.replicas_max: is 3, but there are 2 urls, one a replica; leave replicas_max out"),
        ("context: 2048", "context: 2048\n    fallback: large", '9: models.small.fallback: there is no model "large"; known: small'),
        ("context: 2048", "context: 2048\n    fallback: small", "9: models.small.fallback: is the model itself; name another, or leave it out"),
        # Capacity.
        ("gpu: 1_gpu", "gpu: 1.5_gpu\n    replicas: 3", "2: pools.main.gpus: 4 gpu are fewer than the replicas of its models hold (4.5 gpu); lower their replicas or gpu"),
        # Groups.
        ("tenants:", "groups: {b: {parent: a}, a: {parent: c}, c: {parent: b}}\ntenants:", "11: groups.a.parent: leads back to itself (a → c → b → a); a group's parents end at the pool"),
        ("tenants:", "groups: {support: {elastic_cap: 4}}\ntenants:", "11: groups.support: support is a tenant's name too, and a loan's lender would be either; rename one of them"),
        ("tenants:", "groups: {a: {parent: a}}\ntenants:", "11: groups.a.parent: leads back to itself (a → a); a group's parents end at the pool"),
        ("tenants:\n  support:\n    tenant: {", "groups: {a: {elastic_cap: 1}, b: {parent: a}}\ntenants:\n  support:\n    tenant: {group: b, ", "11: groups.a.elastic_cap: 1 gpu is less than what is guaranteed below it (2 gpu); raise it or lower guarantees there"),
        # What could never run.
        ("guaranteed: 2_gpu", "elastic_cap: 0.2", "13: tenants.support.tenant.elastic_cap: elastic_cap 0.2 gpu is less than one slot of model small (1 gpu a replica / 4 slots), so that model could never run; raise it, or leave small out of tenant.models"),
        ("tenants:\n  support:\n    tenant: {guaranteed: 2_gpu", "groups: {a: {elastic_cap: 0.1}}\ntenants:\n  support:\n    tenant: {group: a", "14: tenants.support.tenant.group: group a's elastic_cap 0.1 gpu is less than one slot of model small (1 gpu a replica / 4 slots), so that model could never run; raise it, or leave small out of tenant.models"),
        # Dedicated pools.
        ("4_gpu}", "4_gpu, rule: dedicated}", None),
        ("guaranteed: 2_gpu}", "guaranteed: 2_gpu}\n  other: {}", None),
    ],
)  # fmt: skip
def test_a_contradiction_is_one_line(edit: Edit, wrong: Wrong, old: str, new: str, problem: str | None) -> None:
    text = edit(old, new)
    if problem is None:
        parse(text)
    else:
        assert wrong(text) == [f"c.yaml:{problem}"]


@pytest.mark.parametrize("nothing", ["", "{}"])
def test_tls_with_nothing_is_not_plain_http(edit: Edit, wrong: Wrong, nothing: str) -> None:
    assert [line.split(": ")[1] for line in wrong(edit("pools:", f"listen:\n  control_tls: {nothing}\npools:"))] == [
        "listen.control_tls.certificate",
        "listen.control_tls.key",
    ]


def test_each_tenant_has_a_user_of_its_own(wrong: Wrong, edit: Edit) -> None:
    two = edit(end="  other: {tenant: {guaranteed: 1_gpu}}\naccess: {local: false}\n")
    assert wrong(two + "jobs: {users: {support: a, other: a}}\n") == [
        "c.yaml:16: jobs.users.other: a is the user of tenant support; give each tenant a user of its own"
    ]


def test_an_exact_slot_is_enough(edit: Edit) -> None:
    assert parse(edit("guaranteed: 2_gpu", "elastic_cap: 0.25")).policy.tenants["support"].elastic_cap == 250


def test_a_dedicated_pool_has_one_tenant(edit: Edit, wrong: Wrong) -> None:
    text = edit("4_gpu}", "4_gpu, rule: dedicated}", end="  other: {}\n")
    assert wrong(text) == [
        "c.yaml:2: pools.main.rule: is dedicated, so exactly one tenant has it as its pool, and 2 do",
    ]
    text = edit("4_gpu}", "4_gpu, rule: dedicated}").replace("  support:\n    tenant: {guaranteed: 2_gpu}\n", "")
    assert wrong(text) == [
        "c.yaml:2: pools.main.rule: is dedicated, so exactly one tenant has it as its pool, and none do",
    ]


def test_two_models_do_not_share_an_engine(edit: Edit, wrong: Wrong) -> None:
    other = "  other: {version: 1, gpu: 1, slots: 1, context: 1, engine: {kind: attached, urls: [http://B:80/]}}\n"
    text = edit("kind: embedded, file: small.gguf}\n", f"{ATTACHED}}}\n{other}")
    assert wrong(text) == [
        "c.yaml:10: models.other.engine.urls.0: http://b is already an engine of model small; an engine serves one model"
    ]


OTHER = "{pool: POOL, version: 1, gpu: 1, slots: 1, context: 1, fallback: NEXT, engine: {kind: embedded, file: x}}"


def other(name: str, after: str, pool: str = "main") -> str:
    return f"  {name}: {OTHER.replace('POOL', pool).replace('NEXT', after)}\n"


def test_fallbacks_lead_to_a_model_without_one(edit: Edit, wrong: Wrong) -> None:
    text = edit("    slots: 4\n", "    slots: 4\n    fallback: b\n")
    chain = text.replace("prices:", f"{other('b', 'c')}{other('c', 'd').replace(', fallback: d', '')}prices:")
    assert parse(chain).policy.deployments["b"].fallback == "c"
    assert wrong(text.replace("prices:", f"{other('b', 'c')}{other('c', 'small')}prices:")) == [
        "c.yaml:11: models.b.fallback: leads back to itself (b → c → small → b); let one of them have none"
    ]


def test_a_fallback_is_in_the_same_pool(edit: Edit, wrong: Wrong) -> None:
    text = edit("    slots: 4\n", "    slots: 4\n    pool: main\n    fallback: b\n")
    text = text.replace("prices:", f"{other('b', 'x', 'two').replace(', fallback: x', '')}prices:").replace(
        "tenant: {", "tenant: {pool: main, "
    )
    text = text.replace("main: {gpus: 4_gpu}", "main: {gpus: 4_gpu}\n  two: {gpus: 1}").replace("2.50", "2.50, two: 1")
    assert wrong(text) == [
        "c.yaml:10: models.small.fallback: is in pool two, and this model in main; name one of its own pool"
    ]


def test_a_group_belongs_to_one_pool(wrong: Wrong) -> None:
    text = """\
pools: {a: {gpus: 1}, b: {gpus: 1}}
models:
  m: {version: 1, pool: a, gpu: 1, slots: 1, context: 1, engine: {kind: embedded, file: x}}
  n: {version: 1, pool: b, gpu: 1, slots: 1, context: 1, engine: {kind: embedded, file: x}}
prices: {currency: EUR, gpu_hour: {a: 1, b: 1}}
groups: {g: , h: {parent: g}}
tenants:
  t: {tenant: {pool: a, group: g, models: [n]}}
  u: {tenant: {pool: b, group: h}}
"""
    assert wrong(text) == [
        "c.yaml:6: groups.g: holds tenants of several pools (t in a, u in b); a group belongs to one pool",
        (
            'c.yaml:8: tenants.t.tenant.models.0: model "n" is in pool b, and this tenant\'s pool is a; '
            "list models of its own pool"
        ),
    ]


def test_what_is_wrong_already_proves_nothing_else(edit: Edit, wrong: Wrong) -> None:
    """A typo is one problem: what depends on the value is not judged."""
    assert len(wrong(edit("4_gpu}", "4_cpu, rule: guaranteed}"))) == 1
    assert len(wrong(edit("{gpus: 4_gpu}", "4"))) == 1
    assert len(wrong(edit("gpu: 1_gpu", "gpu: 1_cpu\n    replicas: 9"))) == 1
    assert len(wrong(edit("guaranteed: 2_gpu", "guaranteed: many, reserved: 1, elastic_cap: 1"))) == 1
    assert len(wrong(edit("guaranteed: 2_gpu", "pool: [main]"))) == 1
    assert len(wrong(edit(end="tiers: 3\n"))) == 1
    assert len(wrong(edit("main: 2.50", "main: dear"))) == 1
    assert len(wrong(edit("slots: 4", "slots: four"))) == 1


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        (
            "guaranteed: 2_gpu",
            "guaranteed: 6_gpu",
            "2: pools.main.gpus: 4 gpu are fewer than is guaranteed (6 gpu): guarantees are scaled pro rata",
        ),
        (
            "guaranteed: 2_gpu",
            "elastic_cap: 6",
            "13: tenants.support.tenant.elastic_cap: 6 gpu is more than pool main has (4 gpu)",
        ),
        (
            "tenants:\n  support:\n    tenant: {guaranteed: 2_gpu}\n",
            "",
            "1: there is no tenant, so every request is refused; add one under tenants",
        ),
        ("pools:", "include: [tenants/*.yaml]\npools:", "1: include.0: tenants/*.yaml matches no file"),
    ],
)
def test_what_is_hardly_meant_is_a_warning(edit: Edit, old: str, new: str, warning: str) -> None:
    assert parse(edit(old, new), "c.yaml").warnings == (f"c.yaml:{warning}",)


def test_a_pool_without_a_model_is_a_warning_for_its_tenants(edit: Edit) -> None:
    text = edit(
        "  main: {gpus: 4_gpu}\n", "  main: {gpus: 4_gpu}\n  other: {gpus: 1}\n", end="  t: {tenant: {pool: other}}\n"
    )
    text = text.replace("2.50", "2.50, other: 0").replace("    gpu:", "    pool: main\n    gpu:")
    text = text.replace("{guaranteed: 2_gpu}", "{pool: main}")
    assert parse(text, "c.yaml").warnings == (
        "c.yaml:16: tenants.t.tenant.pool: pool other serves no model, so every request of this tenant is refused",
    )
