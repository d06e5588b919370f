"""The doctor on this machine: it finds what was spoilt, leaves all as it was, and says so with its exit code."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.config import parse
from commonpool.store.keys import mint
from commonpool.store.sqlite import SqliteStore
from tests.access.certificates import Authority
from tests.api.fakes import FakeOperations
from tests.cli.serving import serving

CONFIG = """\
state: state
secrets: {master_key: "file:master"}
pools: {main: {gpus: 4}}
models: {m: {version: 1, gpu: 1, slots: 1, context: 10, engine: {kind: embedded, file: x}}}
prices: {currency: EUR, gpu_hour: {main: 1}}
tenants: {t: {}}
"""
OF_THE_MACHINE = {"clock", "disk_low", "runs_as_root"}  # which may be so wherever the tests run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration whose product has run, with a key that ends."""
    path = tmp_path / "commonpool.yaml"
    path.write_text(CONFIG)
    path.chmod(0o644)
    (tmp_path / "master").write_text("00" * 32)
    (tmp_path / "master").chmod(0o600)
    parse(CONFIG)
    store = SqliteStore(tmp_path / "state")
    store.add_key(mint(tenant="t", app="default", now_ns=1, expires_ns=1 << 62).key)
    store.close()
    return path


def asked(file: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = run(["doctor", str(file), "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def checks(file: Path, capsys: pytest.CaptureFixture[str], *options: str) -> set[str]:
    _, said = asked(file, capsys, *options)
    return {finding["check"] for finding in said["findings"]} - OF_THE_MACHINE


def test_nothing_is_weak_where_nothing_is(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in file.parent.rglob("*") if path.is_file()}
    code, said = asked(file, capsys)
    assert (code, said["running"], said["unseen"]) == (ExitCode.OK, False, [])
    assert {finding["check"] for finding in said["findings"]} <= OF_THE_MACHINE
    after = {path: path.stat().st_mtime_ns for path in file.parent.rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before


def test_what_is_spoilt_is_found(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, master = file.parent / "state", file.parent / "master"
    state.chmod(0o755)
    assert checks(file, capsys) == {"state_open"}
    (state / "commonpool.db").chmod(0o644)
    assert checks(file, capsys) == {"state_open", "store_open"}
    state.chmod(0o700)
    (state / "commonpool.db").chmod(0o600)
    (state / "journal").mkdir(mode=0o700)
    (state / "journal" / "000000000001.journal").touch(0o644)
    assert checks(file, capsys) == {"store_open"}
    (state / "journal" / "000000000001.journal").chmod(0o600)
    master.chmod(0o604)
    assert checks(file, capsys) == {"secret_open"}
    master.unlink()
    assert checks(file, capsys) == {"secret_missing"}
    file.chmod(0o666)
    assert checks(file, capsys) == {"secret_missing", "settings_writable"}


def test_a_serious_one_ends_with_1_and_says_what_to_do(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "state").chmod(0o755)
    assert run(["doctor", str(file)]) == ExitCode.FAILED
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("serious: The state folder ")
    assert lines[1] == f"  Run `chmod 700 {file.parent / 'state'}`."
    assert "the product does not run here" in lines[-1]
    assert lines[-1].startswith("1 serious, ")


def test_keys_and_schema_of_the_store(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = SqliteStore(file.parent / "state")
    new = mint(tenant="t", app="default", now_ns=2, note="made at the first start")
    store.add_key(new.key)
    assert checks(file, capsys) == {"key_without_end", "first_keys"}  # beside the process that has it open
    store.revoke_key(new.key.key_id, 3)
    assert checks(file, capsys) == set()
    store._writer.execute("DELETE FROM schema_version WHERE version > 8")
    store.close()
    assert checks(file, capsys) == {"schema_old"}
    (file.parent / "state" / "commonpool.db").write_bytes(b"nothing of the kind")
    _, said = asked(file, capsys)
    assert "cannot be read" in said["unseen"][0]


def test_a_running_product_is_seen(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (file.parent / "state" / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        _, said = asked(file, capsys)
    assert said["running"] is True
    assert said["unseen"] == []


def test_certificates(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(file.parent)
    files = authority.issue("server", ends_days=90)
    file.write_text(CONFIG + f"listen: {{control_tls: {{certificate: {files.certificate}, key: {files.key}}}}}\n")
    assert checks(file, capsys) == set()
    files.key.chmod(0o644)
    assert checks(file, capsys) == {"secret_open"}
    authority.issue("server", ends_days=3)
    assert checks(file, capsys) == {"certificate_expires"}
    authority.issue("server", begins_days=-3, ends_days=-1)
    assert checks(file, capsys) == {"certificate"}


def test_policies_and_users_of_jobs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = file.parent / "policies"
    policies.mkdir()
    (policies / "own.cedar").touch(0o666)
    (policies / "own.cedar").chmod(0o666)
    file.write_text(CONFIG + "access: {local: false, policies: policies}\njobs: {users: {t: no-such-user}}\n")
    assert checks(file, capsys) == {"settings_writable", "job_users_missing"}


def test_keys_in_postgresql_are_asked_for(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(CONFIG + "store: {url: postgresql://nowhere.invalid/pool}\n")
    _, said = asked(file, capsys, "--control", "http://127.0.0.1:1")
    assert said["unseen"][0].startswith("Keys: they are in PostgreSQL, and the product does not tell them: nothing")
    with serving(FakeOperations()) as url:
        _, said = asked(file, capsys, "--control", url)
    assert said["unseen"] == []


def test_before_the_first_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "commonpool.yaml"
    file.write_text(CONFIG)
    code, said = asked(file, capsys)
    assert code == ExitCode.FAILED  # the master key is not there
    assert said["unseen"] == ["Keys: there is no store yet."]
    file.write_text("pools: {}")
    assert run(["doctor", str(file)]) == ExitCode.INVALID_CONFIG
