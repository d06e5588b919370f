"""Control groups: made where they can be made, and ended with all that is in them."""

import subprocess
from pathlib import Path

import pytest

from commonpool.backends import cgroup


def proc(folder: Path, cgroups: str, mounts: str) -> Path:
    (folder / "cgroup").write_text(cgroups)
    (folder / "mountinfo").write_text(mounts)
    return folder


def mounted(root: str, at: Path) -> str:
    return f"30 1 0:9 / /proc rw - proc proc rw\n41 31 0:38 {root} {at} rw,relatime - cgroup2 cgroup2 rw\n"


def test_what_is_in_a_group_ends_with_it() -> None:
    group = cgroup.make("commonpool-test")
    if group is None:
        pytest.skip("control groups cannot be made here")
    child = subprocess.Popen(["setsid", "env", "-i", "/bin/sleep", "1000"])
    (group / cgroup.MEMBERS).write_text(str(child.pid))
    assert cgroup.make("commonpool-test") is None
    cgroup.end(group)
    assert child.wait() == -9
    assert not group.exists()
    cgroup.end(group)


def test_what_is_counted_of_a_group(tmp_path: Path) -> None:
    assert cgroup.counted(tmp_path / "gone") is None
    (tmp_path / "cpu.stat").write_text("usage_usec 1500\nuser_usec 1000\n")
    assert cgroup.counted(tmp_path) == cgroup.Counted(1_500_000, None)
    (tmp_path / "memory.stat").write_text("anon 4096\nfile 8192\nshmem 100\n")
    assert cgroup.counted(tmp_path) == cgroup.Counted(1_500_000, 4196)


@pytest.mark.parametrize(
    ("cgroups", "root", "group"),
    [("9:cpu:/\n0::/inner\n", "/", "inner"), ("0::/outer/inner\n", "/outer", "inner"), ("0::/inner\n", "/inner", ".")],
)
def test_the_group_of_a_process_is_found(tmp_path: Path, cgroups: str, root: str, group: str) -> None:
    tree = tmp_path / "tree"
    assert cgroup.own(proc(tmp_path, cgroups, mounted(root, tree))) == tree / group


def test_what_cannot_be_ended_at_once_is_no_group(tmp_path: Path) -> None:
    """A folder without the kernel's files: it is made and removed."""
    (tmp_path / "tree").mkdir()
    assert cgroup.make("mine", proc(tmp_path, "0::/\n", mounted("/", tmp_path / "tree"))) is None
    assert list((tmp_path / "tree").iterdir()) == []


@pytest.mark.parametrize(
    ("cgroups", "kind"), [("0::/\n", "cgroup"), ("1:cpu:/\n", "cgroup2"), ("0::/elsewhere\n", "cgroup2")]
)
def test_where_there_are_none(tmp_path: Path, cgroups: str, kind: str) -> None:
    mounts = f"41 31 0:38 /inner {tmp_path} rw - {kind} {kind} rw\n"
    assert cgroup.make("mine", proc(tmp_path, cgroups, mounts)) is None
    assert cgroup.make("mine", tmp_path / "none") is None
