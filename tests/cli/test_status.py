"""Given a product that runs, when its status is asked for, then the table says it, in the width there is."""

import io
import re

import msgspec
import pytest
from rich.console import Console

from commonpool.api.wire import status as wire
from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.cli.status import lines, picture
from commonpool.core.pictures import PoolDevices, ResourceUse, TenantJobs
from commonpool.core.views import Bottleneck
from tests.api.fakes import LOAN, MODEL, NOW, REPLICA, TENANT, FakeOperations
from tests.cli.serving import serving

BORROWER = wire.TenantStatus("research", "main", 1000, 4000, 2500, 0, 1500, 0, 61, 5, 12 * 10**9, 80 * 10**9)


def drawn(status: wire.Status, width: int) -> list[str]:
    out = Console(file=io.StringIO(), width=width)
    out.print(picture(out, status))
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def status(**changes: object) -> wire.Status:
    return msgspec.structs.replace(FakeOperations().status(), **changes)


def test_table_of_tenants() -> None:
    shown = drawn(status(tenants=(TENANT, BORROWER)), 120)
    titles = ["tenant", "guaranteed", "in use", "lent", "borrowed", "waiting", "running", "wait p50", "wait p99"]
    assert re.split(r"\s{2,}", shown[0]) == titles
    assert re.split(r"\s{2,}", shown[2]) == ["support", "2", "0.5", "1.5", "0", "3", "1", "0.42 s", "–"]
    assert re.split(r"\s{2,}", shown[3]) == ["research", "1", "2.5", "0", "1.5", "61", "5", "12.00 s", "80.00 s"]
    assert len({len(line) for line in shown[:2]}) == 1


def test_what_is_due_gets_a_column_only_when_there_is_some() -> None:
    shown = drawn(status(tenants=(msgspec.structs.replace(TENANT, due_milli_gpu=500),)), 120)
    assert "due" in shown[0].split()
    assert shown[2].split()[:5] == ["support", "2", "0.5", "1.5", "0.5"]


def test_narrow_terminal_gets_blocks_with_every_value() -> None:
    shown = drawn(status(tenants=(TENANT, BORROWER)), 40)
    assert max(map(len, shown)) <= 40
    pairs = [line.split(maxsplit=1) for line in shown if line]
    assert ["tenant", "support"] in pairs
    assert ["guaranteed", "2"] in pairs
    assert not any("…" in line for line in shown)


def test_it_is_said_of_which_time_the_waits_are() -> None:
    assert not any(line.startswith("waits: ") for line in lines(status()))
    (said,) = (line for line in lines(status(waits_since_ns=NOW - 600 * 10**9)) if line.startswith("waits: "))
    assert said == "waits: of what ended in the last 10 m; `commonpool waits` has those of any period"


def test_lines_below() -> None:
    starting = msgspec.structs.replace(REPLICA, id="echo-1.2", state="starting")
    due = msgspec.structs.replace(LOAN, lender="", requests=1, jobs=1, due=True)
    scaled = wire.PoolStatus("old", "elastic", 1000, 0, 0, scaled=True)
    said = lines(
        status(
            pools=(*status().pools, scaled),
            tenants=(TENANT, msgspec.structs.replace(BORROWER, granted_until_ns=NOW + 60 * 10**9)),
            replicas=(REPLICA, starting),
            loans=(LOAN, due),
            warnings=("the disk is full",),
        )
    )
    assert said == [
        "pool main (elastic): 4 gpu, 2 used, 1 unowned",
        "pool old (elastic): 1 gpu, 0 used, 0 unowned, guarantees exceed the capacity and are scaled",
        "tenant research is granted 4 gpu until 2027-01-15 08:01:00Z",
        "replicas: 1 of 2 ready, 1 starting",
        "support lends research 1.5 gpu for 6 requests, since 12 s",
        "the unowned part lends research 1.5 gpu for 1 request and 1 job, since 12 s, due",
        "warning: the disk is full",
    ]


def test_a_budget_has_a_line() -> None:
    budget = wire.BudgetStatus(5_000_000_000, 41_209_999, 0, soft=False, until_ns=NOW, currency="EUR")
    holds = msgspec.structs.replace(budget, held_micro=3_100_000)
    small = wire.BudgetStatus(2_000, 150, 37, soft=False, until_ns=NOW, currency="EUR")
    tenants = (
        msgspec.structs.replace(TENANT, budget=budget),
        msgspec.structs.replace(BORROWER, budget=holds),
        msgspec.structs.replace(BORROWER, name="trial", budget=small),
    )
    assert [line for line in lines(status(tenants=tenants)) if "spent" in line] == [
        "tenant support: 41.20 of 5000.00 EUR spent this month",
        "tenant research: 41.20 of 5000.00 EUR spent this month, 3.10 held for what is open",
        "tenant trial: 0.00015 of 0.002 EUR spent this month, 0.000037 held for what is open",
    ]


def model(**changes: object) -> wire.ModelStatus:
    changed: wire.ModelStatus = msgspec.structs.replace(MODEL, **{"name": "m", "wanted": 2, "ready": 2, **changes})
    return changed


def of_models(*models: wire.ModelStatus) -> list[str]:
    return [line for line in lines(status(models=models)) if line.startswith("model ")]


def test_a_model_of_which_nothing_is_to_be_said_has_no_line() -> None:
    assert of_models(model(), model(wanted=3, starting=1)) == []


def test_a_model_says_what_it_is_short_of() -> None:
    assert of_models(model(wanted=3, why="first_token", waiting=1200, bottleneck="kv_memory")) == [
        "model m: 2 of 3 replicas (first token)",
        "model m: 1,200 request(s) wait for KV memory of its replicas (bottleneck: kv memory)",
    ]
    for bottleneck in Bottleneck:
        assert len(of_models(model(waiting=1, bottleneck=bottleneck.value))) == 1


def test_a_model_says_what_is_wrong_with_it() -> None:
    assert of_models(
        model(error="No such file."),
        model(name="n", broken=True, error="No such file."),
        model(name="o", unplaced="No node can take it."),
    ) == [
        "model m lost a replica: No such file.",
        "model n cannot be started: No such file.",
        "model o finds no place for another replica: No node can take it.",
    ]


def test_free_devices_are_told_where_the_nodes_are_known() -> None:
    known = PoolDevices("main", True, 4000, 1250, 250)
    assert lines(status(devices=(known,)))[0] == "pool main (elastic): 4 gpu, 2 used, 1 unowned, 1.25 free on its nodes"
    counted = msgspec.structs.replace(known, known=False)
    assert lines(status(devices=(counted,)))[0] == "pool main (elastic): 4 gpu, 2 used, 1 unowned"


def test_jobs_and_other_resources() -> None:
    uses = (
        ResourceUse("main", "cpu_milli", "", 32_000, 12_000, 64_000),
        ResourceUse("main", "gpu_memory_mib", "support", 81920, 20480, 163840),
    )
    said = lines(status(jobs=(TenantJobs("support", 2, 1500),), resources=uses))
    assert said[2:5] == [
        "tenant support: 2 job(s) wait, 1.5 gpu held by jobs",
        "pool main: 12 cores CPU used of 64 cores, 32 cores guaranteed",
        "tenant support: 20GiB GPU memory used of 160GiB, 80GiB guaranteed",
    ]


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeOperations()) as url:
        assert run(["status", "--control", url]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out.startswith("tenant ")
    assert err == ""


def test_json_is_what_the_api_says(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeOperations()) as url:
        assert run(["status", "--json", "--control", url]) == ExitCode.OK
    status = msgspec.json.decode(capsys.readouterr().out, type=wire.Status)
    assert (status.now_ns, status.tenants) == (NOW, (TENANT,))


def test_terminal_is_not_commanded_by_what_is_shown() -> None:
    shown = drawn(status(warnings=("\x1b[2Jcleared",)), 120)
    assert "warning: \N{REPLACEMENT CHARACTER}[2Jcleared" in shown
