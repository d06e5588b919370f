"""TLS of the product's own listeners: certificates from files, and taken anew when the files change.

What is wrong with them is one sentence, the same for `commonpool check`, at the start and while the product runs.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from commonpool.config.structs import Tls

LOOK_S: Final = 5.0  # how often a running product looks whether its files have changed

log = structlog.get_logger()


class TlsError(Exception):
    """A listener cannot be had with these files: which key, which file, and what to do, in one sentence.

    `missing`: a file is not there, which on another machine it may be.
    """

    def __init__(self, sentence: str, *, missing: bool = False) -> None:
        super().__init__(sentence)
        self.missing = missing


class Certificate:
    """What a listener shows its clients, and what it asks of them. `key` is where it stands in the configuration.

    `context` is for the listener: a handshake that begins after `refresh` is with what was read then, and connections
    that are open go on. Raises TlsError. `now` gives seconds since the epoch.
    """

    def __init__(self, key: str, files: Tls, now: Callable[[], float] = time.time) -> None:
        self._key = key
        self._files = files
        self._now = now
        self._seen = _traces(files)
        self._latest = self.context = load(key, files, now())
        self.context.sni_callback = self._answer

    def _answer(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called in each handshake, also of a client that names no host."""
        if self._latest is not self.context:
            connection.context = self._latest

    def refresh(self) -> bool:
        """Take what the files hold now, where they have changed; whether that was done. Blocks.

        What cannot be used raises TlsError, once for each change: what was read before is used on.
        """
        now = _traces(self._files)
        if now == self._seen:
            return False
        self._seen = now
        self._latest = load(self._key, self._files, self._now())
        return True

    async def watch(self) -> None:
        """Refresh again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                if await asyncio.to_thread(self.refresh):
                    log.info("a new certificate is used", listener=self._key)
            except TlsError as error:
                log.warning("a new certificate is not used; the last one is", listener=self._key, reason=str(error))


def load(key: str, files: Tls, now_s: float) -> ssl.SSLContext:
    """The server's side of TLS 1.2 and later with these files. Raises TlsError. Blocks."""
    expires(key, files, now_s)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ValueError) as error:  # what OpenSSL will not have: too weak a key, or files that change just now
        raise TlsError(f"{key}.certificate {files.certificate} cannot be used: {_reason(error)}.") from None
    if files.client_ca is not None:
        at = f"{key}.client_ca"
        _certificates(at, files.client_ca)
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ValueError) as error:
            raise TlsError(f"{at} {files.client_ca} cannot be used: {_reason(error)}.") from None
        context.verify_mode = ssl.CERT_REQUIRED
        # A session that is taken up again would not be asked for its certificate, also when its authority is gone.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def expires(key: str, files: Tls, now_s: float) -> float:
    """When the certificate ends, in seconds since the epoch. Raises TlsError where it, or its key, is of no use now."""
    at, path = f"{key}.certificate", files.certificate
    leaf = _certificates(at, path)[0]
    now = datetime.fromtimestamp(now_s, UTC)
    if now > leaf.not_valid_after_utc:
        raise TlsError(f"{at} {path} expired on {leaf.not_valid_after_utc:%Y-%m-%d}; renew it.")
    if now < leaf.not_valid_before_utc:
        raise TlsError(
            f"{at} {path} is valid from {leaf.not_valid_before_utc:%Y-%m-%dT%H:%MZ} only; check this machine's clock."
        )
    if _private(f"{key}.key", files.key) != _public(leaf):
        raise TlsError(f"{key}.key {files.key} is not the key of the certificate {path}; name the pair.")
    return leaf.not_valid_after_utc.timestamp()


def _certificates(at: str, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(at, path))
    except ValueError:
        raise TlsError(f"{at} {path} holds no certificate as PEM; write it with its chain, its own first.") from None


def _private(at: str, path: Path) -> bytes:
    """The public half of a private key."""
    data = _read(at, path)
    try:
        key = serialization.load_pem_private_key(data, None)
    except TypeError:
        raise TlsError(f"{at} {path} is encrypted; store it without a password, readable by its owner alone.") from None
    except ValueError:
        raise TlsError(f"{at} {path} holds no private key as PEM.") from None
    return key.public_key().public_bytes(_DER, _SPKI)


def _public(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(_DER, _SPKI)


def _read(at: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise TlsError(f"{at} {path} is not there; check the path.", missing=True) from None
    except OSError as error:
        raise TlsError(f"{at} {path} cannot be read: {error.strerror or error}.") from None


def _traces(files: Tls) -> tuple[tuple[int, int, int] | None, ...]:
    """What changes with the files' content, as far as the file system says."""
    return tuple(map(_trace, filter(None, (files.certificate, files.key, files.client_ca))))


def _trace(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - through the links that a mounted secret is made of
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)


_DER: Final = serialization.Encoding.DER
_SPKI: Final = serialization.PublicFormat.SubjectPublicKeyInfo
