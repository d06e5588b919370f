"""Secrets are read from where the configuration says, and one that is not there is one sentence without it."""

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
