"""What a process of ours confines itself to: asked of a real one, and of what it starts."""

import json
import subprocess
import sys
from typing import Any

SCRIPT = """
import json, os, resource, subprocess, sys
from commonpool.engines import confinement
{what}
def limits():
    return [resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in ("CORE", "NOFILE", "NPROC")]
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps([os.umask(0), limits(), status["NoNewPrivs"].strip()]))
"""


def asked(what: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(what=what)], capture_output=True, check=True, text=True, timeout=180
    )
    found: list[Any] = json.loads(done.stdout)
    return found


def test_it_keeps_to_itself() -> None:
    umask, ((core, core_hard), files, _), new_rights = asked("confinement.keep_to_itself()")
    _, (_, files_before, _), _ = asked("")
    assert (umask, core, core_hard) == (0o077, 0, 0)
    assert files == files_before
    assert new_rights == "0"


def test_it_is_confined_for_good() -> None:
    umask, ((core, core_hard), (files, files_hard), _), new_rights = asked("confinement.confine()")
    assert (umask, core, core_hard, new_rights) == (0o077, 0, 0, "1")
    assert 0 < files == files_hard <= 65_536


def test_so_many_processes() -> None:
    _, (_, _, processes), _ = asked("confinement.confine(processes=7)")
    assert processes == [7, 7]
    _, (_, _, lower), _ = asked("resource.setrlimit(resource.RLIMIT_NPROC, (5, 6)); confinement.confine(processes=7)")
    assert lower == [6, 6]


def test_what_it_starts_is_confined_too() -> None:
    ask = [sys.executable, "-c", "import os, resource; print(os.umask(0), *resource.getrlimit(resource.RLIMIT_CORE))"]
    starts = f"import subprocess; print(subprocess.run({ask!r}, capture_output=True, text=True).stdout)"
    script = f"from commonpool.engines.confinement import confine; confine(); {starts}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True, timeout=180)
    assert done.stdout.split() == ["63", "0", "0"]


def test_what_is_hidden_is_not_dumpable() -> None:
    flag = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    for hidden, dumpable in (("", "1"), ("confinement.hide()", "0")):
        script = f"from commonpool.engines import confinement\n{hidden}\n{flag}"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True, timeout=180)
        assert done.stdout.strip() == dumpable
