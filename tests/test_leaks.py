"""The search for leaks finds what it is for: a run in which something leaks fails, and says what and where."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from commonpool.core.keys import key_text
from tests.leaks import MARK, in_files, leaks, none_in

ROOT = Path(__file__).parents[1]
KEY = key_text("0123456789", "s" * 22)

CONFTEST = "from tests.conftest import *\nfrom tests.leaks import _no_leak_in_files\n"
TESTS = f"""
import logging
import sys
from pathlib import Path

import pytest
import structlog

from commonpool.core.keys import key_text
from tests.leaks import none_in

KEY = key_text("0123456789", "s" * 22)


def test_logs_a_key():
    logging.getLogger("x").warning("a caller came with %s", KEY)


def test_logs_a_prompt():
    structlog.get_logger().info("asked", what="{MARK}, she said")


def test_prints_a_key():
    sys.stderr.write(KEY)


@pytest.mark.shows_keys
def test_is_about_showing_a_key():
    print(KEY)


def test_a_clients_error_holds_a_prompt():
    none_in(b'{{"error":{{"message":"not {MARK}"}}}}', "an error")


def test_something_like_a_key_is_none():
    print(KEY[:-1] + "0", "cp_test", "Bearer cp_0123456789_***")


def test_a_product_leaves_a_prompt_in_a_log(tmp_path):
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "m-0.log").write_bytes(b"\\xff got {MARK}")


def test_a_product_leaves_a_key_in_its_store(tmp_path):
    (tmp_path / "commonpool.db").write_text(KEY)
    (tmp_path / "token").write_text(KEY)
"""


@pytest.fixture
def planted() -> Iterator[Path]:
    """A folder that is none of the run's, whose end would find what is planted here."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_a_run_that_leaks_fails_and_says_where(planted: Path) -> None:
    (planted / "conftest.py").write_text(CONFTEST)
    (planted / "test_planted.py").write_text(TESTS)
    options = ["-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(planted)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--basetemp={planted / 'base'}", str(planted)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "CI"},  # where pytest says each twice
        timeout=600,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    said = {line.split("::")[1].split(" leaks: ")[0]: line.split(" leaks: ")[1] for line in lines if " leaks: " in line}
    assert said == {
        "test_logs_a_key": "the key cp_0123456789_*** is in its Captured log call",
        "test_logs_a_prompt": "a prompt is in its Captured stdout call",
        "test_prints_a_key": "the key cp_0123456789_*** is in its Captured stderr call",
    }
    assert "a prompt is in an error" in done.stdout
    (files,) = [line for line in lines if line.startswith("E       AssertionError: products leak: ")]
    assert "a prompt is in " in files
    assert "/engines/m-0.log" in files
    assert "the key cp_0123456789_*** is in " in files
    assert "/commonpool.db" in files
    assert "/token" not in files
    assert "8 passed" not in done.stdout
    assert KEY not in "".join(line for line in lines if "leak" in line)


def test_what_is_found_is_shown_without_its_secret() -> None:
    assert list(leaks(f"x{KEY}y {MARK}")) == ["a prompt", "the key cp_0123456789_***"]
    with pytest.raises(AssertionError, match=r"^the key cp_0123456789_\*\*\* is in metrics"):
        none_in(KEY.encode(), "metrics")
    none_in(b"\xff nothing")


def test_only_what_products_write_is_looked_at(planted: Path) -> None:
    ours = {"engine.log", "job.err", "000001.journal", "commonpool.db-wal", "metrics.txt"}
    for name in ours | {"other.txt", "commonpool.yaml"}:
        (planted / name).write_text(MARK)
    (planted / "up.out").write_text(f"  support  {KEY}\n")  # the first keys, for people
    (planted / "link.log").symlink_to(planted / "other.txt")
    (planted / "gone.log").symlink_to(planted / "nowhere")
    found = {leak.rpartition("/")[2] for leak in in_files(planted)}
    assert found == ours
    (planted / "up.out").write_text(f'{{"event": "came with {KEY}"}}\n')  # its log
    assert {leak.rpartition("/")[2] for leak in in_files(planted)} == ours | {"up.out"}
