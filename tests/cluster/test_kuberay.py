"""The example for Kubernetes says what the product understands."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from commonpool.cli import run
from commonpool.config import parse

FILE = Path(__file__).parents[2] / "deploy" / "kuberay" / "commonpool.yaml"


@pytest.fixture
def kinds() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(FILE.read_text())}


def test_its_configuration_is_valid(kinds: dict[str, Any]) -> None:
    config = parse(kinds["ConfigMap"]["data"]["commonpool.yaml"], "/etc/commonpool/commonpool.yaml")
    group = kinds["RayJob"]["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    gpus = group["maxReplicas"] * int(group["rayStartParams"]["num-gpus"])
    assert config.policy.pools["main"].milli_gpu == 1000 * gpus
    assert str(config.state) == "/var/lib/commonpool"


def test_its_command_is_one(kinds: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    program, *args = shlex.split(kinds["RayJob"]["spec"]["entrypoint"])
    assert program == "commonpool"
    run([*args, "--help"])
    assert "--backend" in capsys.readouterr().out
    assert args == ["up", "/etc/commonpool/commonpool.yaml", "--backend", "ray", "--address", "auto"]


def test_every_node_is_of_a_pool_and_behind_the_service(kinds: dict[str, Any]) -> None:
    spec = kinds["RayJob"]["spec"]["rayClusterSpec"]
    selector = kinds["Service"]["spec"]["selector"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert group["rayStartParams"]["labels"] == "commonpool-pool=main"
        assert group["template"]["metadata"]["labels"] == selector
        (container,) = group["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["gateway"] == kinds["Service"]["spec"]["ports"][0]["targetPort"]
