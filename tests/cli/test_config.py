"""Given files, when they are checked, compared and applied, then all that is wrong is said and nothing is half done."""

import json
from pathlib import Path

import msgspec
import pytest

from commonpool.access.callers import by_admin_key
from commonpool.access.permissions import Permission
from commonpool.api.wire.config import Changes
from commonpool.api.wire.status import ModelStatus
from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from tests.access.certificates import Authority
from tests.api.fakes import CONFIG, REPLICA, FakeOperations
from tests.cli.serving import serving

TENANT_FILE = """
tenant:
  guaranteed: 1_gpu
  elastic_cap: 3_gpu
queue:
  max_wait: 60s
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "commonpool.yaml", CONFIG)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_check_says_what_it_comes_to(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(file)]) == ExitCode.OK
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{file} is valid: 2 tenant(s), 1 model(s)"
    assert out[3].split() == ["main", "elastic", "0", "4", "3", "4", "2", "2"]


def test_check_counts_the_nodes_of_a_pool(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    devices = CONFIG.replace('9002"]}', '9002"], devices: [a/0-1, b/0-1]}')
    write(file, devices + "nodes: {a: {gpus: 2}, b: {gpus: 2}}\n")
    assert run(["check", str(file), "--json"]) == ExitCode.OK
    pool = json.loads(capsys.readouterr().out)["pools"][0]
    assert (pool["nodes"], pool["capacity_milli_gpu"]) == (2, 4000)


def test_check_warns_of_a_model_file_that_is_not_there(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = CONFIG.index("engine:")
    engine = CONFIG[start : CONFIG.index("\n", start)]
    write(file, CONFIG.replace(engine, "engine: {kind: embedded, file: nowhere.gguf}"))
    assert run(["check", str(file)]) == ExitCode.OK
    said = capsys.readouterr().out.replace("\n", " ")
    assert "warning: On this machine:" in said
    assert "nowhere.gguf, the file of model echo, does not exist" in said


def test_check_looks_at_policies_that_are_here(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, CONFIG + "access: {policies: own}\n")
    own = file.parent / "own"
    assert run(["check", str(file)]) == ExitCode.OK
    assert f"access.policies: {own} is no folder" in capsys.readouterr().out.replace("\n", " ")
    own.mkdir()
    write(own / "a.cedar", 'permit (principal in Role::"viewer", action == Action::"read_nodes", resource);\n')
    assert run(["check", str(file)]) == ExitCode.OK
    assert "warning" not in capsys.readouterr().out
    write(own / "b.cedar", '// nodes\npermit (principal in Role::"viewr", action == Action::"read_nodes", resource);\n')
    assert run(["check", str(file)]) == ExitCode.INVALID_CONFIG
    assert capsys.readouterr().out.startswith(f"{own}/b.cedar:2: there is no role viewr on the platform; there are ")


def test_policies_are_applied_with_the_rest(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    own = file.parent / "own"
    own.mkdir()
    write(own / "a.cedar", 'permit (principal in Role::"viewer", action == Action::"read_nodes", resource);')
    write(file, CONFIG + f"access: {{policies: {own}}}\n")
    viewer = by_admin_key("k", "viewer")
    with serving(product) as url:
        assert run(["apply", str(file), "--no-wait", "--control", url]) == ExitCode.OK
        assert product.authority().decide(viewer, Permission.READ_NODES).allowed
        assert run(["diff", str(file), "--control", url]) == ExitCode.OK
        capsys.readouterr()
        # a change of the file alone is a change
        write(own / "a.cedar", 'permit (principal in Role::"viewer", action == Action::"read_keys", resource);')
        assert run(["diff", str(file), "--control", url]) == ExitCode.FAILED
        assert "access.policies" in capsys.readouterr().out
        # and one with a mistake changes nothing
        write(own / "b.cedar", "permit (principal, action)")
        assert run(["apply", str(file), "--no-wait", "--control", url]) == ExitCode.INVALID_CONFIG
        assert f"{own}/b.cedar:1: is not a policy" in capsys.readouterr().err
        assert product.authority().decide(viewer, Permission.READ_NODES).allowed
        (own / "b.cedar").unlink()
        assert run(["apply", str(file), "--no-wait", "--control", url]) == ExitCode.OK
        assert not product.authority().decide(viewer, Permission.READ_NODES).allowed
        assert product.authority().decide(viewer, Permission.READ_KEYS).allowed


def test_check_looks_at_certificates_that_are_here(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(file.parent)
    good, old = authority.issue("good"), authority.issue("old", begins_days=-3, ends_days=-1)
    listen = "listen: {gateway_tls: {certificate: %s, key: %s}, control_tls: {certificate: good.pem, key: good.key}}\n"
    write(file, CONFIG + listen % (good.certificate, good.key))
    assert run(["check", str(file)]) == ExitCode.OK
    assert "warning" not in capsys.readouterr().out
    write(file, CONFIG + listen % ("elsewhere.pem", good.key))
    assert run(["check", str(file)]) == ExitCode.OK
    said = capsys.readouterr().out.replace("\n", " ")
    assert "warning: On this machine: listen.gateway_tls.certificate" in said
    for certificate, key, why in (
        (old.certificate, old.key, "gateway_tls.certificate: {} expired on"),
        (good.certificate, old.key, "gateway_tls.key: {1} is not the key of the certificate {0}"),
    ):
        write(file, CONFIG + listen % (certificate, key))
        assert run(["check", str(file)]) == ExitCode.INVALID_CONFIG
        assert why.format(certificate, key) in capsys.readouterr().out


def test_check_warns_of_a_price_that_is_missing_now(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, CONFIG.replace("{main: 2.50}", "{main: [{price: 2.50, from: 2099-12-31}]}"))
    assert run(["check", str(file), "--json"]) == ExitCode.OK
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning.startswith("prices.gpu_hour.main has no price now, its first holds from 2099-12-31 on: ")


def test_check_counts_what_groups_are_guaranteed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grouped = CONFIG.replace("guaranteed: 1_gpu,", "group: science, guaranteed: 1_gpu,")
    write(file, grouped + "groups: {science: {guaranteed: 2_gpu}}\n")
    assert run(["check", str(file), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["pools"][0]["guaranteed_milli_gpu"] == 4000


def test_check_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(file), "--json"]) == ExitCode.OK
    checked = json.loads(capsys.readouterr().out)
    assert checked["ok"] is True
    assert (checked["tenants"], checked["models"]) == (["support", "research"], ["echo"])
    assert checked["pools"][0]["guaranteed_milli_gpu"] == 3000


def test_check_says_every_problem_with_its_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, CONFIG.replace("elastic_cap: 4_gpu", "elastic_cap: 1_gpu").replace("slots", "slot"))
    assert run(["check", str(file)]) == ExitCode.INVALID_CONFIG
    out, err = capsys.readouterr()
    assert len(out.splitlines()) >= 2
    assert all(line.startswith(f"{file}:") for line in out.splitlines())
    assert err == ""
    assert run(["check", str(file), "--json"]) == ExitCode.INVALID_CONFIG
    assert len(json.loads(capsys.readouterr().out)["problems"]) == len(out.splitlines())


def test_check_of_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(tmp_path / "no.yaml")]) == ExitCode.INVALID_CONFIG
    assert "does not exist" in capsys.readouterr().out


def test_check_of_a_tenants_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path / "sales.yaml", TENANT_FILE)
    bad = write(tmp_path / "legal.yaml", TENANT_FILE.replace("60s", "60"))
    assert run(["check", str(good)]) == ExitCode.OK
    assert run(["check", str(bad)]) == ExitCode.INVALID_CONFIG
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{good} is valid: tenant sales"
    assert out[1].startswith(f"{bad}:6: tenants.legal.queue.max_wait:")


def test_diff_is_like_diff(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeOperations()) as url:
        assert run(["diff", str(file), "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "no differences\n"
        write(file, CONFIG.replace("guaranteed: 1_gpu", "guaranteed: 1.5_gpu"))
        assert run(["diff", str(file), "--control", url]) == ExitCode.FAILED
    out = capsys.readouterr().out
    head, _, *rows = (line.split() for line in out.splitlines())
    assert head == ["key", "now", "then", "effect"]
    assert ["tenants.research.tenant.guaranteed", "1", "gpu", "1.5", "gpu", "at", "once"] in rows


def test_apply(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    write(file, CONFIG.replace("guaranteed: 1_gpu", "guaranteed: 1.5_gpu"))
    with serving(product) as url:
        assert run(["apply", str(file), "--control", url]) == ExitCode.OK
        out = capsys.readouterr().out
        assert "tenants.research.tenant.guaranteed" in out
        assert out.endswith("in force as revision 2\n")
        assert run(["apply", str(file), "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "nothing to change\n"
    assert product.applied == [1]


def test_apply_waits_until_replicas_have_settled(file: Path) -> None:
    product = FakeOperations()
    draining = msgspec.structs.replace(REPLICA, state="draining")
    starting = msgspec.structs.replace(REPLICA, id="echo-0.2", state="starting")
    ready = msgspec.structs.replace(REPLICA, id="echo-0.2")
    product.replica_states = [(REPLICA,), (draining, starting), (ready,), (ready,)]
    write(file, CONFIG.replace("slots: 4", "slots: 2"))
    with serving(product) as url:
        assert run(["apply", str(file), "--control", url]) == ExitCode.OK
    assert product.replica_states == [(ready,)]


def test_apply_without_waiting(file: Path) -> None:
    product = FakeOperations()
    product.replica_states = [(msgspec.structs.replace(REPLICA, state="draining"),)]
    write(file, CONFIG.replace("slots: 4", "slots: 2"))
    with serving(product) as url:
        assert run(["apply", "--no-wait", str(file), "--control", url]) == ExitCode.OK


def test_apply_says_what_did_not_come_up(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    product.models_now = (
        ModelStatus("echo", "main", "resident", 1, "minimum", 0, 0, 0, 0, "none", True, "no such file", ""),
        ModelStatus("big", "main", "resident", 1, "minimum", 0, 0, 0, 0, "none", False, "", "It is too large."),
    )
    write(file, CONFIG.replace("slots: 4", "slots: 2"))
    with serving(product) as url:
        assert run(["apply", str(file), "--control", url]) == ExitCode.FAILED
    err = capsys.readouterr().err
    assert "the change is in force, but model echo cannot be started: no such file" in err
    assert "model big finds no place: It is too large." in err


def test_invalid_file_changes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    write(file, CONFIG.replace("4_gpu}", "4_apples}"))
    with serving(product) as url:
        for verb in ("diff", "apply"):
            assert run([verb, str(file), "--control", url]) == ExitCode.INVALID_CONFIG
            out, err = capsys.readouterr()
            assert out == ""
            assert f"{file}:3: pools.main.gpus:" in err
    assert product.applied == []


def test_what_needs_a_restart_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    write(file, CONFIG + "listen: {control: 127.0.0.1:9999}\n")
    with serving(product) as url:
        assert run(["apply", str(file), "--control", url]) == ExitCode.FAILED
    assert "listen.control cannot change while the product runs" in capsys.readouterr().err
    assert product.applied == []


def test_tenants_own_file_replaces_or_adds_that_tenant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    known = write(tmp_path / "research.yaml", TENANT_FILE)
    new = write(tmp_path / "sales.yaml", TENANT_FILE.replace("guaranteed: 1_gpu", "guaranteed: 0.5_gpu"))
    with serving(product) as url:
        assert run(["apply", "--json", str(known), "--control", url]) == ExitCode.OK
        changes = msgspec.json.decode(capsys.readouterr().out, type=Changes)
        assert {change.key.split(".")[1] for change in changes.changes} == {"research"}
        assert run(["apply", str(new), "--control", url]) == ExitCode.OK
    tenants = product.config().policy.tenants
    assert list(tenants) == ["support", "research", "sales"]
    assert (tenants["research"].elastic_cap, tenants["sales"].guaranteed) == (3000, 500)
    assert product.applied == [1, 2]


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
