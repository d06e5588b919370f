"""Logging in by the issuer: the authorization code flow with PKCE, state and nonce (RFC 6749, 7636, 9700).

What belongs together in one login is sealed in a cookie of the browser that began it, so a login that is begun costs
the product no memory, and one that comes back elsewhere is refused. The seal's key lives as long as the process.
"""

import base64
import secrets
from collections.abc import Callable, Mapping
from urllib.parse import quote_plus, urlsplit

import msgspec
import structlog
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from cryptography.fernet import Fernet, InvalidToken

from commonpool.access.oidc import Issuer, Person
from commonpool.access.problems import AwayError, CredentialError
from commonpool.access.web import Web
from commonpool.config.secrets import SecretMissingError, secret
from commonpool.core.model import NS_PER_S

CALLBACK = "/login/oidc/callback"
LOGIN_S = 600  # how long somebody may take at the issuer
SCOPES = ("openid", "email")
WANTED = ("groups",)  # scopes that not every issuer has, and that some need for the claim
CODE_CHARS_MAX = 4096
FINISHED_MAX = 10_000
log = structlog.get_logger()

SECRET = "access.oidc.client_secret"  # noqa: S105 - a key of the configuration


class Begun(msgspec.Struct, frozen=True):
    """A login that was begun: where to send the browser, and the sealed cookie that it has to bring back."""

    url: str
    cookie: str


class _Sealed(msgspec.Struct, frozen=True):
    state: str
    nonce: str
    verifier: str
    after: str


class _Answer(msgspec.Struct, frozen=True):
    id_token: str = ""
    access_token: str | None = None
    error: str = ""


class Logins:
    """Logins by one issuer, to a control plane that browsers reach at `url`. `clock` gives nanoseconds."""

    def __init__(
        self, issuer: Issuer, web: Web, url: str, clock: Callable[[], int], environment: Mapping[str, str]
    ) -> None:
        self._issuer = issuer
        self._web = web
        self._callback = f"{url}{CALLBACK}"
        self._clock = clock
        self._environment = environment
        self._seal = Fernet(Fernet.generate_key())
        # The states of logins that came back, in that order, until their cookies are too old.
        self._finished: dict[str, int] = {}

    async def begin(self, after: str) -> Begun:
        """Begin one that goes to the local path `after` in the end. Raises AwayError."""
        discovery = await self._issuer.discovery()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        scopes = (*SCOPES, *(scope for scope in WANTED if scope in discovery.scopes_supported))
        url = prepare_grant_uri(
            discovery.authorization_endpoint,
            self._issuer.settings.client_id,
            "code",
            redirect_uri=self._callback,
            scope=" ".join(scopes),
            state=state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(verifier),
            code_challenge_method="S256",
        )
        sealed = msgspec.json.encode(_Sealed(state, nonce, verifier, after))
        return Begun(url, self._seal.encrypt_at_time(sealed, self._now_s()).decode())

    async def finish(self, query: Mapping[str, str], cookie: str | None) -> tuple[Person, str]:
        """Who came back from the issuer, and where to go now. Raises CredentialError, AwayError."""
        begun = self._opened(query.get("state", ""), cookie)
        discovery = await self._issuer.discovery()
        if query.get("iss", discovery.issuer) != discovery.issuer:
            raise CredentialError("the answer is of another issuer than the one that was asked")
        if "iss" not in query and discovery.authorization_response_iss_parameter_supported:
            raise CredentialError("the answer does not say that it is the issuer's")
        if "error" in query:
            raise CredentialError(f"the issuer says {_word(query['error'])}; log in again")
        answer = await self._exchange(discovery.token_endpoint, query.get("code", ""), begun.verifier)
        return await self._issuer.logged_in(answer.id_token, begun.nonce, answer.access_token), begun.after

    def _opened(self, state: str, cookie: str | None) -> _Sealed:
        """What was sealed when this login began; it comes back once."""
        now_s = self._now_s()
        try:
            sealed = self._seal.decrypt_at_time((cookie or "").encode(), LOGIN_S, now_s)
            begun = msgspec.json.decode(sealed, type=_Sealed)
        except (InvalidToken, UnicodeEncodeError):
            raise CredentialError(
                f"this login was not begun in this browser, or more than {LOGIN_S // 60} minutes ago; log in again"
            ) from None
        if not secrets.compare_digest(begun.state.encode(), state.encode()):
            raise CredentialError("this login was begun anew since; finish that one, or log in again")
        if state in self._finished:
            raise CredentialError("this login was finished already; log in again")
        self._finished[state] = now_s + LOGIN_S
        while len(self._finished) > FINISHED_MAX or next(iter(self._finished.values())) < now_s:
            del self._finished[next(iter(self._finished))]
        return begun

    async def _exchange(self, endpoint: str, code: str, verifier: str) -> _Answer:
        """What the issuer gives for the code."""
        if not 0 < len(code) <= CODE_CHARS_MAX:
            raise CredentialError("the issuer gave no code; log in again")
        form = prepare_token_request(
            "authorization_code", redirect_uri=self._callback, code=code, code_verifier=verifier, **await self._named()
        )
        status, answer = await self._web.call("POST", endpoint, _Answer, form=form, headers=await self._proof())
        if status != 200 or not answer.id_token:  # noqa: PLR2004 - RFC 6749, 5.1
            raise CredentialError(f"the issuer did not take the code ({_word(answer.error)}); log in again")
        return answer

    async def _named(self) -> dict[str, str]:
        """The client in the form, where it is not in the header."""
        settings = self._issuer.settings
        if settings.client_secret is None:
            return {"client_id": settings.client_id}
        if await self._by_header():
            return {}
        return {"client_id": settings.client_id, "client_secret": self._secret(settings.client_secret)}

    async def _proof(self) -> dict[str, str]:
        """The header by which the client proves itself (RFC 6749, 2.3.1), where it does so."""
        settings = self._issuer.settings
        if settings.client_secret is None or not await self._by_header():
            return {}
        pair = f"{quote_plus(settings.client_id)}:{quote_plus(self._secret(settings.client_secret))}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    async def _by_header(self) -> bool:
        methods = (await self._issuer.discovery()).token_endpoint_auth_methods_supported
        return "client_secret_basic" in methods or "client_secret_post" not in methods

    def _secret(self, where: str) -> str:
        try:
            return secret(SECRET, where, self._environment)
        except SecretMissingError as error:
            log.error("nobody can log in by the issuer", error=str(error))  # noqa: TRY400 - it says all
            raise AwayError("nobody can log in by the issuer now; the product's log says why") from None

    def _now_s(self) -> int:
        return self._clock() // NS_PER_S


def host(issuer: str) -> str:
    """What people call the issuer: its host."""
    return urlsplit(issuer).netloc


def _word(text: str) -> str:
    """An error code of the issuer's (RFC 6749, 4.1.2.1), if it is one."""
    return text if text.replace("_", "").isalnum() and text.isascii() and len(text) <= 64 else "no"  # noqa: PLR2004
