"""An OpenID Connect issuer: what it says of itself, its keys as they change, and what its tokens prove.

Signatures are checked with the issuer's published keys (RFC 7517) by public-key algorithms alone: with `none` anybody
could sign, and with an HMAC anybody who knows a public key. What must be in a token is in OpenID Connect Core 3.1.3.7
for ID tokens and in RFC 8725 and 9068 for bearer tokens.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import ClaimError, InvalidKeyIdError, JoseError
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey

from commonpool.access.problems import AwayError, CredentialError
from commonpool.access.web import Web
from commonpool.config.structs import Oidc
from commonpool.core.model import NS_PER_S

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
BEARER_TYPES = ("", "jwt", "at+jwt", "application/at+jwt")

CLOCKS_APART_S = 30
AGAIN_NS = 10 * NS_PER_S  # so often at most is the issuer asked again, whatever comes in
RSA_BITS_MIN = 2048
GROUPS_MAX = 1000
NAME_CHARS_MAX = 255

T = TypeVar("T")
Json = dict[str, Any]


class Person(msgspec.Struct, frozen=True):
    """Whom the issuer knows as `subject`, or which machine. `email` is verified, lower case; "" for none."""

    issuer: str
    subject: str
    email: str = ""
    groups: tuple[str, ...] = ()


class Discovery(msgspec.Struct, frozen=True):
    """What the issuer says of itself (OpenID Connect Discovery 3, RFC 9207)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    scopes_supported: tuple[str, ...] = ()
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class _Published(msgspec.Struct, frozen=True):
    keys: tuple[Json, ...]


class _Remembered(Generic[T]):
    """Something of the issuer's that is asked for again when it is old, and kept a while when there is no answer."""

    def __init__(self, ask: Callable[[], Awaitable[T]], clock: Callable[[], int], fresh_ns: int, kept_ns: int) -> None:
        self._ask = ask
        self._clock = clock
        self._fresh_ns, self._kept_ns = fresh_ns, kept_ns
        self._asking = asyncio.Lock()
        self._value: T | None = None
        self._got_ns = self._asked_ns = 0
        self._problem = ""

    async def get(self, *, newer: bool = False) -> T:
        """What it is now; `newer`: what was asked for a moment ago will do, and nothing older. Raises AwayError."""
        if self._value is not None and not newer and self._clock() < self._got_ns + self._fresh_ns:
            return self._value
        async with self._asking:
            now = self._clock()
            if not self._asked_ns or now >= self._asked_ns + AGAIN_NS:
                self._asked_ns = now
                try:
                    self._value = await self._ask()
                    self._got_ns = now
                except AwayError as error:
                    self._problem = str(error)
            if self._value is None or now >= self._got_ns + self._kept_ns:
                raise AwayError(self._problem)
            return self._value


class Issuer:
    """The issuer that the configuration names. `clock` gives nanoseconds since the epoch."""

    def __init__(self, settings: Oidc, web: Web, clock: Callable[[], int]) -> None:
        self.settings = settings
        self._web = web
        self._clock = clock
        self._discovery = _Remembered(self._ask, clock, fresh_ns=3600 * NS_PER_S, kept_ns=24 * 3600 * NS_PER_S)
        # Keys that the issuer withdrew count until they are asked for again, and an hour at most while it is away.
        self._keys = _Remembered(self._ask_keys, clock, fresh_ns=600 * NS_PER_S, kept_ns=3600 * NS_PER_S)

    async def discovery(self) -> Discovery:
        """What it says of itself. Raises AwayError."""
        return await self._discovery.get()

    async def bearer(self, token: str) -> Person:
        """Whom a bearer token stands for, where `audience` says that some are taken.

        Raises CredentialError, AwayError.
        """
        decoded = await self._decoded(token)
        if str(decoded.header.get("typ", "")).lower() not in BEARER_TYPES or "cnf" in decoded.claims:
            raise CredentialError("this token is not for showing as it is; ask the issuer for a bearer token")
        rules = jwt.JWTClaimsRegistry(
            now=self._now_s(),
            leeway=CLOCKS_APART_S,
            iss={"essential": True, "value": self.settings.issuer},
            aud={"essential": True, "value": str(self.settings.audience)},
            sub={"essential": True},
            exp={"essential": True},
        )
        try:
            rules.validate(decoded.claims)
        except JoseError as error:
            raise _refused(error) from None
        return self._person(decoded.claims)

    async def logged_in(self, id_token: str, nonce: str, access_token: str | None) -> Person:
        """Who logged in, by the ID token that came for this nonce. Raises CredentialError, AwayError."""
        decoded = await self._decoded(id_token)
        claims = CodeIDToken(
            decoded.claims,
            decoded.header,
            {
                "iss": {"essential": True, "value": self.settings.issuer},
                "aud": {"essential": True, "value": self.settings.client_id},
                "nonce": {"essential": True},
            },
            {"nonce": nonce, "client_id": self.settings.client_id, "access_token": access_token},
        )
        try:
            claims.validate(now=self._now_s(), leeway=CLOCKS_APART_S)
        except JoseError as error:
            raise _refused(error) from None
        return self._person(decoded.claims)

    async def _decoded(self, token: str) -> jwt.Token:
        """The token, if a key of the issuer signed it. One that is not known may be newer than what is remembered."""
        try:
            try:
                return jwt.decode(token, await self._keys.get(), algorithms=ALGORITHMS)
            except InvalidKeyIdError:
                return jwt.decode(token, await self._keys.get(newer=True), algorithms=ALGORITHMS)
        except JoseError as error:
            raise _refused(error) from None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise CredentialError("what was shown is no token that an issuer made; ask it for another") from None

    def _person(self, claims: Json) -> Person:
        subject, email = claims.get("sub"), claims.get("email")
        if not isinstance(subject, str) or not _is_name(subject):
            raise CredentialError("the issuer names nobody in this token that could be written down")
        known = claims.get("email_verified") is True and isinstance(email, str) and _is_name(email)
        groups = claims.get(self.settings.groups, [])
        groups = [groups] if isinstance(groups, str) else groups
        if not isinstance(groups, list) or len(groups) > GROUPS_MAX:
            raise CredentialError(f"claim {self.settings.groups} is not a list of at most {GROUPS_MAX} groups")
        named = tuple(group for group in groups if isinstance(group, str) and _is_name(group))
        return Person(self.settings.issuer, subject, str(email).lower() if known else "", named)

    def _now_s(self) -> int:
        return self._clock() // NS_PER_S

    async def _ask(self) -> Discovery:
        url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        _, found = await self._web.call("GET", url, Discovery)
        if found.issuer != self.settings.issuer:
            raise AwayError(f"what answers at {url} names itself another issuer than access.oidc.issuer does")
        if not self.settings.issuer.startswith("http://"):  # which only this machine may be
            for endpoint in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
                if not endpoint.startswith("https://"):
                    raise AwayError(f"the issuer has an endpoint without TLS: {endpoint[:NAME_CHARS_MAX]}")
        return found

    async def _ask_keys(self) -> KeySet:
        _, published = await self._web.call("GET", (await self.discovery()).jwks_uri, _Published)
        keys: list[Key] = [key for data in published.keys if (key := _key(data)) is not None]
        if not keys:
            raise AwayError("the issuer publishes no key that could have signed something for us")
        return KeySet(keys)


def _key(data: Json) -> Key | None:
    """A key that signs; None for one of another use or kind, or too weak."""
    if data.get("use", "sig") != "sig":
        return None
    try:
        match data.get("kty"):
            case "RSA" if len(_decoded(data["n"])) * 8 >= RSA_BITS_MIN:
                return RSAKey.import_key(data)
            case "EC":
                return ECKey.import_key(data)
            case "OKP":
                return OKPKey.import_key(data)
    except (JoseError, ValueError, TypeError, KeyError):
        pass  # one that is broken does not take the others with it
    return None


def _decoded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).lstrip(b"\0")
    except binascii.Error as error:
        raise ValueError(text) from error


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_CHARS_MAX and text.isprintable()


def _refused(error: JoseError) -> CredentialError:
    """Which rule it breaks, and nothing of what is in it."""
    rule = error.error.replace("_", " ")
    about = f": {error.claim}" if isinstance(error, ClaimError) else ""
    return CredentialError(f"the issuer's token is not valid here ({rule}{about}); ask it for another")
