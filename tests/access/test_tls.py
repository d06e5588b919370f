"""Certificates from files: what is wrong with them is one sentence, and what changes in them is taken up."""

import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from commonpool.access.tls import Certificate, TlsError, expires, load
from commonpool.config.structs import Tls
from tests.access.certificates import Authority, write_key

KEY = "listen.gateway_tls"
DAY_S = 86_400


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def shown(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[int, str | None]:
    """The serial number and the version of TLS that a client sees, without a socket between the two."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(4):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    certificate = theirs.getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number, theirs.version()


def serial(files: Tls) -> int:
    return x509.load_pem_x509_certificate(files.certificate.read_bytes()).serial_number


def refused(files: Tls, now_s: float | None = None) -> str:
    with pytest.raises(TlsError) as caught:
        load(KEY, files, time.time() if now_s is None else now_s)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith(KEY)
    assert sentence.endswith(".")
    return sentence


def test_a_sound_pair_is_shown_to_clients(authority: Authority) -> None:
    files = authority.issue("server", ends_days=20)
    assert shown(load(KEY, files, time.time()), authority.trusting()) == (serial(files), "TLSv1.3")
    assert 19 * DAY_S < expires(KEY, files, time.time()) - time.time() < 21 * DAY_S


def test_old_versions_and_weak_ciphers_are_not_spoken(authority: Authority) -> None:
    context = load(KEY, authority.issue("server"), time.time())
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert all("AES" in each["name"] or "CHACHA20" in each["name"] for each in context.get_ciphers())
    assert all(each["strength_bits"] >= 128 for each in context.get_ciphers())


def test_files_that_are_not_there_or_hold_something_else(authority: Authority, tmp_path: Path) -> None:
    good, none, text = authority.issue("server"), tmp_path / "none.pem", tmp_path / "text.pem"
    text.write_text("hello")
    assert refused(Tls(none, good.key)) == f"{KEY}.certificate {none} is not there; check the path."
    assert refused(Tls(good.certificate, none)) == f"{KEY}.key {none} is not there; check the path."
    assert "holds no certificate as PEM" in refused(Tls(text, good.key))
    assert "holds no certificate as PEM" in refused(Tls(good.key, good.key))
    assert "holds no private key as PEM" in refused(Tls(good.certificate, text))
    assert "holds no certificate as PEM" in refused(Tls(good.certificate, good.key, text))
    assert "Is a directory" in refused(Tls(tmp_path, good.key))
    with pytest.raises(TlsError) as caught:
        load(KEY, Tls(none, good.key), 0)
    assert caught.value.missing


def test_a_key_that_is_another_ones(authority: Authority) -> None:
    one, other = authority.issue("one"), authority.issue("other")
    said = refused(Tls(one.certificate, other.key))
    assert f"{other.key} is not the key of the certificate {one.certificate}" in said


def test_a_key_with_a_password_asks_nobody(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("server")
    write_key(tmp_path / "locked.key", ec.generate_private_key(ec.SECP256R1()), b"secret")
    assert "is encrypted" in refused(Tls(files.certificate, tmp_path / "locked.key"))


def test_a_certificate_out_of_its_time(authority: Authority) -> None:
    assert "expired on" in refused(authority.issue("old", begins_days=-9, ends_days=-2))
    assert "check this machine's clock" in refused(authority.issue("new", begins_days=2, ends_days=9))
    files = authority.issue("server", ends_days=3)
    load(KEY, files, time.time() + 2 * DAY_S)
    assert "expired on" in refused(files, time.time() + 4 * DAY_S)


def test_new_files_are_for_the_next_handshake(authority: Authority) -> None:
    files = authority.issue("server")
    certificate = Certificate(KEY, files)
    first = serial(files)
    assert shown(certificate.context, authority.trusting())[0] == first
    assert not certificate.refresh()
    authority.issue("server")  # renewed in place
    assert certificate.refresh()
    assert not certificate.refresh()
    assert shown(certificate.context, authority.trusting())[0] == serial(files) != first


def test_what_cannot_be_used_leaves_the_last_one_in_use(authority: Authority) -> None:
    files = authority.issue("server")
    certificate, first = Certificate(KEY, files), serial(files)
    files.certificate.write_text("half of it")
    with pytest.raises(TlsError, match="holds no certificate"):
        certificate.refresh()
    assert not certificate.refresh()  # said once
    assert shown(certificate.context, authority.trusting())[0] == first
    files.key.unlink()
    with pytest.raises(TlsError, match="holds no certificate"):
        certificate.refresh()
    authority.issue("server")
    assert certificate.refresh()
    assert shown(certificate.context, authority.trusting())[0] == serial(files) != first


def test_whose_clients_may_come_can_change(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "another authority")
    server, ours, theirs = authority.issue("server"), authority.issue("a", client=True), other.issue("b", client=True)
    ca = tmp_path / "clients.pem"
    ca.write_bytes(authority.file.read_bytes())
    certificate = Certificate(KEY, Tls(server.certificate, server.key, ca))
    assert shown(certificate.context, authority.trusting(ours))[0] == serial(server)
    for stranger in (None, theirs):
        with pytest.raises(ssl.SSLError):
            shown(certificate.context, authority.trusting(stranger))
    ca.write_bytes(other.file.read_bytes())
    assert certificate.refresh()
    assert shown(certificate.context, authority.trusting(theirs))[0] == serial(server)
    with pytest.raises(ssl.SSLError):
        shown(certificate.context, authority.trusting(ours))
