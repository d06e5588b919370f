"""Given a control plane with TLS, then the commands reach it, or one sentence says what their environment lacks."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from commonpool.api.wire import status as wire
from commonpool.cli.client import connect
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.config.structs import Tls
from tests.access.certificates import Authority, write_key
from tests.api.fakes import FakeOperations
from tests.cli.serving import serving

Set = pytest.MonkeyPatch


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def reaches(url: str) -> bool:
    return connect(url, None).get("/healthz", wire.Health).ok


def refused(url: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        reaches(url)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


def one_file(folder: Path, pair: Tls) -> str:
    both = folder / "both.pem"
    both.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    return str(both)


def test_the_authority_that_the_environment_names(authority: Authority, tmp_path: Path, monkeypatch: Set) -> None:
    with serving(FakeOperations(), authority.issue("server")) as url:
        error = refused(url)
        assert error.code == ExitCode.UNREACHABLE
        assert "is not trusted" in str(error)
        assert "COMMONPOOL_CA_FILE" in str(error)
        monkeypatch.setenv("COMMONPOOL_CA_FILE", str(Authority(tmp_path, "another").file))
        assert "is not trusted" in str(refused(url))
        monkeypatch.setenv("COMMONPOOL_CA_FILE", str(authority.file))
        assert reaches(url)
        assert "cannot be reached" in str(refused(url.replace("https", "http")))


def test_a_certificate_of_its_own(authority: Authority, tmp_path: Path, monkeypatch: Set) -> None:
    made = authority.issue("server")
    monkeypatch.setenv("COMMONPOOL_CA_FILE", str(authority.file))
    with serving(FakeOperations(), Tls(made.certificate, made.key, authority.file)) as url:
        error = refused(url)
        assert error.code == ExitCode.UNREACHABLE
        assert "that COMMONPOOL_CLIENT_CERT names a certificate where one is asked for" in str(error)
        monkeypatch.setenv("COMMONPOOL_CLIENT_CERT", one_file(tmp_path, authority.issue("operator", client=True)))
        assert reaches(url)


@pytest.mark.parametrize("variable", ["COMMONPOOL_CA_FILE", "COMMONPOOL_CLIENT_CERT"])
def test_a_file_of_no_use(variable: str, tmp_path: Path, monkeypatch: Set) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "none.pem"))
    error = refused("https://127.0.0.1:1")
    assert error.code == ExitCode.USAGE
    assert f"{variable} is {tmp_path / 'none.pem'}, which cannot be used: No such file" in str(error)
    (tmp_path / "none.pem").write_text("hello")
    assert "cannot be used" in str(refused("https://127.0.0.1:1"))


def test_a_key_with_a_password_asks_nobody(authority: Authority, tmp_path: Path, monkeypatch: Set) -> None:
    made = authority.issue("operator", client=True)
    write_key(made.key, ec.generate_private_key(ec.SECP256R1()), b"secret")
    monkeypatch.setenv("COMMONPOOL_CLIENT_CERT", one_file(tmp_path, made))
    assert "has a password" in str(refused("https://127.0.0.1:1"))
