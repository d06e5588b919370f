"""People and machines that come to the control plane: from a cookie or a bearer token to a caller with its roles.

Who somebody is comes from an account, or from the issuer; what they are, from `access.roles` of the configuration as it
is at this moment. Admin keys are elsewhere; those that a service account owns have their roles from here.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from commonpool.access import browsers
from commonpool.access.accounts import Accounts
from commonpool.access.callers import Binding, Caller
from commonpool.access.guesses import Guesses
from commonpool.access.logins import LOGIN_S, Begun, Logins
from commonpool.access.oidc import NAME_CHARS_MAX, Issuer, Person
from commonpool.access.passwords import Passwords
from commonpool.access.problems import AwayError, CredentialError, ForeignPageError, NoRoleError, OpenLineError
from commonpool.access.sessions import LIFE_NS, Opened, Sessions, name_of
from commonpool.access.web import Web
from commonpool.config.structs import Access, Oidc
from commonpool.core.model import NS_PER_S
from commonpool.store.accounts import Account, AccountStore, Session

WRONG = "the name or the password is wrong"


class Visit(msgspec.Struct, frozen=True):
    """How somebody comes: from which address, over TLS or not, from this very machine or not.

    `here` is False where a proxy passed it on. The names of headers are lower case.
    """

    address: str
    tls: bool
    here: bool
    headers: Mapping[str, str]


NOWHERE = Visit("", tls=False, here=False, headers={})
"""Of nobody that HTTP brought."""


class LoggedIn(msgspec.Struct, frozen=True):
    """Somebody who just logged in, and the `Set-Cookie` that lets the browser show it."""

    caller: Caller
    cookie: str
    expires_ns: int


class Open(msgspec.Struct, frozen=True):
    """A session that is not over: its name, whose it is, when it ends; `current`: it is the caller's own."""

    name: str
    who: str
    created_ns: int
    used_ns: int
    expires_ns: int
    current: bool = False


class People:
    """Everybody who may come, over a store, as `access` says at each moment.

    `clock` gives nanoseconds since the epoch; `environment` is where an `env:NAME` is looked up.
    """

    def __init__(
        self,
        store: AccountStore,
        clock: Callable[[], int],
        access: Callable[[], Access],
        *,
        passwords: Passwords | None = None,
        web: Web | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._clock = clock
        self._access = access
        self._environment = environment
        self._passwords = Passwords() if passwords is None else passwords
        self.accounts = Accounts(store, self._passwords, clock)
        self._sessions = Sessions(store, clock)
        self._guesses = Guesses()
        self._web = Web() if web is None else web
        self._issuer: tuple[Oidc, str, Issuer, Logins] | None = None

    async def close(self) -> None:
        """Let go of what is open."""
        self._passwords.close()
        await self._web.close()

    # -- who calls -----------------------------------------------------------------------------------------------------

    async def caller(self, method: str, visit: Visit, *, passive: bool = False) -> Caller | None:
        """Who shows a cookie of ours or a bearer token of the issuer's; None where neither is there, as with a key.

        A header that authorizes is meant, so it wins over a cookie, which browsers send by themselves. `passive`: it is
        looked whether a session still counts, which is no use of it. Raises CredentialError, ForeignPageError,
        AwayError, StoreError.
        """
        authorization = visit.headers.get("authorization")
        if authorization is not None:
            return await self._bearer(authorization)
        token = self._token(visit)
        if token is None:
            return None
        if method not in browsers.READING and not browsers.is_own_page(visit.headers):
            raise ForeignPageError("a change with a session comes from a page of this host alone; it says so in Origin")
        session = await self._sessions.find(token, passive=passive)
        if session is None:
            raise CredentialError("the session is over; log in again at /login")
        return self._of(session)

    async def service(self, account: str) -> Caller | None:
        """Who a key of this service account stands for; None while the account may not be used, or is none."""
        found = await self.account(account)
        usable = found is not None and found.kind == "service" and found.disabled_ns is None
        return self.of_account(found) if found is not None and usable else None

    async def account(self, name: str) -> Account | None:
        """The account of this name."""
        return await self.accounts.look_up(name)

    def of_account(self, account: Account) -> Caller:
        """Who an account stands for while it may be used."""
        return Caller(f"account:{account.name}", account.kind, self._bindings(account=account.name))

    async def session(self, visit: Visit) -> Session | None:
        """The session that the visit shows, if one."""
        token = self._token(visit)
        return None if token is None else await self._sessions.find(token)

    # -- coming and going ----------------------------------------------------------------------------------------------

    async def log_in(self, name: str, password: str, visit: Visit) -> LoggedIn:
        """Log in to an account. Raises CredentialError, TooManyGuessesError, OpenLineError, StoreError."""
        secure = self.is_secure(visit)
        if not secure and not visit.here:
            raise OpenLineError("passwords do not go over an open line; use https, or a tunnel to this port (ssh -L)")
        guess = self._guesses.take(name[:NAME_CHARS_MAX] or "-", visit.address, self._clock())
        account = await self.accounts.proven(name, password)
        if account is None:
            raise CredentialError(WRONG)
        self._guesses.right(guess, self._clock())
        opened = await self._sessions.open(account=account.name, account_changed_ns=account.changed_ns)
        return self._logged_in(opened, secure=secure)

    async def log_out(self, visit: Visit) -> str:
        """End the session that the visit shows, if one; the `Set-Cookie` that takes it from the browser."""
        token = self._token(visit)
        if token is not None:
            await self._sessions.end(token)
        return browsers.cookie(browsers.SESSION, "", 0, secure=self.is_secure(visit))

    async def own_sessions(self, visit: Visit) -> tuple[Open, ...]:
        """The sessions of the person who comes with one, the newest first; of others there are none."""
        current = await self.session(visit)
        return () if current is None else self._open(await self._sessions.of(current), current)

    async def all_sessions(self, visit: Visit) -> tuple[Open, ...]:
        """The newest sessions of everybody."""
        return self._open(await self._sessions.all(), await self.session(visit))

    async def end_own_session(self, name: str, visit: Visit) -> str | None:
        """End a session of the person who comes with one: whose it was; None where there is no such."""
        current = await self.session(visit)
        return None if current is None else self._who(await self._sessions.end_named(name, current))

    async def end_session(self, name: str) -> str | None:
        """End anybody's session: whose it was; None where there is no such."""
        return self._who(await self._sessions.end_named(name))

    async def change_password(self, current: str, new: str, visit: Visit) -> LoggedIn:
        """Whoever is logged in to an account chooses another password; all its other sessions are over.

        Raises AccountError, CredentialError, TooManyGuessesError.
        """
        session = await self.session(visit)
        if session is None or not session.account:
            raise CredentialError("only who is logged in to an account of this product has a password here")
        guess = self._guesses.take(session.account, visit.address, self._clock())
        if await self.accounts.proven(session.account, current) is None:
            raise CredentialError("the current password is wrong")
        self._guesses.right(guess, self._clock())
        account = await self.accounts.set_password(session.account, new)
        opened = await self._sessions.open(account=account.name, account_changed_ns=account.changed_ns)
        return self._logged_in(opened, secure=self.is_secure(visit))

    # -- the issuer ----------------------------------------------------------------------------------------------------

    def issuer(self) -> str | None:
        """The issuer whose people may log in, None where there is none."""
        oidc = self._access().oidc
        return None if oidc is None else oidc.issuer

    async def begin(self, after: str, visit: Visit) -> Begun:
        """Begin a login by the issuer, to go to the path `after` in the end. `cookie` is a whole `Set-Cookie`.

        Raises AwayError.
        """
        begun = await self._by_issuer()[1].begin(browsers.local_path(after))
        cookie = browsers.cookie(browsers.LOGIN, begun.cookie, LOGIN_S, secure=self.is_secure(visit), same_site="Lax")
        return Begun(begun.url, cookie)

    async def finish(self, query: Mapping[str, str], visit: Visit) -> tuple[LoggedIn, str]:
        """Who comes back from the issuer, and which path to go to.

        Raises CredentialError, NoRoleError, TooManyGuessesError, AwayError, StoreError.
        """
        secure = self.is_secure(visit)
        cookie = browsers.picked(visit.headers.get("cookie", ""), browsers.LOGIN, secure=secure)
        guess = self._guesses.take("", visit.address, self._clock())
        person, after = await self._by_issuer()[1].finish(query, cookie)
        self._guesses.right(guess, self._clock())
        if not self._person(person, "person").bindings:
            raise NoRoleError(f"{person.email or person.subject} has no role here; ask an operator for one")
        opened = await self._sessions.open(
            issuer=person.issuer, subject=person.subject, email=person.email, member_of=person.groups
        )
        return self._logged_in(opened, secure=secure), after

    def over(self, visit: Visit) -> str:
        """The `Set-Cookie` that takes a login by the issuer, which is over, from the browser."""
        return browsers.cookie(browsers.LOGIN, "", 0, secure=self.is_secure(visit), same_site="Lax")

    # -- what follows --------------------------------------------------------------------------------------------------

    def is_secure(self, visit: Visit) -> bool:
        """Whether what the browser sends comes over TLS: to us, or to the proxy that `access.url` names."""
        url = self._access().url or ""
        proxied = url.startswith("https://") and urlsplit(url).netloc == visit.headers.get("host", "").lower()
        return visit.tls or proxied

    def _token(self, visit: Visit) -> str | None:
        header = visit.headers.get("cookie", "")
        return browsers.picked(header, browsers.SESSION, secure=self.is_secure(visit)) or None

    async def _bearer(self, authorization: str) -> Caller | None:
        """Of a JWT where the configuration takes them. A key of ours is none."""
        scheme, _, token = authorization.strip().partition(" ")
        oidc = self._access().oidc
        if oidc is None or oidc.audience is None or scheme.lower() != "bearer" or token.count(".") != 2:  # noqa: PLR2004
            return None
        person = await self._by_issuer()[0].bearer(token.strip())
        return self._person(person, "person" if person.email else "service")

    def _open(self, sessions: Sequence[Session], current: Session | None) -> tuple[Open, ...]:
        """Those that still count: one of an issuer that the configuration names no more does not."""
        found = []
        for each in sessions:
            who = self._who(each)
            if who is not None and (each.account or each.issuer == self.issuer()):
                mine = current is not None and each.digest == current.digest
                found.append(Open(name_of(each), who, each.created_ns, each.used_ns, each.expires_ns, mine))
        return tuple(found)

    def _who(self, session: Session | None) -> str | None:
        """As in the audit log."""
        if session is None:
            return None
        if session.account:
            return f"account:{session.account}"
        return self._person(Person(session.issuer, session.subject, session.email, session.member_of), "person").name

    def _of(self, session: Session) -> Caller:
        if session.account:
            return Caller(f"account:{session.account}", "person", self._bindings(account=session.account))
        if session.issuer != self.issuer():
            raise CredentialError("the session is of an issuer that does not count any more; log in again at /login")
        return self._person(Person(session.issuer, session.subject, session.email, session.member_of), "person")

    def _person(self, person: Person, kind: Literal["person", "service"]) -> Caller:
        # A subject that looks like an address is not taken for the one of somebody else.
        name = person.email or (f"sub:{person.subject}" if "@" in person.subject else person.subject)
        bindings = self._bindings(subject=person.subject, email=person.email, group=person.groups)
        return Caller(f"oidc:{name}", kind, bindings)

    def _bindings(
        self, *, account: str = "", subject: str = "", email: str = "", group: tuple[str, ...] = ()
    ) -> tuple[Binding, ...]:
        """What somebody is who is known by these, "" where they are not known by it."""
        known = {"account": {account}, "subject": {subject}, "email": {email}, "group": set(group)}
        found = {Binding(role.role, role.tenant) for role in self._access().roles if role.who in known[role.by]}
        return tuple(sorted(found, key=lambda binding: (binding.tenant or "", binding.role)))

    def _logged_in(self, opened: Opened, *, secure: bool) -> LoggedIn:
        cookie = browsers.cookie(browsers.SESSION, opened.token, LIFE_NS // NS_PER_S, secure=secure)
        return LoggedIn(self._of(opened.session), cookie, opened.session.expires_ns)

    def _by_issuer(self) -> tuple[Issuer, Logins]:
        """The issuer as it is configured now, and the logins by it. Raises AwayError where there is none."""
        access = self._access()
        oidc, url = access.oidc, access.url
        if oidc is None or url is None:
            raise AwayError("no issuer is configured here; log in with an account of this product")
        if self._issuer is None or self._issuer[:2] != (oidc, url):
            issuer = Issuer(oidc, self._web, self._clock)
            self._issuer = (oidc, url, issuer, Logins(issuer, self._web, url, self._clock, self._environment))
        return self._issuer[2:]
