"""Given a product, when jobs are submitted, looked at and ended from the command line, then people read what is so."""

import json
import os
from pathlib import Path

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.core.model import Cause, Hardware, Outcome, Wait
from commonpool.core.views import LoanView
from commonpool.store.jobs import JobAttempt, JobError, JobState
from tests.api.fakes import NOW, FakeOperations
from tests.cli.serving import serving
from tests.store.records import loan, usage_record

NOWHERE = ["--control", "http://127.0.0.1:1"]
MINE = ["--tenant", "support", "--app", "helpdesk"]
S = 10**9


def test_submit_prints_the_id_and_asks_for_what_was_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = FakeOperations()
    with serving(here) as url:
        asked = [
            "--gpus",
            "2",
            "--gpu-memory",
            "18GiB",
            "--together",
            "island",
            "--gpu-model",
            "H100",
            "--expect",
            "2h",
        ]
        asked += ["--reclaim", "checkpoint", "--env", "A=b=c", "--retries", "3", "--tier", "batch", "--name", "night"]
        assert run(["job", "submit", *MINE, *asked, "--control", url, "--", "train", "--json", "-x"]) == ExitCode.OK
        assert capsys.readouterr().out == "job-0\n"
        slices = ["--mig", "1g.10gb", "--count", "2", "--json", "--control", url]
        assert run(["job", "submit", *MINE, *slices, "--", "t"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["hardware"]["profile"] == "1g.10gb"
    kept = here.store.job("job-0")
    assert kept is not None
    assert kept.job.hardware == Hardware(2000, 18_432, together="island", models=("H100",))
    assert (kept.job.expected_ns, kept.job.reclaim) == (7200 * S, "checkpoint")
    assert (kept.task.command, kept.task.cwd) == (("train", "--json", "-x"), os.path.realpath(tmp_path))
    assert (kept.task.env, kept.task.retries, kept.task.name) == ({"A": "b=c"}, 3, "night")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--gpus", "2"], "COMMAND"),
        (["--", "train"], "with --gpus, --gpu-memory or --mig"),
        (["--gpus", "two", "--", "train"], '"two" is not an amount of GPUs'),
        (["--gpu-memory", "much", "--", "train"], '"much" is not'),
        (["--gpus", "1", "--expect", "2", "--", "train"], '"2" is not a duration'),
        (["--gpus", "1", "--env", "A", "--", "train"], "--env 'A' is not NAME=VALUE"),
        (["--gpus", "1", "--", "train", "\udcff"], "is not UTF-8 text"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert run(["job", "submit", *NOWHERE, *arguments]) == ExitCode.USAGE
    assert says in capsys.readouterr().err


def test_what_the_product_refuses_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    here = FakeOperations()
    here.fake_jobs.refusal = JobError("It asks for 8 GPUs, and pool main has 4; ask for fewer.")
    with serving(here) as url:
        assert run(["job", "submit", *MINE, "--gpus", "8", "--control", url, "--", "train"]) == ExitCode.FAILED
        assert run(["job", "show", "no-job", "--control", url]) == ExitCode.FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"commonpool: {here.fake_jobs.refusal}",
        "commonpool: there is no job 'no-job'; `commonpool job list --all` shows those there are",
    ]


@pytest.fixture
def product(capsys: pytest.CaptureFixture[str]) -> FakeOperations:
    """One with a job that waits, and one that failed."""
    here = FakeOperations()
    with serving(here) as url:
        for name in ("one", "two"):
            asked = ["--gpus", "0.5", "--gpu-memory", "10GiB", "--cwd", "/", "--name", name, "--control", url]
            assert run(["job", "submit", *MINE, *asked, "--", "sh", "run.sh"]) == ExitCode.OK
    capsys.readouterr()
    here.fake_jobs.waiting["job-0"] = (Wait(Cause.DEVICES, "main", 4 * S),)
    here.fake_jobs.change("job-0", queued_ns=NOW - 4 * S)
    attempt = JobAttempt(1, "n0", ("n0/0",), NOW - 60 * S, NOW - 50 * S, 3)
    here.fake_jobs.change(
        "job-1",
        state=JobState.FAILED,
        reason="It broke.",
        attempt=attempt,
        queued_ns=NOW - 61 * S,
        ended_ns=NOW - 50 * S,
    )
    return here


def test_list(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        assert run(["job", "list", "--control", url]) == ExitCode.OK
        _, _, waiting = capsys.readouterr().out.splitlines()
        assert waiting.split()[:7] == ["job-0", "one", "support", "queued", "0.5", "with", "10GiB"]
        assert "waiting for 4 s: " in waiting
        assert run(["job", "list", "--all", "--control", url]) == ExitCode.OK
        failed = capsys.readouterr().out.splitlines()[2].split()
        assert failed == [
            "job-1",
            "two",
            "support",
            "failed",
            "0.5",
            "with",
            "10GiB",
            "1",
            "s",
            "10",
            "s",
            "3",
            "It",
            "broke.",
        ]
        assert run(["job", "list", "--tenant", "support", "--json", "--control", url]) == ExitCode.OK
        assert [job["id"] for job in json.loads(capsys.readouterr().out)["jobs"]] == ["job-0"]
        assert run(["job", "list", "--state", "cancelled", "--pool", "main", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "there are no such jobs\n"
        assert run(["job", "list", "--tenant", "research", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "no job waits or runs; --all shows those that have ended\n"


def test_show(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    product.fake_jobs.lent = [LoanView("research", "support", "job-1", 500, NOW, due=True)]
    product.store.add_usage(
        [usage_record("job-1", endpoint="job", outcome=Outcome.FAILED, status=500, run_ns=10 * S, loans=(loan("b"),))]
    )
    with serving(product) as url:
        assert run(["job", "show", "job-1", "--control", url]) == ExitCode.OK
        said = capsys.readouterr().out.splitlines()
        assert said == [
            "job job-1 (two) of support (app helpdesk, tier batch): failed",
            "  submitted 2027-01-15 08:00:00Z, asks for gpus of pool main: 0.5 with 10GiB",
            "  runs sh run.sh in /",
            "  It broke.",
            "attempt 1, started 2027-01-15 07:59:00Z on n0 (n0/0): ran 10 s, exit 3",
            "borrows 0.5 gpu of research since 2027-01-15 08:00:00Z, due",
            "record of attempt 1: failed with status 500; waited <1 ms; ran 10 s",
            "  on a loan of 0.25 gpu from b for <1 ms, ended: task_done",
        ]
        assert run(["job", "show", "job-0", "--json", "--control", url]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["job"]["waits"][0]["cause"] == "devices"


def test_logs(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    product.fake_jobs.pieces = ["one\n", "two"]
    with serving(product) as url:
        assert run(["job", "logs", "job-0", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "one\ntwo"


def test_following_ends_with_the_job(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    product.fake_jobs.pieces = ["one\n", "two\n", "three\n"]
    product.fake_jobs.ends_after_piece = 2
    with serving(product) as url:
        assert run(["job", "logs", "-f", "job-0", "--control", url]) == ExitCode.OK
    assert capsys.readouterr().out == "one\ntwo\nthree\n"


def test_cancel(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        assert run(["job", "cancel", "job-0", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "job job-0 is cancelled\n"
        assert run(["job", "cancel", "job-0", "--control", url]) == ExitCode.FAILED
        assert "has ended already" in capsys.readouterr().err
