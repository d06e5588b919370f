"""Given a product, when it is watched in a terminal, then a frame fits it, and says what there is."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from commonpool.api.wire import decisions as decisions_wire
from commonpool.api.wire.status import TenantStatus
from commonpool.cli import run
from commonpool.cli.following import Event, Seen, events
from commonpool.cli.screen import SORTS, View, frame
from commonpool.observe.decisions import Decision
from tests.api.fakes import MODEL, NOW, TENANT, FakeOperations
from tests.cli.serving import serving
from tests.cli.terminal import COLUMNS, ROWS, Terminal

SAID = "research borrows 1.5 gpu of support's guarantee, which lies idle"


def tenant(name: str, p99_s: int, **more: int) -> TenantStatus:
    changed: TenantStatus = msgspec.structs.replace(TENANT, name=name, wait_ns_p99=p99_s * 10**9, **more)
    return changed


def decision(said: str = SAID) -> decisions_wire.Decision:
    return decisions_wire.Decision(
        "run.1", NOW, "loan", ("support", "research"), "", "main", "research", said, 1500, ""
    )


def drawn(view: View, width: int = COLUMNS, height: int | None = ROWS) -> list[str]:
    out = Console(file=io.StringIO(), width=width, height=height or 100, highlight=False)
    out.print(frame(out, view, height))
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def seen(tenants: int = 2, decisions: int = 1, models: int = 1, **more: object) -> Seen:
    status = msgspec.structs.replace(
        FakeOperations().status(),
        tenants=tuple(tenant(f"tenant-{n:03d}", n) for n in range(tenants)),
        models=tuple(msgspec.structs.replace(MODEL, name=f"model-{n}") for n in range(models)),
        **more,
    )
    return Seen(status, tuple(decision() for _ in range(decisions)))


def test_the_longest_waits_come_first() -> None:
    lines = drawn(View(seen(3)))
    at = next(number for number, line in enumerate(lines) if line.startswith("tenant "))
    assert " ".join(lines[at].split()) == "tenant guaranteed used lent borrowed queue runs wait p50 p99"
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["tenant-002", "tenant-001", "tenant-000"]
    assert lines[at + 1].split()[1:] == ["2", "0.5", "1.5", "0", "3", "1", "0.42", "s", "2.00", "s"]


def test_it_is_sorted_by_what_is_asked_for() -> None:
    status = msgspec.structs.replace(
        seen().status, tenants=(tenant("a", 9), tenant("b", 1, waiting=50), tenant("c", 1, borrowed_milli_gpu=500))
    )
    for sort, first in zip(SORTS, "abaca", strict=True):
        lines = drawn(View(Seen(status, ()), sort))
        at = next(number for number, line in enumerate(lines) if line.startswith("tenant "))
        assert (sort.name, lines[at + 1].split()[0]) == (sort.name, first)


@pytest.mark.parametrize(("tenants", "models"), [(1, 1), (5, 3), (200, 1), (200, 40), (0, 0)])
def test_it_fits_and_leaves_room_for_decisions(tenants: int, models: int) -> None:
    lines = drawn(View(seen(tenants, 50, models)))
    assert len(lines) <= ROWS
    assert max(map(len, lines)) <= COLUMNS
    assert sum(SAID[:40] in line for line in lines) >= 2
    assert lines[-1] == "q quits  s sorts  p pauses"
    if tenants == 200:
        assert any(line.startswith("tenant (") and "of 200)" in line for line in lines)


def test_what_is_wrong_is_said_in_the_second_line() -> None:
    lost = msgspec.structs.replace(seen(), trouble="nothing listens at http://127.0.0.1:8081")
    assert drawn(View(lost))[1].startswith("tries again: nothing listens at")
    assert drawn(View(seen(warnings=("the disk is full",))))[1] == "warning: the disk is full"
    assert "PAUSED" in drawn(View(seen(), paused=True), width=200)[0]


def test_a_stream_is_read_as_events() -> None:
    lines = [b"retry: 2000", b": open", b"", b"id: run.1", b"event: decision", b'data: {"a":1}', b"", b": alive", b""]
    lines += [b"event: changed", b"data: {}", b""]
    assert list(events(iter(lines))) == [Event("decision", b'{"a":1}', "run.1"), Event("changed", b"{}", "run.1")]


def test_a_pipe_gets_one_frame(capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    product.models_now = (MODEL,)
    product.fake_feed.decisions.add(Decision(NOW, "loan", SAID, ("support", "research")))
    with serving(product) as url:
        assert run(["top", "--control", url]) == 0
        said = capsys.readouterr().out
        assert run(["top", "--control", url, "--json"]) == 0
        shown = msgspec.json.decode(capsys.readouterr().out)
    assert "\x1b" not in said
    assert "support" in said
    assert SAID in said
    assert shown["decisions"][0]["explanation"] == SAID


def test_in_a_terminal_it_is_live_and_obeys_its_keys(tmp_path: Path) -> None:
    product = FakeOperations()
    with serving(product) as url:
        terminal = Terminal("top", "--control", url, folder=tmp_path)
        terminal.shows("by p99 wait", "support", "decisions", "none yet")
        terminal.press("s")
        terminal.shows("by queue")
        terminal.press("p")
        terminal.shows("PAUSED")
        terminal.press("p")
        product.fake_feed.decisions.add(Decision(NOW, "loan", SAID, ("support", "research")))
        terminal.shows("research borrows 1.5 gpu")
        terminal.press("q")
        assert terminal.ends() == 0
        terminal.close()
    assert "\x1b[?1049h" in terminal.raw, "it has a screen of its own"
    assert terminal.raw.rindex("\x1b[?1049l") > terminal.raw.rindex("\x1b[?1049h"), "and gives the old one back"
