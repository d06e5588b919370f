"""Each check of the doctor: what makes it fire, and that it stays silent without that."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from commonpool.cli.checkup import Facts, Finding, judge
from commonpool.cli.checkup.facts import Certificate, Disk, File, Running
from commonpool.config import parse
from commonpool.store.looking import SeenKey

GIB = 1024**3
DAY_S = 86_400
NOW_S = 1_800_000_000
STATE = Path("/var/lib/pool")
BASE = """\
listen: {gateway: 127.0.0.1:8080, control: 127.0.0.1:8081}
state: /var/lib/pool
secrets: {master_key: "file:/etc/pool/master"}
pools: {main: {gpus: 4}}
models: {m: {version: 1, gpu: 1, slots: 1, context: 10, engine: {kind: embedded, file: x}}}
prices: {currency: EUR, gpu_hour: {main: 1}}
tenants: {t: {}}
"""
TLS = "{certificate: /c.pem, key: /c.key}"
ENGINE = "{kind: embedded, file: x}"


def facts(config: str = BASE, **more: Any) -> Facts:
    """A machine where all is well."""
    sound: dict[str, Any] = {
        "state": (File(STATE, 0o700), File(STATE / "commonpool.db", 0o600), File(STATE / "journal", 0o700)),
        "secrets": (File(Path("/etc/pool/master"), 0o600),),
        "settings": (File(Path("/etc/pool/commonpool.yaml"), 0o644),),
        "keys": (SeenKey("k1", "data", "t", NOW_S * 10**9 + 1, "for the helpdesk"),),
        "migrations": 0,
        "running": Running(42, 1000, "0"),
        "disk": Disk(50 * GIB, 100 * GIB),
        "synchronised": True,
    }
    return Facts(parse(config), NOW_S * 10**9, **{**sound, **more})


def edit(old: str, new: str) -> str:
    assert old in BASE
    return BASE.replace(old, new, 1)


def found(*arguments: Any, **more: Any) -> list[tuple[str, bool]]:
    return [(finding.check, finding.serious) for finding in judge(facts(*arguments, **more))]


def test_where_all_is_well_nothing_is_said() -> None:
    assert judge(facts()) == []


def test_where_nothing_was_to_be_seen_nothing_is_said() -> None:
    nothing: dict[str, Any] = dict.fromkeys(("keys", "migrations", "running", "disk", "synchronised"))
    assert judge(facts(**nothing, state=(), secrets=(), settings=())) == []


@pytest.mark.parametrize("listener", ["gateway", "control"])
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.1.2.3", "pool.example"])
def test_a_listener_that_others_reach_has_tls(listener: str, host: str) -> None:
    said = "gateway: 127.0.0.1:8080, control: 127.0.0.1:8081"
    other = said.split(", ")[listener == "gateway"]
    people = "access: {roles: [{role: operator, account: ann}]}\n"
    assert found(edit(said, f"{listener}: '{host}:9', {other}") + people) == [("open_listener", True)]
    assert found(edit(said, f"{listener}: '{host}:9', {other}, {listener}_tls: {TLS}") + people) == []


def test_behind_a_proxy_nobody_is_local() -> None:
    said = "control: 127.0.0.1:8081"
    tls = edit(said, f"{said}, control_tls: {TLS}")
    assert found(tls + "access: {url: 'https://pool.example'}\n") == [("local_behind_proxy", False)]
    assert found(tls + "access: {url: 'https://pool.example', local: false}\n") == []
    assert found(tls + "access: {url: 'https://127.0.0.1:8444'}\n") == []


def test_loopback_needs_none() -> None:
    for host in ("localhost", "127.0.0.9"):
        assert found(edit("gateway: 127.0.0.1", f"gateway: {host}")) == []
    assert found(edit("control: 127.0.0.1:8081", "control: '[::1]:8081'")) == []


def test_a_control_plane_that_others_reach_knows_people() -> None:
    text = edit("control: 127.0.0.1", f"control_tls: {TLS}, control: 0.0.0.0")
    assert found(text) == [("nobody_by_name", False)]
    assert found(text + "access: {roles: [{role: operator, account: ann}]}\n") == []
    oidc = "{issuer: 'https://id.example', client_id: pool}, local: false, url: 'https://pool.example'"
    assert found(text + f"access: {{oidc: {oidc}, roles: [{{role: operator, group: ops}}]}}\n") == []


def test_certificates() -> None:
    soon = NOW_S + 29.5 * DAY_S
    assert found(certificates=(Certificate("listen.gateway_tls", NOW_S + 31 * DAY_S),)) == []
    assert found(certificates=(Certificate("listen.gateway_tls", soon),)) == [("certificate_expires", False)]
    assert "in 29 days" in judge(facts(certificates=(Certificate("k", soon),)))[0].what
    assert found(certificates=(Certificate("listen.gateway_tls", problem="It expired."),)) == [("certificate", True)]


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("urls: ['https://gpu-1:8000'], credential: env:KEY", []),
        ("urls: ['http://127.0.0.1:8000'], credential: env:KEY", []),
        ("urls: ['http://127.0.0.1:8000']", [("engine_without_credential", False)]),
        ("urls: ['https://gpu-1:8000']", [("engine_without_credential", True)]),
        ("urls: ['http://gpu-1:8000'], credential: env:KEY", [("engine_without_tls", False)]),
        ("urls: ['http://gpu-1:8000']", [("engine_without_credential", True), ("engine_without_tls", False)]),
    ],
)
def test_engines_elsewhere(engine: str, expected: list[tuple[str, bool]]) -> None:
    assert found(edit(ENGINE, f"{{kind: attached, {engine}}}")) == expected


@pytest.mark.parametrize(("mode", "fires"), [(0o700, False), (0o500, False), (0o750, True), (0o701, True)])
def test_the_state_folder_is_its_owners(mode: int, fires: bool) -> None:
    assert found(state=(File(STATE, mode),)) == ([("state_open", True)] if fires else [])


def test_what_is_in_it_too() -> None:
    database = File(STATE / "commonpool.db", 0o644)
    assert found(state=(File(STATE, 0o700), database)) == [("store_open", False)]
    assert found(state=(File(STATE, 0o755), database)) == [("state_open", True), ("store_open", True)]
    said = judge(facts(state=(File(STATE, 0o755), database)))[1].what
    assert said == "Others may read or write /var/lib/pool/commonpool.db (mode 0644)."


@pytest.mark.parametrize(("mode", "fires"), [(0o644, False), (0o640, False), (0o664, True), (0o646, True)])
def test_who_may_write_the_configuration(mode: int, fires: bool) -> None:
    assert found(settings=(File(Path("/c.yaml"), mode),)) == ([("settings_writable", True)] if fires else [])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (0o600, []),
        (0o400, []),
        (0o640, [("secret_open", False)]),
        (0o604, [("secret_open", True)]),
        (0o644, [("secret_open", True)]),
    ],
)
def test_who_may_read_a_secret(mode: int, expected: list[tuple[str, bool]]) -> None:
    assert found(secrets=(File(Path("/etc/pool/master"), mode),)) == expected


def test_secrets_are_there() -> None:
    assert found(missing=("secrets.master_key names /k, which is not there",)) == [("secret_missing", True)]
    assert found(edit('secrets: {master_key: "file:/etc/pool/master"}\n', "")) == [("no_master_key", False)]


def test_the_master_key_is_elsewhere_and_there_is_one() -> None:
    assert found(edit("file:/etc/pool/master", "file:/var/lib/pool/keys/master")) == [("master_key_beside", False)]
    assert found(edit("file:/etc/pool/master", "file:/var/lib/pool-keys/master")) == []
    assert found(edit('master"}', 'master", previous_master_key: "env:OLD"}')) == [("old_master_key", False)]


def test_keys_end() -> None:
    forever = SeenKey("k2", "data", "t", None, "")
    assert found(keys=(forever,)) == [("key_without_end", False)]
    assert found(keys=(msgspec.structs.replace(forever, scope="admin"),)) == [("key_without_end", True)]
    assert found(keys=()) == []
    many = [SeenKey(f"k{number}", "data", "t", None, "") for number in range(9)]
    assert "9 data key(s) never expire: k0, k1, k2, k3, k4 and 4 more." in judge(facts(keys=many))[0].what


def test_keys_that_were_printed_at_the_first_start() -> None:
    printed = SeenKey("k2", "data", "t", NOW_S * 10**9 + 1, "made at the first start")
    assert found(keys=(printed,)) == [("first_keys", False)]


def test_jobs_of_tenants() -> None:
    submitters = "jobs: {submitters: tenants%s}\n"
    users = ", users: {t: jobs-t}"
    both = [("jobs_as_product", True), ("local_administrators", True)]
    assert found(BASE + submitters % "") == both
    assert found(BASE + submitters % "" + "access: {local: false}\n") == [("jobs_as_product", True)]
    assert found(BASE + submitters % users + "access: {local: false}\n") == []
    assert found(users=("jobs-t",)) == [("job_users_missing", False)]


def test_the_store_is_of_this_version() -> None:
    assert found(migrations=3) == [("schema_old", False)]


def test_the_process() -> None:
    assert found(running=Running(42, 1000, "unlimited")) == [("core_dumps", False)]
    assert found(running=Running(42, 0, "0")) == [("runs_as_root", False)]
    needed = "access: {local: false}\njobs: {users: {t: jobs-t}}\n"
    assert found(BASE + needed, running=Running(42, 0, "0")) == []


def test_the_clock() -> None:
    assert found(synchronised=False) == [("clock", False)]


@pytest.mark.parametrize(
    ("free", "total", "expected"),
    [
        (10 * GIB, 100 * GIB, []),
        (2 * GIB, 20 * GIB, []),
        (4 * GIB, 100 * GIB, [("disk_low", False)]),
        (GIB - 1, 2 * GIB, [("disk_low", False)]),
        (50 * 1024**2, GIB, [("disk_low", True)]),
    ],
)
def test_the_disk(free: int, total: int, expected: list[tuple[str, bool]]) -> None:
    assert found(disk=Disk(free, total)) == expected


def test_each_finding_is_two_sentences_and_the_serious_ones_come_first() -> None:
    bad = facts(
        edit("gateway: 127.0.0.1", "gateway: 0.0.0.0").replace("control: 127.0.0.1", "control: 0.0.0.0")
        + "jobs: {submitters: tenants}\n",
        state=(File(STATE, 0o777), File(STATE / "commonpool.db", 0o666)),
        secrets=(File(Path("/k"), 0o666),),
        settings=(File(Path("/c.yaml"), 0o666),),
        keys=(SeenKey("k", "admin", "", None, "made at the first start"),),
        migrations=1,
        running=Running(42, 0, "unlimited"),
        disk=Disk(1, GIB),
        synchronised=False,
        users=("jobs-t",),
        missing=("a names /b, which is not there",),
        certificates=(Certificate("listen.gateway_tls", 0.0), Certificate("listen.control_tls", problem="It is bad.")),
    )
    findings = judge(bad)
    assert len(findings) >= 18
    assert findings == sorted(findings, key=lambda finding: not finding.serious)
    for finding in findings:
        assert isinstance(finding, Finding)
        for sentence in (finding.what, finding.do):
            assert sentence.endswith(".")
            assert "\n" not in sentence
