"""Secrets are read from where the configuration says, and one that is not there is one sentence without it."""

import re
from pathlib import Path

import pytest

from commonpool.config.secrets import SecretMissingError, secret


def test_it_comes_from_the_environment_or_a_file_without_the_space_around_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(" from-a-file\n")
    assert secret("k", "env:KEY", {"KEY": "from-the-environment\n"}) == "from-the-environment"
    assert secret("k", f"file:{tmp_path}/key", {}) == "from-a-file"


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("env:NONE", "k is env:NONE, and the environment variable NONE is not set; set it."),
        ("file:none", "k is file:none, and that file cannot be read: No such file or directory."),
        ("file:bytes", "k is file:bytes, and that file cannot be read: it is not text."),
        ("env:EMPTY", "k is env:EMPTY, and what is there is not one word of printable ASCII."),
        ("env:WORDS", "k is env:WORDS, and what is there is not one word of printable ASCII."),
    ],
)
def test_what_is_no_secret_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bytes").write_bytes(b"\xff")
    with pytest.raises(SecretMissingError) as caught:
        secret("k", where, {"EMPTY": " ", "WORDS": "two words"})
    assert str(caught.value) == sentence


def test_a_command_says_it(tmp_path: Path) -> None:
    program = tmp_path / "key service"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$2-$#"\n')
    program.chmod(0o700)
    assert secret("secrets.master_key", f"command:'{program}' 'of it' two", {}) == "two-2"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("/bin/sh -c 'echo hidden; exit 3'", "failed with status 3"),
        ("/bin/nowhere", "cannot be run: No such file or directory"),
        ("/bin/sh -c 'printf \"%s %s\" h i'", "not one word of printable ASCII"),
        ("/bin/true", "not one word of printable ASCII"),
    ],
)
def test_a_command_that_says_nothing_useful_is_one_sentence_without_what_it_said(command: str, sentence: str) -> None:
    with pytest.raises(SecretMissingError, match=re.escape(sentence)) as caught:
        secret("secrets.master_key", f"command:{command}", {})
    assert str(caught.value).startswith(f"secrets.master_key is command:{command}, and ")
    assert "h i" not in str(caught.value).replace(command, "")
