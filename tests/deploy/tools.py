"""Prometheus' own programs, as Debian has them."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "deploy" / "prometheus" / "commonpool.rules.yml"


def tool(name: str) -> str:
    """The path of a program; a test that needs it is skipped where it is missing."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; it is in Debian's package prometheus (apt install prometheus)")
    return found


def promtool(*args: str | Path, stdin: bytes | None = None) -> str:
    """What promtool says; AssertionError where it does not agree."""
    command = [tool("promtool"), *map(str, args)]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=180)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said
