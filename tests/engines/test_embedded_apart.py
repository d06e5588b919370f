"""The embedded engine and its key: only its parent has the one, and the other sees nothing of its parent."""

import os
from pathlib import Path

import msgspec
import pytest

from commonpool.backends import probe
from commonpool.engines.embedded import Spec
from tests.engines.running import TIMEOUT_NS, engine, model, run

SECRET = "a-secret-of-the-parent"


def said(pid: int, what: str) -> bytes:
    return Path(f"/proc/{pid}/{what}").read_bytes()


def test_the_key_is_nowhere_to_be_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with engine(tmp_path, model(slots=1, context_tokens=512)) as handle:
            assert handle.pid is not None
            assert handle.target.authorization is not None
            key = handle.target.authorization.removeprefix(b"Bearer ")
            assert len(key) >= 32
            for what in ("cmdline", "environ", "comm", "status", "maps"):
                assert key not in said(handle.pid, what), what
            assert key not in _all_files(tmp_path)
            assert key.decode() not in repr(handle.target) + repr(handle) + handle.target.url
            # What it does with a wrong one is an answer without the right one.
            wrong = msgspec.structs.replace(handle.target, authorization=b"Bearer guess")
            for path in ("/v1/chat/completions", "/props", "/slots", "/metrics", "/health", "/v1/models"):
                answer = await probe.ask(wrong, "GET", path, b"", TIMEOUT_NS)
                assert key not in answer.body
            for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/slots/0?action=erase"):
                answer = await probe.ask(wrong, "POST", path, b"{}", TIMEOUT_NS)
                assert answer.status == 401, path

    run(main)


def test_the_spec_does_not_show_it() -> None:
    assert "hush" not in repr(Spec("m.gguf", "m", 1, 512, 1, "hush"))


def test_it_listens_on_loopback_and_is_confined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMONPOOL_ADMIN_TOKEN", SECRET)
    monkeypatch.setenv("MY_DATABASE", SECRET)
    open_file = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(open_file, True)

    async def main() -> None:
        async with engine(tmp_path, model(slots=1, context_tokens=512)) as handle:
            pid = handle.pid
            assert pid is not None
            assert handle.target.host == "127.0.0.1"
            assert _listening(pid) == {("0100007F", f"{handle.target.port:04X}")}
            assert SECRET.encode() not in said(pid, "environ")
            status = dict(line.split(b":", 1) for line in said(pid, "status").splitlines())
            assert (status[b"Umask"].strip(), status[b"NoNewPrivs"].strip()) == (b"0077", b"1")
            limits = said(pid, "limits").decode()
            assert "Max core file size        0                    0 " in limits
            assert str(tmp_path) not in _open(pid)

    try:
        run(main)
    finally:
        os.close(open_file)


def _all_files(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def _open(pid: int) -> set[str]:
    """What its descriptors are."""
    return {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}


def _listening(pid: int) -> set[tuple[str, str]]:
    """Addresses and ports (hexadecimal) that a process listens on."""
    inodes = _open(pid)
    rows = [
        line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{file}").read_text().splitlines()
    ]
    listening = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    return {(address, port) for row in listening for address, port in [row[1].split(":")]}
