"""Given an audit log, when it is listed and verified, then it is told who did what, and whether somebody touched it."""

import json

import msgspec
import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.store.audit import AuditEntry
from tests.api.fakes import ADMIN, NOW, FakeOperations
from tests.cli.serving import serving

SINCE = ["--since", "2026-01-01"]


def entry(number: int, **changes: object) -> AuditEntry:
    made = AuditEntry(NOW + number, NOW + number, 1, "key:k1", "grant", "support", "allowed", "POST", "/x", "192.0.2.7")
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    product.now = NOW + 10**9
    product.store.add_audit(
        [
            entry(1),
            entry(2, caller="local", tenant="research", outcome="denied", count=1234),
            entry(3, action="read_status", tenant="", path="/admin\x1b[2J"),
        ]
    )
    return product


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_the_newest_first(capsys: pytest.CaptureFixture[str], product: FakeOperations) -> None:
    with serving(product) as url:
        assert run(["audit", "list", *SINCE, "--control", url]) == ExitCode.OK
        rows = told(capsys)[2:]
        # who looks at the log is in it
        assert "local read_audit – allowed 1 GET /admin/v1/audit 127.0.0.1" in rows[0]
        assert "key:k1 read_status – allowed 1 POST /admin\N{REPLACEMENT CHARACTER}[2J 192.0.2.7" in rows[1]
        assert "local grant research denied 1,234 POST /x 192.0.2.7" in rows[2]
        assert rows[3].startswith("1 2027-01-15 08:00:00Z key:k1 grant support allowed 1")


def test_what_is_asked_for(capsys: pytest.CaptureFixture[str], product: FakeOperations) -> None:
    with serving(product) as url:
        for asked, found in (
            (["--tenant", "support"], [1]),
            (["--tenant", "support", "--tenant", "research"], [2, 1]),
            (["--outcome", "denied"], [2]),
            (["--caller", "key:k1", "--action", "grant"], [1]),
            (["--action", "grant", "--limit", "1"], [2]),
            (["--until", "2026-06-01"], []),
        ):
            assert run(["audit", "list", *SINCE, *asked, "--json", "--control", url]) == ExitCode.OK
            assert [each["number"] for each in json.loads(capsys.readouterr().out)["entries"]] == found
        assert (
            run(["audit", "list", *SINCE, "--tenant", "support", "--action", "revoke_key", "--control", url])
            == ExitCode.OK
        )
        assert told(capsys) == ["no entry of that time is like that"]


def test_more_than_a_page(capsys: pytest.CaptureFixture[str], product: FakeOperations) -> None:
    product.store.add_audit([entry(number, action="release") for number in range(4, 1504)])
    with serving(product) as url:
        arguments = ["audit", "list", *SINCE, "--action", "release", "--json", "--control", url, "--limit"]
        assert run([*arguments, "1200"]) == ExitCode.OK
        page = json.loads(capsys.readouterr().out)
        assert [each["number"] for each in page["entries"]] == list(range(1503, 303, -1))
        assert page["after"] == "304"
        assert run([*arguments, "5000"]) == ExitCode.OK
        assert len(json.loads(capsys.readouterr().out)["entries"]) == 1500


def test_a_log_that_is_whole(capsys: pytest.CaptureFixture[str], product: FakeOperations) -> None:
    kept = str(product.store.audit_head())
    with serving(product) as url:
        assert run(["audit", "verify", "--control", url]) == ExitCode.OK
        whole, head = told(capsys)
        assert whole == "every entry is as it was written"
        assert head == f"head {kept}"
        assert run(["audit", "verify", "--head", kept, "--json", "--control", url]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["faults"] == []
        assert run(["audit", "verify", "--head", "3:zz", "--control", url]) == ExitCode.USAGE
        assert "is not what `commonpool audit verify` printed" in capsys.readouterr().err


def test_a_log_that_somebody_touched(capsys: pytest.CaptureFixture[str], product: FakeOperations) -> None:
    kept = str(product.store.audit_head())
    product.store._audit[1] = msgspec.structs.replace(product.store._audit[1], outcome="allowed")
    product.store._audit.pop()
    with serving(product) as url:
        assert run(["audit", "verify", "--head", kept, "--control", url]) == ExitCode.FAILED
        read = capsys.readouterr()
        assert read.out.splitlines()[:2] == [
            "Entry 2 is not what was written, or not in its place.",
            "The log ends at entry 2, and the head that was kept is entry 3.",
        ]
        assert read.err == (
            "commonpool: the audit log is not as it was written: 2 fault(s), the first at entry 2; somebody changed it"
            " in the store\n"
        )
        assert run(["audit", "verify", "--json", "--control", url]) == ExitCode.FAILED
    assert json.loads(capsys.readouterr().out)["whole"] is False


def test_who_may_not_read_it_is_told_so(
    capsys: pytest.CaptureFixture[str], product: FakeOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    product.callers[ADMIN] = msgspec.structs.replace(product.callers[ADMIN], bindings=())
    monkeypatch.setenv("COMMONPOOL_ADMIN_TOKEN", ADMIN.decode().removeprefix("Bearer "))
    with serving(product) as url:
        assert run(["audit", "list", "--control", url]) == ExitCode.NOT_ALLOWED
    assert capsys.readouterr().err == (
        "commonpool: key:k1 (no role) may not read and verify the audit log; ask a platform-admin for a role that may\n"
    )
