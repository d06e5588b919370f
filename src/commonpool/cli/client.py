"""Calls to the admin API of a running product, with every failure as one sentence."""

import contextlib
import http.client
import os
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from commonpool import __version__
from commonpool.api.wire import errors as wire
from commonpool.cli.exits import CommandError, ExitCode

TIMEOUT_S = 60.0  # a question about a year of usage may take a while; a silent network does not take longer
AWAY = frozenset({http.client.BAD_GATEWAY, http.client.SERVICE_UNAVAILABLE, http.client.GATEWAY_TIMEOUT})
ANSWER_BYTES_MAX = 256 * 1024 * 1024
TOKEN_VARIABLE = "COMMONPOOL_ADMIN_TOKEN"  # noqa: S105 - a name
# PEM files, for a control plane with TLS: whose certificates are trusted (else those the system trusts), and what it is
# shown where it asks its clients for a certificate: that and its key, in one file.
CA_VARIABLE = "COMMONPOOL_CA_FILE"
CERTIFICATE_VARIABLE = "COMMONPOOL_CLIENT_CERT"

T = TypeVar("T")
Query = Mapping[str, str | int | Sequence[str]]


class Client:
    """The admin API at one address. `token` is an admin key, None on the product's own machine.

    `tls` is for an address with https; None trusts what the system trusts.
    """

    def __init__(self, url: str, token: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._url = _split(url)
        self._tls = tls
        self._shown = url
        self._headers = {"accept": "application/json", "user-agent": f"commonpool/{__version__}"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    def get(self, path: str, answer: type[T], query: Query | None = None) -> T:
        """Ask. Raises `CommandError`."""
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        return self._call("GET", target, None, answer)

    def post(self, path: str, body: msgspec.Struct | None, answer: type[T]) -> T:
        """Have something done. Raises `CommandError`."""
        return self._call("POST", path, b"" if body is None else msgspec.json.encode(body), answer)

    def delete(self, path: str, answer: type[T]) -> T:
        """Have something removed. Raises `CommandError`."""
        return self._call("DELETE", path, None, answer)

    @contextlib.contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        """The lines of an answer that goes on, as they come, without their ends. Raises `CommandError`."""
        connection = self._connection()
        try:
            try:
                connection.request("GET", self._url.path.rstrip("/") + path, headers=self._headers | dict(headers))
                response = connection.getresponse()
                if response.status != http.client.OK:
                    content = response.read(ANSWER_BYTES_MAX)
                    raise _refusal(response.status, msgspec.json.decode(content, type=wire.Failure).error)
                yield (line.rstrip(b"\r\n") for line in response)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise CommandError(self._why(error), ExitCode.UNREACHABLE) from None
        finally:
            connection.close()

    def _call(self, method: str, target: str, body: bytes | None, answer: type[T]) -> T:
        status, content = self._exchange(method, target, body)
        try:
            if status < http.client.BAD_REQUEST:
                return msgspec.json.decode(content, type=answer)
            error = msgspec.json.decode(content, type=wire.Failure).error
        except msgspec.MsgspecError:
            if status in AWAY:
                message = f"{self._shown} answers {status}: the control plane, or a proxy before it, is busy; try again"
                raise CommandError(message, ExitCode.UNREACHABLE, passing=True) from None
            raise CommandError(
                f"what answers at {self._shown} ({status}) is not the control plane of commonpool {__version__};"
                " check --control",
                ExitCode.UNREACHABLE,
            ) from None
        if error.code == "path_not_found":  # as only a gateway says it
            raise CommandError(
                f"what answers at {self._shown} is the gateway; give --control the address of the control plane, "
                "which is listen.control",
                ExitCode.UNREACHABLE,
            )
        raise _refusal(status, error)

    def _exchange(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        headers = self._headers | ({"content-type": "application/json"} if body is not None else {})
        connection = self._connection()
        try:
            connection.request(method, self._url.path.rstrip("/") + target, body, headers)
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            raise CommandError(self._why(error), ExitCode.UNREACHABLE) from None
        finally:
            connection.close()
        if len(content) > ANSWER_BYTES_MAX:
            message = f"the answer is longer than {ANSWER_BYTES_MAX} bytes; ask for less"
            raise CommandError(message, ExitCode.PRODUCT_ERROR)
        return response.status, content

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            context = self._tls or ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)

    def _why(self, error: Exception) -> str:
        match error:
            case ConnectionRefusedError():
                return f"nothing listens at {self._shown}; start the product with `commonpool up`, or check --control"
            case socket.gaierror():
                return f"the host {self._url.hostname!r} is not known here; check --control"
            case TimeoutError():
                return f"{self._shown} does not answer within {TIMEOUT_S:.0f} s; check that the product is well"
            case ssl.SSLCertVerificationError():
                why = error.verify_message.rstrip(".")
                return f"the certificate at {self._shown} is not trusted: {why}; {CA_VARIABLE} names whose to trust"
            case ssl.SSLError() | ConnectionError() if self._url.scheme == "https":
                cause = getattr(error, "reason", None) or error
                return (
                    f"there is no TLS with {self._shown}: {cause}; check --control, and that "
                    f"{CERTIFICATE_VARIABLE} names a certificate where one is asked for"
                )
            case _:
                said = " ".join(str(error).split()) or type(error).__name__
                return f"{self._shown} cannot be reached ({said}); check --control"


def segment(name: str, what: str) -> str:
    """A name as one part of a path. Raises `CommandError` where it is empty, since the path would be another one."""
    if not name:
        raise CommandError(f"{what} is empty; name one", ExitCode.USAGE)
    return quote(name, safe="")


def connect(control: str, token_file: Path | None) -> Client:
    """The client that these options mean. Raises `CommandError` where the key, or a file for TLS, cannot be had."""
    tls = _tls(os.environ.get(CA_VARIABLE), os.environ.get(CERTIFICATE_VARIABLE))
    if token_file is None:
        token = _token(os.environ[TOKEN_VARIABLE], TOKEN_VARIABLE) if TOKEN_VARIABLE in os.environ else None
        return Client(control, token, tls)
    try:
        return Client(control, _token(token_file.read_text("utf-8"), str(token_file)), tls)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise CommandError(f"the key in {token_file} cannot be read: {reason}", ExitCode.USAGE) from None


def _tls(ca: str | None, certificate: str | None) -> ssl.SSLContext | None:
    """What these files make of TLS; None where neither is named."""
    if ca is None and certificate is None:
        return None
    variable, file = CA_VARIABLE, ca
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            variable, file = CERTIFICATE_VARIABLE, certificate
            context.load_cert_chain(certificate, password=_no_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise CommandError(f"{variable} is {file}, which cannot be used: {reason}", ExitCode.USAGE) from None
    return context


def _no_password() -> str:
    raise ValueError("its key has a password, and nobody is asked for one")


def _token(text: str, where: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CommandError(f"{where} does not hold one key; it is one word, like cp_…", ExitCode.USAGE)
    return token


def _split(url: str) -> SplitResult:
    try:
        split = urlsplit(url)
        valid = split.scheme in {"http", "https"} and bool(split.hostname) and split.port != 0
    except ValueError:
        valid = False
    if not valid or split.query or split.fragment or split.username is not None:
        message = f"--control {url!r} is not the address of a control plane; write it like http://127.0.0.1:8081"
        raise CommandError(message, ExitCode.USAGE)
    return split


def _refusal(status: int, error: wire.Error) -> CommandError:
    if error.code == "bad_request":
        code = ExitCode.USAGE
    elif status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
        code = ExitCode.NOT_ALLOWED
    elif status == http.client.UNPROCESSABLE_ENTITY:
        code = ExitCode.INVALID_CONFIG
    elif status >= http.client.INTERNAL_SERVER_ERROR:
        code = ExitCode.PRODUCT_ERROR
    else:
        code = ExitCode.FAILED
    said = error.message
    if status == http.client.UNAUTHORIZED:
        said = f"{said}; a command takes it from --token-file or {TOKEN_VARIABLE}"
    passing = status == http.client.SERVICE_UNAVAILABLE
    return CommandError("\n".join(map(str, error.problems)) or said, code, passing=passing)
