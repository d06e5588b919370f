"""What processes take is added up from look to look, by the kernel's files."""

import os
import resource
from pathlib import Path

from commonpool.backends.measure import Measure, Taken

S = 1_000_000_000
MIB = 1024 * 1024
TICK_NS = S // os.sysconf("SC_CLK_TCK")
PAGES_A_MIB = MIB // os.sysconf("SC_PAGE_SIZE")


class Clock:
    def __init__(self) -> None:
        self.now = 5 * S

    def __call__(self) -> int:
        return self.now


def process(proc: Path, pid: int, *children: int, ticks: int = 0, mib: int = 0, name: str = "job") -> None:
    """A process as /proc shows it: its ticks are half its own, half those of children that it waited for."""
    thread = proc / str(pid) / "task" / str(pid)
    thread.mkdir(parents=True, exist_ok=True)
    (thread / "children").write_text(" ".join(map(str, children)))
    half = ticks // 2
    fields = ["S", "1", *["0"] * 9, str(half), "0", "0", str(ticks - half), *["0"] * 6, str(mib * PAGES_A_MIB), "0"]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


def of_tests_before() -> int:
    """CPU time of the children that this process has had."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((ended.ru_utime + ended.ru_stime) * 1_000_000) * 1000


def test_memory_is_what_it_was_at_the_last_look(tmp_path: Path) -> None:
    clock = Clock()
    measure = Measure(None, clock, tmp_path)
    process(tmp_path, os.getpid(), 11)
    process(tmp_path, 11, mib=100)
    measure.look()
    assert measure.taken.memory_mib_s == 0
    clock.now += 2 * S
    process(tmp_path, 11, mib=300)
    measure.look()
    assert measure.taken.memory_mib_s == 200
    clock.now += S // 2
    measure.look()
    assert measure.taken.memory_mib_s == 350


def test_all_below_it_counts_whatever_it_is_called(tmp_path: Path) -> None:
    clock = Clock()
    measure = Measure(None, clock, tmp_path)
    process(tmp_path, os.getpid(), 11, 12)
    process(tmp_path, 11, 13, ticks=10, mib=1, name="a) S 1 (b c")
    process(tmp_path, 12, 14, ticks=20, mib=2)
    process(tmp_path, 13, ticks=30, mib=4)  # 14 has just ended
    measure.look()
    clock.now += S
    measure.look()
    assert measure.taken == Taken(of_tests_before() + 60 * TICK_NS, 7)


def test_cpu_time_of_what_has_gone_stays(tmp_path: Path) -> None:
    measure = Measure(None, Clock(), tmp_path)
    process(tmp_path, os.getpid(), 11)
    process(tmp_path, 11, ticks=10)
    measure.look()
    process(tmp_path, os.getpid())
    measure.look()
    assert measure.taken.cpu_ns == of_tests_before() + 10 * TICK_NS


def test_the_kernel_counts_for_a_group(tmp_path: Path) -> None:
    clock = Clock()
    group = tmp_path / "group"
    group.mkdir()
    much = of_tests_before() // 1000 + 7_000_000
    (group / "cpu.stat").write_text(f"usage_usec {much}\nuser_usec 1\n")
    (group / "memory.stat").write_text(f"anon {64 * MIB}\nfile {900 * MIB}\nshmem {32 * MIB}\n")
    measure = Measure(group, clock, tmp_path)
    process(tmp_path, os.getpid(), 11)
    process(tmp_path, 11, mib=500)
    measure.look()
    clock.now += S
    measure.look()
    assert measure.taken == Taken(much * 1000, 96)


def test_a_group_whose_memory_is_not_counted(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "cpu.stat").write_text("usage_usec 0\n")
    measure = Measure(tmp_path, clock, tmp_path)
    process(tmp_path, os.getpid(), 11)
    process(tmp_path, 11, mib=500)
    measure.look()
    clock.now += S
    measure.look()
    assert measure.taken.memory_mib_s == 500
