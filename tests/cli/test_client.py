"""Given a control plane that is away, foreign or unwilling, then each is one sentence and an exit code of its own."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from commonpool.api.wire.errors import Error, Failure
from commonpool.api.wire.status import Health
from commonpool.cli import run
from commonpool.cli.client import Client, connect
from commonpool.cli.exits import CommandError, ExitCode
from tests.api.fakes import ADMIN, CONFIG, FakeOperations, sources
from tests.cli.serving import serving


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that says these bytes, a connection each, whatever it is asked."""

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join(180)


@pytest.mark.parametrize(
    "command", [["trace"], ["explain"], ["job", "show"], ["release", "--undo"], ["grant", "--end"]], ids=" ".join
)
def test_an_empty_name_is_found_first(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "", "--control", "http://127.0.0.1:1"]) == ExitCode.USAGE
    assert capsys.readouterr().err.endswith(" is empty; name one\n")


def ends(*arguments: str) -> ExitCode:
    return ExitCode(run(["status", *arguments]))


def test_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert ends("--control", url) == ExitCode.UNREACHABLE
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"commonpool: nothing listens at {url}; start the product with `commonpool up`, or check --control\n"


def test_unknown_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("--control", "http://nowhere.invalid:8081") == ExitCode.UNREACHABLE
    assert "nowhere.invalid" in capsys.readouterr().err


def test_one_that_is_away_is_not_called_another(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 6\r\n\r\n<html>") as url:
        assert ends("--control", url) == ExitCode.UNREACHABLE
    assert "answers 503: the control plane, or a proxy before it, is busy; try again" in capsys.readouterr().err


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>",
        b"SSH-2.0-something\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ncut",
        b"",
    ],
)
def test_something_else_answers(answer: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(answer) as url:
        assert ends("--control", url) == ExitCode.UNREACHABLE
    err = capsys.readouterr().err
    assert "check --control" in err
    assert len(err.splitlines()) == 1


def test_the_gateway_is_named_as_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    body = msgspec.json.encode(Failure(Error("There is nothing.", "invalid_request_error", "path_not_found")))
    with answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)) as url:
        assert ends("--control", url) == ExitCode.UNREACHABLE
    assert f"what answers at {url} is the gateway; give --control the address of the control" in capsys.readouterr().err


def test_a_command_without_a_key_says_where_to_give_it(capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    product.configure(sources(CONFIG + "access: {local: false}\n"))
    with serving(product) as url:
        assert ends("--control", url) == ExitCode.NOT_ALLOWED
    said = capsys.readouterr().err
    assert "(access.local)" in said
    assert said.endswith("a command takes it from --token-file or COMMONPOOL_ADMIN_TOKEN\n")


def test_redirect_is_not_followed() -> None:
    with answering(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n") as url:
        assert ends("--control", url) == ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8081", "ftp://127.0.0.1", "http://", "http://a:b@127.0.0.1", "http://h:x", "http://h/?q", "http://["],
)
def test_url_that_is_none(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("--control", url) == ExitCode.USAGE
    assert "write it like http://127.0.0.1:8081" in capsys.readouterr().err


def test_key_from_a_file_is_sent(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(ADMIN.decode().removeprefix("Bearer ") + "\n")
    with serving(FakeOperations()) as url:
        assert connect(url, token).get("/healthz", Health).ok
        assert ends("--control", url, "--token-file", str(token)) == ExitCode.OK
        token.write_text("cp_wrong")
        assert ends("--control", url, "--token-file", str(token)) == ExitCode.NOT_ALLOWED


def test_key_from_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COMMONPOOL_ADMIN_TOKEN", "cp_wrong")
    with serving(FakeOperations()) as url:
        monkeypatch.setenv("COMMONPOOL_CONTROL", url)
        assert ends() == ExitCode.NOT_ALLOWED
        assert "cp_wrong" not in capsys.readouterr().err
        monkeypatch.setenv("COMMONPOOL_ADMIN_TOKEN", ADMIN.decode().removeprefix("Bearer "))
        assert ends() == ExitCode.OK


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", "clé".encode(), b"a\x00b"])
def test_key_file_without_a_key(tmp_path: Path, content: bytes) -> None:
    token = tmp_path / "token"
    token.write_bytes(content)
    with pytest.raises(CommandError) as caught:
        connect("http://127.0.0.1:1", token)
    assert caught.value.code == ExitCode.USAGE


def test_key_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        connect("http://127.0.0.1:1", tmp_path / "token")


def test_fault_of_the_product(capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    product.broken = RuntimeError("detail")
    with serving(product) as url:
        assert ends("--control", url) == ExitCode.PRODUCT_ERROR
    assert capsys.readouterr().err == "commonpool: the product failed at this; its log says why\n"


def test_path_of_the_url_is_kept() -> None:
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 29\r\n\r\n{"ok":true,"message":"alive"}\n'
    with answering(answer) as url:
        assert Client(f"{url}/pool/").get("/healthz", Health) == Health(ok=True, message="alive")
