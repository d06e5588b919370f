"""Shapes: what is unknown, missing, twice or of the wrong form is told with its line, key and what is allowed."""

# ruff: noqa: E501 - a table of sentences is read by the line

from collections.abc import Callable

import pytest

from commonpool.config import ConfigError, parse
from commonpool.config.problems import PROBLEMS_MAX, Problem

Wrong = Callable[[str], list[str]]
Edit = Callable[..., str]

MODEL_KEYS = (
    "version, pool, gpu, gpu_memory, mig, gpu_models, together, runtime, replicas, replicas_max, residency, idle_after, "
    "start_deadline, fallback, slots, context, kv_tokens, engine"
)
ROOT_KEYS = "listen, state, store, secrets, body_max, timeouts, jobs, outgoing, access, alerts, observe, pools, nodes, models, tiers, prices, costs, retention, groups, tenants and 1 more"
QUOTA_KEYS = (
    "pool, group, guaranteed, borrowable, reserved, lending_limit, headroom, elastic_cap, hard_cap, weight, models, "
    "resources"
)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        # Unknown keys.
        ("gpus: 4", "gpus: 4, rul: elastic", "2: pools.main.rul: is not a known key; did you mean rule? Known here: gpus, rule, isolation, resources"),
        ("pools:", "xyz: 1\npools:", f"1: xyz: is not a known key; known here: {ROOT_KEYS}"),
        (
            "  support:\n",
            "  support:\n    weight: 2\n",
            ("13: tenants.support.weight: is not a known key; did you mean tenant.weight? "
            "Known here: tenant, queue, reclaim, limits, budget, response_cache, apps"),
        ),
        (
            "guaranteed:",
            "garanteed:",
            f"13: tenants.support.tenant.garanteed: is not a known key; did you mean guaranteed? Known here: {QUOTA_KEYS}",
        ),
        (
            "gpus: 4_gpu",
            "gpus: 4_gpu, <<: {rule: elastic}",
            "2: pools.main.<<: merging mappings with << is not supported; write the keys out",
        ),
        # Missing keys.
        ("    slots: 4\n", "", "4: models.small.slots: is missing; write a whole number from 1 to 4096"),
        ("currency: EUR, ", "", "10: prices.currency: is missing; write a currency code of three letters like EUR"),
        (
            "kind: embedded, ",
            "",
            "9: models.small.engine.kind: is missing; write one of embedded, attached",
        ),
        (
            ", file: small.gguf",
            "",
            "9: models.small.engine.file: is missing; write a path or package:NAME/FILE",
        ),
        (
            "    engine: {kind: embedded, file: small.gguf}\n",
            "",
            "4: models.small.engine: is missing; write a mapping with kind: embedded or attached",
        ),
        # Twice.
        ("    gpu: 1_gpu\n", "    gpu: 1_gpu\n    gpu: 2_gpu\n", "7: models.small.gpu: is there twice, first in line 6; remove one"),
        (
            "pools:",
            "pools:\n  main: {gpus: 1}",
            "3: pools.main: is there twice, first in line 2; remove one",
        ),
        # Of the wrong form.
        ("{gpus: 4_gpu}", "4", "2: pools.main: must be a mapping with the keys gpus, rule, isolation, resources, not a single value"),
        ("4_gpu", "[4]", "2: pools.main.gpus: holds a list; write an amount of GPUs like 2_gpu, 0.5 gpu or 500 milli_gpu"),
        ("4_gpu", "{a: 1}", "2: pools.main.gpus: holds a mapping; write an amount of GPUs like 2_gpu, 0.5 gpu or 500 milli_gpu"),
        (
            "4_gpu",
            "",
            ("2: pools.main.gpus: has no value; write an amount of GPUs like 2_gpu, 0.5 gpu or 500 milli_gpu, "
            "or leave the key out"),
        ),
        ("{kind: embedded, file: small.gguf}", "[]", "9: models.small.engine: must be a mapping with the key kind, not a list"),
        ("embedded", "embeded", '9: models.small.engine.kind: "embeded" is not known here; did you mean embedded? Allowed: embedded, attached'),
        ("embedded, file: small.gguf", "attached, urls: http://a", "9: models.small.engine.urls: must be a list, each item a URL like http://10.0.0.5:8000; write it like [first, second]"),
        ("embedded, file: small.gguf", "attached, urls: []", "9: models.small.engine.urls: has 0 items; allowed are 1 to 256"),
        ("embedded, file: small.gguf", "attached, urls: [http://a, http://a/]", '9: models.small.engine.urls.1: "http://a" is in the list twice; remove one'),
        ("guaranteed: 2_gpu", "models: small", "13: tenants.support.tenant.models: must be a list, each item a name; write it like [first, second]"),
        # Of the wrong value.
        ("4_gpu", "4_cpu", '2: pools.main.gpus: "4_cpu" is not an amount of GPUs; write it like 2_gpu, 0.5 gpu or 500 milli_gpu'),
        ("4_gpu", "0", '2: pools.main.gpus: "0" must be more than zero'),
        ("support:", "Support:", "12: tenants.Support: \"Support\" is not a name: 1 to 63 of a to z, 0 to 9, '.', '_' and '-', the first a letter or a digit"),
        ("guaranteed: 2_gpu", "borrowable: on", '13: tenants.support.tenant.borrowable: "on" is neither true nor false; write one of these two'),
        ("context: 2048", "context: 120:00", '8: models.small.context: "120:00" is not a number of tokens; write it like 8192, 8k (8000) or 8Ki (8192)'),
        ("slots: 4", "slots: 0o4", '7: models.small.slots: "0o4" is not a whole number from 1 to 4096'),
        ("2.50", "-1", '10: prices.gpu_hour.main: "-1" is not an amount of money; write it like 2.50; or write a list, each item a mapping with the keys price, from'),
        ("2.50", "1.0000001", '10: prices.gpu_hour.main: "1.0000001" is finer than a millionth, the smallest part of an amount of money; or write a list, each item a mapping with the keys price, from'),
        ("2.50", "[]", "10: prices.gpu_hour.main: has 0 items; allowed are 1 to 256"),
        ("2.50", "", "10: prices.gpu_hour.main: has no value; write an amount of money like 2.50, or a list, each item a mapping with the keys price, from, or leave the key out"),
        ("2.50", "[{price: 1, from: 2026-02-30}]", '10: prices.gpu_hour.main.0.from: "2026-02-30" is not in the calendar; write a date like 2026-11-03'),
        ("EUR,", "EUR, time_zone: Europe/Berln,", '10: prices.time_zone: "Europe/Berln" is not a time zone; did you mean Europe/Berlin?'),
        ("EUR,", "EUR, meters: {reqest: 1},", "10: prices.meters.reqest: is not a known key; did you mean request? Known here: request, million_tokens_in, million_tokens_cached, million_tokens_out, network_gb, cpu_hour, memory_gib_hour, gpu_memory_gib_hour, storage_gib_hour"),
        ("EUR,", "EUR, lending: {main: {hours: {8-25: 50%}}},", '10: prices.lending.main.hours.8-25: "8-25" are not hours of the day; write them like 8-18, or 20-6 past midnight, from 0 to 24'),
        ("tenants:", "costs: [{name: room, month: 4, split: uniform}]\ntenants:", "11: costs.0.layer: is missing; write one of infrastructure, runtime, request, operation"),
        ("tenants:", "retention: 10h\ntenants:", '11: retention: "10h" must be from 1d to 3650d'),
        ("2.50", ".nan", '10: prices.gpu_hour.main: ".nan" is not an amount of money; write it like 2.50; or write a list, each item a mapping with the keys price, from'),
    ],
)  # fmt: skip
def test_one_problem_is_one_line(edit: Edit, wrong: Wrong, old: str, new: str, problem: str) -> None:
    assert wrong(edit(old, new)) == [f"c.yaml:{problem}"]


def test_all_problems_come_at_once_in_the_order_of_the_file(wrong: Wrong, base: str) -> None:
    text = base.replace("4_gpu", "4_cpu").replace("slots: 4", "slots: many").replace("2.50", "dear") + "foo: 1\n"
    assert [line.split(": ")[0] + ": " + line.split(": ")[1] for line in wrong(text)] == [
        "c.yaml:2: pools.main.gpus",
        "c.yaml:7: models.small.slots",
        "c.yaml:10: prices.gpu_hour.main",
        "c.yaml:14: foo",
    ]


def test_a_problem_is_data(edit: Edit) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(edit("2_gpu", "2 gpuz"), "c.yaml")
    assert caught.value.problems == (
        Problem(
            file="c.yaml",
            line=13,
            column=14,
            key="tenants.support.tenant.guaranteed",
            value="2 gpuz",
            sentence='"2 gpuz" is not an amount of GPUs; write it like 2_gpu, 0.5 gpu or 500 milli_gpu',
        ),
    )


def test_a_secret_in_the_wrong_place_is_not_in_the_problem(edit: Edit) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(edit("embedded, file: small.gguf", "attached, urls: [http://u:topsecret@a], credential: topsecret"))
    assert len(caught.value.problems) == 2
    assert "topsecret" not in repr(caught.value.problems)


def test_an_error_in_an_aliased_value_names_the_key_that_uses_it(edit: Edit, wrong: Wrong) -> None:
    text = edit("version: v1\n    gpu: 1_gpu", "version: &v v1\n    gpu: *v")
    assert wrong(text) == [
        'c.yaml:6: models.small.gpu: "v1" is not an amount of GPUs; write it like 2_gpu, 0.5 gpu or 500 milli_gpu'
    ]


def test_keys_that_are_not_names_are_shown_on_one_line(wrong: Wrong, edit: Edit) -> None:
    lines = wrong(edit(end='"a\\nb": 1\n' + "x" * 1000 + ": 1\n"))
    assert len(lines) == 2
    assert lines[0].startswith(r'c.yaml:14: "a\nb": is not a known key')
    assert len(lines[1]) < 400


def test_very_many_problems_are_cut(wrong: Wrong, edit: Edit) -> None:
    assert len(wrong(edit(end="".join(f"k{n}: 1\n" for n in range(10_000))))) == PROBLEMS_MAX


def test_what_is_empty_has_its_defaults(edit: Edit) -> None:
    config = parse(edit("    tenant: {guaranteed: 2_gpu}", "    tenant:\n    apps: {helpdesk: }"))
    assert config.policy.tenants["support"].guaranteed == 0
    assert list(config.apps["support"]) == ["default", "helpdesk"]
