"""Given a configuration's text, other quotas change those values and nothing else."""

import difflib

import pytest
from tests.api.fakes import CONFIG

from commonpool.config import ConfigError, Sources, parse_sources
from commonpool.config.requota import RequotaError, requota

MAIN = CONFIG.replace("guaranteed: 2_gpu,", "guaranteed: '2_gpu',").replace("tenants:", "# who shares it\ntenants:")
BLOCK = """tenants:
  block:
    tenant:   # a division
      guaranteed: 1_gpu   # half
    apps: {one: {}}
"""


def changed(text: str, **quotas: tuple[int, int]) -> list[str]:
    """The lines that go and come."""
    sources = Sources("c.yaml", {"c.yaml": text})
    after = requota(sources, quotas).files["c.yaml"]
    lines = difflib.unified_diff(text.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[0] in "+-" and line[:3] not in {"+++", "---"}]


def test_only_the_values_change() -> None:
    assert changed(MAIN, support=(1500, 3500), research=(1000, 4000)) == [
        "-    tenant: {guaranteed: '2_gpu', elastic_cap: 4_gpu}",
        "+    tenant: {guaranteed: 1.5_gpu, elastic_cap: 3.5_gpu}",
    ]


def test_a_key_that_is_not_there_is_added_before_the_others() -> None:
    text = CONFIG.partition("tenants:")[0] + BLOCK
    assert changed(text, block=(1000, 2500)) == ["+      elastic_cap: 2.5_gpu"]
    flow = CONFIG.replace("{guaranteed: 1_gpu, elastic_cap: 4_gpu}", "{guaranteed: 1_gpu}")
    assert changed(flow, research=(500, 2500))[1] == "+    tenant: {elastic_cap: 2.5_gpu, guaranteed: 0.5_gpu}"


def test_a_tenants_own_file_is_changed_there() -> None:
    own = "tenant:\n  guaranteed: 1_gpu  # its own\n"
    sources = Sources("c.yaml", {"c.yaml": f"{CONFIG}include: [lab.yaml]\n", "lab.yaml": own})
    after = requota(sources, {"lab": (500, 4000)})
    assert after.files["lab.yaml"] == "tenant:\n  guaranteed: 0.5_gpu  # its own\n"
    assert after.files["c.yaml"] == sources.files["c.yaml"]
    assert parse_sources(after).policy.tenants["lab"].guaranteed == 500


def test_what_cannot_be_edited_in_place_is_said() -> None:
    text = CONFIG.replace("    tenant: {guaranteed: 1_gpu, elastic_cap: 4_gpu}\n", "")
    with pytest.raises(RequotaError, match="does not write the quota of tenant research as a mapping"):
        changed(text, research=(500, 4000))


def test_quotas_that_contradict_the_rest_are_refused() -> None:
    with pytest.raises(ConfigError, match="elastic_cap"):
        changed(CONFIG, research=(3000, 2000))
