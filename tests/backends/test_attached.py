"""Engines by URL: their targets, and the one sentence when an address or a credential cannot be used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commonpool.backends.attached import AttachedBackend
from commonpool.backends.base import BackendError
from commonpool.config.structs import AttachedEngine, Model
from commonpool.core.model import Replica
from commonpool.engines.base import Target
from commonpool.engines.registry import OPENAI, VLLM
from tests.engines.running import run


def model(*urls: str, **engine: Any) -> Model:
    return Model("m", "1", "gpus", 1000, len(urls), 2, 512, 1024, AttachedEngine(urls, **engine))


def targets(served: Model, environment: dict[str, str] | None = None) -> list[Target]:
    """The targets of all its replicas."""
    found: list[Target] = []

    async def main() -> None:
        backend = AttachedBackend(environment or {})
        backend.check(served)
        for index in range(served.replicas):
            handle = await backend.start(served, index, Replica(f"m-{index}.1", "m", 1000, 2, 1024))
            await handle.stop(0)
            found.append(handle.target)
        assert await backend.adopt() == ()  # what others run is attached anew

    run(main)
    return found


def test_each_url_is_a_replica() -> None:
    first, second = targets(model("http://a:8000", "http://[::1]:8001/v1/", adapter="vllm", served_model="org/m"))
    assert first == Target("m-0.1", "a", 8000, VLLM, "org/m")
    assert second == Target("m-1.1", "::1", 8001, VLLM, "org/m")


@pytest.mark.parametrize(
    ("url", "port", "base_path", "tls"),
    [
        ("http://a", 80, "", False),
        ("https://a", 443, "", True),
        ("https://a:8443/v1", 8443, "", True),
        ("http://a/team/llm/v1", 80, "/team/llm", False),
        ("http://a/team/", 80, "/team", False),
    ],
)
def test_urls_with_and_without_a_path(url: str, port: int, base_path: str, tls: bool) -> None:
    (target,) = targets(model(url))
    assert (target.host, target.port, target.base_path, target.adapter) == ("a", port, base_path, OPENAI)
    assert (target.tls is not None) is tls
    assert target.authorization is None


def test_the_credential_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("from-a-file\n")
    (target,) = targets(model("http://a", credential="env:ENGINE_KEY"), {"ENGINE_KEY": "from-the-environment"})
    assert target.authorization == b"Bearer from-the-environment"
    (target,) = targets(model("http://a", credential=f"file:{secret}"))
    assert target.authorization == b"Bearer from-a-file"


def _many_lines(folder: Path) -> str:
    (folder / "key").write_text("one\r\nX-Injected: two")
    return f"file:{folder / 'key'}"


@pytest.mark.parametrize(
    ("credential", "sentence"),
    [
        (lambda _: "env:NONE", r"models\.m\.engine\.credential is env:NONE, and .* NONE is not set; set it"),
        (lambda folder: f"file:{folder / 'none'}", "cannot be read: No such file"),
        (lambda folder: f"file:{folder}", "cannot be read: Is a directory"),
        (lambda _: "env:EMPTY", "not one word of printable ASCII"),
        (_many_lines, "not one word of printable ASCII"),
    ],
    ids=["unset", "no file", "folder", "empty", "two lines"],
)
def test_a_credential_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, credential: Callable[[Path], str], sentence: str
) -> None:
    with pytest.raises(BackendError, match=sentence) as caught:
        AttachedBackend({"EMPTY": " "}).check(model("http://a", credential=credential(tmp_path)))
    assert "Injected" not in str(caught.value)


@pytest.mark.parametrize("url", ["a:8000", "ftp://a", "http://", "http://a:port", "http://a:99999"])
def test_an_address_that_is_none_is_one_sentence(url: str) -> None:
    with pytest.raises(BackendError, match=r"models\.m\.engine\.urls has .*; write it as http://HOST:PORT"):
        AttachedBackend({}).check(model(url))
