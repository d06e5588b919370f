"""A small OpenID Connect issuer over real HTTP, whose people agree at once, and that can be told to lie."""

import base64
import hmac
import json
import secrets
import sys
import threading
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, Key

Json = dict[str, Any]

NOW_S = 1_800_000_000
CLIENT, SECRET = "commonpool", "s3cret+with/signs="
PERSON = {"sub": "7", "email": "Ann@House.example", "email_verified": True, "groups": ["/gpu/operators", "/house"]}


class TestIssuer:
    """Listens on loopback. What it says and signs can be changed while it runs.

    `person` are the claims of whoever logs in; `twist` may change the claims and the header of a token before it is
    signed; `discovery` is put over what it says of itself. `asked` counts the calls of each path.
    """

    __test__ = False

    def __init__(self, now_s: Callable[[], float] = lambda: NOW_S) -> None:
        self.now_s = now_s
        self.person: Json = dict(PERSON)
        self.twist: Callable[[Json, Json], None] = lambda _, __: None
        self.sign: Callable[[Json, Json], str] = self._signed
        self.discovery: Json = {}
        self.keys: list[Key] = [_key("one")]
        self.published: list[Json] | None = None
        self.asked: Counter[str] = Counter()
        self.codes: dict[str, Json] = {}
        self.used: list[str] = []  # codes that it gave
        self.forgets_codes = True
        self.refuses = ""  # the error with which it sends people back
        self.answers: dict[str, tuple[int, Json, bytes]] = {}  # a path's whole answer: status, headers, body
        self.stalls: threading.Event | None = None  # it answers nothing until this is set
        self._listen(0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def rotate(self, kid: str, *, keep: bool = True) -> None:
        """Sign with another key from now on; with `keep` the ones before are published still."""
        self.keys = [_key(kid), *(self.keys if keep else [])]

    def token(self, **claims: Any) -> str:
        """A bearer token for a machine, as an issuer gives it for client credentials."""
        now = int(self.now_s())
        said = {"iss": self.url, "aud": "pool-api", "sub": "machine-7", "iat": now, "exp": now + 300, "azp": "erp"}
        return self._made({name: value for name, value in (said | claims).items() if value is not None}, {"typ": "JWT"})

    def stop(self) -> None:
        """It is away: nothing listens any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def start(self) -> None:
        """It is back, at the same address."""
        self._listen(self.port)

    def _listen(self, port: int) -> None:
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.issuer = self
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    # -- what it answers -----------------------------------------------------------------------------------------------

    def about_itself(self) -> Json:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize?realm=house",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "scopes_supported": ["openid", "email", "groups"],
            **self.discovery,
        }

    def key_set(self) -> Json:
        return {"keys": [key.as_dict(private=False) for key in self.keys] if self.published is None else self.published}

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser is sent back to."""
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        self.used.append(code)
        answer = {"error": self.refuses} if self.refuses else {"code": code}
        return f"{query['redirect_uri']}?{urlencode({**answer, 'state': query['state'], 'iss': self.url})}"

    def exchange(self, form: dict[str, str], authorization: str) -> tuple[int, Json]:
        begun = self.codes.pop(form.get("code", ""), None) if self.forgets_codes else self.codes.get(form["code"])
        client, secret = form.get("client_id", ""), form.get("client_secret", "")
        if authorization:
            pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            client, secret = map(unquote_plus, pair.split(":"))
        if client != CLIENT or secret not in (SECRET, ""):
            return 401, {"error": "invalid_client"}
        verifier = (
            base64.urlsafe_b64encode(sha256(form.get("code_verifier", "").encode()).digest()).decode().rstrip("=")
        )
        if (
            begun is None
            or form["grant_type"] != "authorization_code"
            or begun["redirect_uri"] != form["redirect_uri"]
            or (begun["code_challenge"], begun["code_challenge_method"]) != (verifier, "S256")
        ):
            return 400, {"error": "invalid_grant"}
        now = int(self.now_s())
        said = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": begun["nonce"], **self.person}
        token = self._made(said, {})
        return 200, {"id_token": token, "access_token": "opaque", "token_type": "Bearer", "expires_in": 300}

    def _made(self, claims: Json, header: Json) -> str:
        header = {"alg": "ES256", "kid": self.keys[0].kid, **header}
        self.twist(claims, header)
        return self.sign(claims, header)

    def _signed(self, claims: Json, header: Json) -> str:
        return jwt.encode(header, claims, self.keys[0], algorithms=[header["alg"]])


class _Server(ThreadingHTTPServer):
    issuer: TestIssuer
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """That somebody hangs up is no fault."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer(dict(parse_qsl(body.decode())))

    def _answer(self, form: dict[str, str]) -> None:
        issuer = self.server.issuer
        url = urlsplit(self.path)
        issuer.asked[url.path] += 1
        if issuer.stalls is not None:
            issuer.stalls.wait(120)
        if url.path in issuer.answers:
            self._send(*issuer.answers[url.path])
            return
        match url.path:
            case "/.well-known/openid-configuration":
                self._json(200, issuer.about_itself())
            case "/keys":
                self._json(200, issuer.key_set())
            case "/authorize":
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                self._send(302, {"location": issuer.authorize(query)}, b"")
            case "/token":
                self._json(*issuer.exchange(form, self.headers.get("authorization", "")))
            case _:
                self._json(404, {"error": "not_found"})

    def _json(self, status: int, answer: Json) -> None:
        self._send(status, {"content-type": "application/json"}, json.dumps(answer).encode())

    def _send(self, status: int, headers: Json, body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


def _key(kid: str) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": kid, "use": "sig", "alg": "ES256"})


def unsigned(claims: Json, header: Json) -> str:
    """A token with `alg: none`, which anybody can make."""
    return _parts({**header, "alg": "none"}, claims) + "."


def sealed(claims: Json, header: Json, secret: bytes) -> str:
    """A token with an HMAC, which anybody can make who knows the secret."""
    signed = _parts({**header, "alg": "HS256"}, claims)
    return f"{signed}.{b64(hmac.digest(secret, signed.encode(), 'sha256'))}"


def b64(data: bytes) -> str:
    """As JOSE writes bytes."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _parts(*parts: Json) -> str:
    return ".".join(b64(json.dumps(part).encode()) for part in parts)
