"""Given records, when waits are asked for, then people and programs read how long requests waited, and in vain."""

import csv
import io
import re

import msgspec
import pytest

from commonpool.api.wire.waits import Promises, WaitTable
from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.cli.waits import share
from commonpool.core.burn import Kept
from commonpool.core.model import NS_PER_S as S
from tests.api.fakes import NOW, FakeOperations
from tests.cli.serving import serving
from tests.store.records import T0, refused, usage_record

EVER = ["--since", "2024-01-01"]


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    times = {"wait_ns": 3 * S, "first_token_ns": 4 * S, "total_ns": 5 * S}
    product.store.add_usage(
        [
            usage_record("r1", tenant="support"),
            usage_record("r2", tenant="support", **times),
            usage_record("r3", tenant="research", tier="=batch"),
            refused("r4", tenant="support", total_ns=0, first_token_ns=0, reason="budget"),
            refused("r5", tenant="support", total_ns=0, first_token_ns=0, reason="promise"),
            usage_record("r6", tenant="support", outcome="cancelled", replica="", first_token_ns=0, wait_ns=S),
            usage_record("r7", tenant="support", **times | {"arrived_ns": NOW - 60 * S}),
        ]
    )
    return product


def rows(out: str) -> list[list[str]]:
    """The cells of a table: what is parted by two spaces or more."""
    return [re.split(r"\s{2,}", line.strip()) for line in out.splitlines() if line.strip()]


def test_a_tenant_that_there_is_not_is_no_row_of_zeros(
    product: FakeOperations, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(product) as url:
        assert run(["waits", *EVER, "--tenant", "nope", "--control", url]) == ExitCode.USAGE
        assert "there is no tenant 'nope', and no request of one is known; there is " in capsys.readouterr().err
        late = ["--since", "2027-01-15T07:59:59Z"]  # since then it had nothing
        assert run(["waits", *late, "--tenant", "support", "--control", url]) == ExitCode.OK


def test_what_is_not_counted_yet_is_said(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    product.wait_books = product.counting(0)
    with serving(product) as url:
        assert run(["waits", *EVER, "--control", url]) == ExitCode.OK
    (said,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("counted until"))
    assert said.endswith(" records are left to count, ask again in a while")


def test_people_read_waits_and_what_was_in_vain(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        assert run(["waits", *EVER, "--until", "2024-01-02", "--control", url]) == ExitCode.OK
    head, _, *body = rows(capsys.readouterr().out)
    assert head[:8] == ["tenant", "tier", "completed", "failed", "cancelled", "abandoned", "refused", "wait p50"]
    research, support, total, *said = body
    assert research[:7] == ["research", "=batch", "1", "0", "0", "0", "0"]
    assert support[:7] == ["support", "interactive", "2", "0", "0", "1", "2"]
    assert support[7:] == ["0.00 s", "3.00 s", "3.00 s", "3.00 s", "66.67 %", "0.00 s", "4.00 s", "66.67 %"]
    assert total[:5] == ["total", "3", "0", "0", "1"]
    assert said == [
        ["ended from 2024-01-01 00:00:00Z until 2024-01-02 00:00:00Z"],
        ["refused: 1 budget, 1 promise"],
        ["1 waited in vain: p50 1.00 s, p99 1.00 s, max 1.00 s"],
    ]


def test_filters_and_period_reach_the_product(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--tenant", "support", "--where", "tier=interactive", "--by", "tier,day", "--until", "2024-01-02"]
    with serving(product) as url:
        assert run(["waits", "--json", *EVER, *options, "--control", url]) == ExitCode.OK
    table = msgspec.json.decode(capsys.readouterr().out, type=WaitTable)
    assert (table.since_ns, table.until_ns) == (T0, T0 + 86_400 * S)
    assert [row.group for row in table.rows] == [("interactive", "2024-01-01")]


def test_programs_read_csv_that_adds_up(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        assert run(["waits", "--csv", "--by", "tier", *EVER, "--control", url]) == ExitCode.OK
        batch, interactive = csv.DictReader(io.StringIO(capsys.readouterr().out))
        assert run(["waits", "--csv", "--by", "", *EVER, "--control", url]) == ExitCode.OK
        (whole,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert batch["tier"] == "'=batch"  # which no spreadsheet takes for a formula
    assert (interactive["refused_budget"], interactive["refused_promise"]) == ("1", "1")
    assert (interactive["wait_count"], interactive["wait_max_ns"]) == ("3", str(3 * S))
    assert batch["unserved_p99_ns"] == ""
    for name in ("completed", "abandoned", "wait_count", "queue_promised", "queue_late", "first_token_late"):
        assert int(whole[name]) == int(batch[name]) + int(interactive[name])


def test_promises_of_now(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        ask = ["waits", "--promises", "--control", url]
        assert run(ask) == ExitCode.OK
        assert capsys.readouterr().out == "promises were not looked at yet: ask again in some seconds\n"
        product.wait_books.look()
        assert run([*ask, "--tenant", "support"]) == ExitCode.OK
        head, _, *body = rows(capsys.readouterr().out)
        assert run([*ask, "--json"]) == ExitCode.OK
        found = msgspec.json.decode(capsys.readouterr().out, type=Promises)
        assert run([*ask, "--csv"]) == ExitCode.OK
        kept = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert head[6:] == ["burn 5m", "burn 30m", "burn 1h", "burn 6h", "burn 3d", "says"]
    assert ["support", "interactive", "queue", "2.00 s", "3.00 s", "3.00 s", *["100.0"] * 5, "page"] in body
    assert {row[0] for row in body} == {"support"}
    assert len(kept) == len(found.promises) > len(body)
    of_queue = next(
        row for row in kept if (row["tenant"], row["tier"], row["promise"]) == ("support", "batch", "queue")
    )
    assert (of_queue["target_ns"], of_queue["p99_ns"], of_queue["burn_5m"]) == (str(120 * S), "", "")


def test_promises_take_no_period(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["waits", "--promises", "--since", "1h"]) == ExitCode.USAGE
    assert "leave --by, --since and --until out" in capsys.readouterr().err


def test_one_format_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["waits", "--csv", "--json"]) == ExitCode.USAGE
    assert "give one of them" in capsys.readouterr().err


def test_what_is_late_is_never_shown_as_nothing() -> None:
    assert [share(Kept(*each)) for each in ((0, 0), (9, 0), (9, 9), (10**6, 1))] == [
        "–",
        "0.00 %",
        "100.00 %",
        "<0.01 %",
    ]
