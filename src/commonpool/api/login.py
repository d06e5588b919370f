"""The pages on which people log in with a browser: by name and password, or by the issuer. They need no JavaScript.

A form counts only from our own page, so nobody is logged in as somebody else by a foreign one. The issuer sends the
browser back from elsewhere, with which browsers send no strict cookie: what follows is a page of ours that goes on.
"""

from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl

import jinja2
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from commonpool import __version__
from commonpool.access import browsers
from commonpool.access.callers import NOBODY, Caller
from commonpool.access.logins import CALLBACK, host
from commonpool.access.passwords import CHARS_MIN
from commonpool.access.people import People, Visit
from commonpool.access.problems import AccessError, CredentialError, ForeignPageError
from commonpool.api import sessions
from commonpool.api.drawing import Drawn, Pen
from commonpool.api.http import SAFE
from commonpool.api.languages import COOKIE, LANGUAGES, Words, chosen, keep, load
from commonpool.api.operations import OperationError, Operations, UnavailableError
from commonpool.api.refusals import headers_of, refusal
from commonpool.api.themes import THEME, THEMES, theme
from commonpool.api.visits import port_of, visit_of
from commonpool.store.contract import StoreError

LOGIN, OIDC, LOGOUT, PASSWORD = "/login", "/login/oidc", "/logout", "/login/password"
STYLE, ICON = "/login.css", "/login.svg"
PATHS = (LOGIN, OIDC, CALLBACK, PASSWORD, LOGOUT, STYLE, ICON)  # of pages for people: they are no part of the API
FORM_BYTES_MAX = 8192
FIELDS_MAX = 8

SEE_OTHER = 303

# These pages have forms, which the others have not. Of a page without any referrer a browser says the origin `null`,
# and its forms would be those of nobody.
FORMS = {
    **SAFE,
    "referrer-policy": "same-origin",
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
}

Serve = Callable[[Request, Visit], Awaitable[Response]]


def routes(operations: Operations) -> list[BaseRoute]:
    """The pages, to be mounted beside the API."""
    pages = _Pages(operations)
    files = resources.files("commonpool.api") / "pages"
    style, icon = (files / "login.css").read_bytes(), (files / "login.svg").read_bytes()
    return [
        Route(LOGIN, pages.served(pages.show), methods=["GET"]),
        Route(LOGIN, pages.served(pages.log_in), methods=["POST"]),
        Route(PASSWORD, pages.served(pages.change_password), methods=["POST"]),
        Route(LOGOUT, pages.served(pages.log_out), methods=["POST"]),
        Route(OIDC, pages.served(pages.to_issuer), methods=["GET"]),
        Route(CALLBACK, pages.served(pages.from_issuer), methods=["GET"]),
        Route(STYLE, Response(style, headers=SAFE, media_type="text/css")),
        Route(ICON, Response(icon, headers=SAFE, media_type="image/svg+xml")),
    ]


class _Pages:
    """One page in its several states, and what its forms do; in the language of whoever reads it."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        environment = jinja2.Environment(
            autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
        )
        environment.globals.update(version=__version__, chars_min=CHARS_MIN, languages=LANGUAGES, themes=THEMES)
        self._words = load()
        self._pen = Pen()
        file = resources.files("commonpool.api") / "pages" / "login.html"
        self._template = environment.from_string(file.read_text("utf-8"))

    @property
    def _people(self) -> People:
        return self._operations.people()

    def served(self, serve: Serve) -> Callable[[Request], Awaitable[Response]]:
        """The same, where what goes wrong is said on the page."""

        async def answer(request: Request) -> Response:
            visit = visit_of(request)
            try:
                page = await serve(request, visit)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            except (AccessError, StoreError) as error:
                page = self._refused(request, error)
            return await self._pen.draw(page)

        return answer

    async def show(self, request: Request, visit: Visit) -> Response:
        after = browsers.local_path(request.query_params.get("next", "/"))
        try:
            me = await self._people.caller("GET", visit)
        except CredentialError:  # what the browser has is of no more use
            return self._page(request, after=after, headers={sessions.COOKIE: await self._people.log_out(visit)})
        return self._page(request, after=after) if me is None else self._page(request, me=me, title="login.you")

    async def log_in(self, request: Request, visit: Visit) -> Response:
        form = await _form(request, visit)
        name, after = form.get("name", ""), browsers.local_path(form.get("next", "/"))
        try:
            opened = await self._people.log_in(name, form.get("password", ""), visit)
        except AccessError as error:
            await sessions.refused(self._operations, visit, LOGIN, name)
            return self._refused(request, error, after=after, name=name)
        sessions.note(self._operations, visit, LOGIN, opened.caller, allowed=True)
        return _onward(after, opened.cookie)

    async def log_out(self, request: Request, visit: Visit) -> Response:
        await _form(request, visit)
        return _onward(LOGIN, await self._people.log_out(visit))

    async def change_password(self, request: Request, visit: Visit) -> Response:
        form = await _form(request, visit)
        me = await self._people.caller(request.method, visit)
        try:
            opened = await self._people.change_password(form.get("current", ""), form.get("new", ""), visit)
        except AccessError as error:
            return self._refused(request, error, me=me, title="login.you")
        return _onward(LOGIN, opened.cookie)

    async def to_issuer(self, request: Request, visit: Visit) -> Response:
        begun = await self._people.begin(request.query_params.get("next", "/"), visit)
        return _onward(begun.url, begun.cookie)

    async def from_issuer(self, request: Request, visit: Visit) -> Response:
        try:
            opened, after = await self._people.finish(dict(request.query_params), visit)
        except AccessError as error:
            sessions.note(self._operations, visit, CALLBACK, NOBODY, allowed=False)
            return self._refused(request, error)
        sessions.note(self._operations, visit, CALLBACK, opened.caller, allowed=True)
        page = self._page(request, me=opened.caller, onward=after)
        for cookie in (opened.cookie, self._people.over(visit)):
            page.headers.append(sessions.COOKIE, cookie)
        return page

    def _refused(self, request: Request, error: Exception, **said: Any) -> Response:
        why: OperationError = refusal(error) if isinstance(error, AccessError) else UnavailableError(str(error))
        return self._page(request, status=why.status, headers=headers_of(why), problem=why, **said)

    def _page(
        self, request: Request, *, status: int = 200, headers: dict[str, str] | None = None, **said: Any
    ) -> Response:
        visit, issuer = visit_of(request), self._people.issuer()
        wanted = request.query_params.get("language", "")
        read = wanted if wanted in LANGUAGES else request.cookies.get(COOKIE, "")
        look = request.query_params.get("theme", "")
        words = self._words[chosen(read, request.headers.get("accept-language", ""))]
        usual = {
            "t": words,
            "title": "login.title",
            "theme": theme(look or request.cookies.get(THEME, "")),
            "problem": None,
            "roles": _roles(said.get("me"), words),
            "me": None,
            "onward": "",
            "after": "/",
            "name": "",
            "port": port_of(request),
            "issuer": host(issuer) if issuer else "",
            "open_line": not (visit.here or self._people.is_secure(visit)),
        }
        page = Drawn(lambda: self._template.render(usual | said), status, {**FORMS, **(headers or {})})
        if wanted in LANGUAGES:
            keep(page, COOKIE, wanted)
        if look in THEMES:
            keep(page, THEME, look)
        return page


def _roles(me: Caller | None, words: Words) -> str:
    """What somebody is, by the names of the policies."""
    roles = [
        each.role if each.tenant is None else words("login.in_tenant", role=each.role, tenant=each.tenant)
        for each in (me.bindings if me else ())
    ]
    return words("login.between").join(roles) or words("login.no_role")


def _onward(where: str, cookie: str) -> Response:
    return RedirectResponse(where, SEE_OTHER, {**SAFE, sessions.COOKIE: cookie})


async def _form(request: Request, visit: Visit) -> dict[str, str]:
    """The fields of a form, if it is one of ours. Raises ForeignPageError, CredentialError."""
    if not browsers.is_own_page(visit.headers):
        raise ForeignPageError("this form was not sent by a page of this host; open /login and try again")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise CredentialError(f"the form is longer than {FORM_BYTES_MAX} bytes")
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        raise CredentialError("the form cannot be read; open /login and try again") from None
