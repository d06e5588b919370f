"""No key and no prompt in what the product puts out: all output of a test run is looked through.

- What each test printed and logged, which pytest has whether the test passed or not: the test fails.
- Logs, journals, stores and metrics in the folders of tests, whatever product was started there: the run fails.
- Error answers and metrics, where a client of tests reads them (`none_in`): the test fails.

What is looked for: anything that is a key as issued, its checksum included, so that no test has to say which ones it
made; and MARK, which the prompts of tests hold. A test that is about showing a key has the marker `shows_keys`.
"""

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from commonpool.core.keys import is_key, redact

MARK: Final = "what-the-patient-told-us"
"""In prompts of tests. Whatever is not a prompt's way to its engine and back must not hold it."""

_LOOKED_AT: Final = re.compile(r"\.(log|err|journal)$|^commonpool\.db|^metrics\.txt$|^up\.out$")
_KEY_SHAPED: Final = re.compile(r"cp_[0-9A-Za-z]{10}_[0-9A-Za-z]{28}")


def leaks(text: str) -> Iterator[str]:
    """What is in a text that must not be there, as a report may show it."""
    if MARK in text:
        yield "a prompt"
    for found in _KEY_SHAPED.findall(text):
        if is_key(found):
            yield f"the key {redact(found)}"


def none_in(output: bytes | str, what: str = "an answer") -> None:
    """What a client of tests reads here holds nothing that leaks. AssertionError where it does."""
    found = sorted(set(leaks(output if isinstance(output, str) else output.decode(errors="replace"))))
    assert not found, f"{', '.join(found)} is in {what}"


def in_files(folder: Path) -> list[str]:
    """What leaks in the files that products left in a folder."""
    found = []
    for file in sorted(folder.rglob("*")):
        if _LOOKED_AT.search(file.name) and file.is_file() and not file.is_symlink():
            found += sorted({f"{leak} is in {file}" for leak in leaks(_text(file))})
    return found


def _text(file: Path) -> str:
    try:
        text = file.read_bytes().decode(errors="replace")
    except OSError:  # it is gone, or was made unreadable by its test
        return ""
    if file.name == "up.out":  # the log is in JSON; what is for people shows the first keys, this once
        return "\n".join(line for line in text.splitlines() if line.startswith("{"))
    return text


# -- what tests/conftest.py takes into pytest --------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "shows_keys: this test is about showing keys, and prints some")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """When all of a test's output is there, one whose output leaks fails."""
    report = yield
    if report.when == "teardown" and report.passed and item.get_closest_marker("shows_keys") is None:
        found = {f"{leak} is in its {name}" for name, text in report.sections for leak in leaks(text)}
        if found:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} leaks: {'; '.join(sorted(found))}"
    return report


@pytest.fixture(scope="session", autouse=True)
def _no_leak_in_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """At the end of the run, so that whatever was written late is there."""
    yield
    found = in_files(tmp_path_factory.getbasetemp())
    assert not found, f"products leak: {'; '.join(found)}"
