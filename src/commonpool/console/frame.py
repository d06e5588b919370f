"""The frame of every page: who reads, in which language, zone and theme; what a page is; how it asks and answers.

A page's `show` takes a `View` and returns what `View.render` makes. What the API refuses becomes a page that says so.
"""

import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import parse_qsl, quote, urlencode
from zoneinfo import ZoneInfo

import jinja2
import msgspec
from markupsafe import Markup
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from commonpool import __version__
from commonpool.access import browsers
from commonpool.access.permissions import Permission
from commonpool.api.drawing import Drawn, Pen
from commonpool.api.languages import COOKIE, LANGUAGES, Words, chosen
from commonpool.api.login import FORMS
from commonpool.api.themes import THEME, THEMES, theme
from commonpool.api.visits import headers_of, port_of
from commonpool.api.wire import people as wire
from commonpool.console import figures, files, languages, saying
from commonpool.console.asking import Problem, RefusedError, Value, ask
from commonpool.console.drawing import RETRY_S, BusyError, Turns
from commonpool.console.links import Links, anchor
from commonpool.console.lost import Lost
from commonpool.console.sharing import Shared
from commonpool.console.stacking import labelled
from commonpool.core import story
from commonpool.core.ledger import PLATFORM
from commonpool.core.said import say

HEADERS: Final = FORMS
FORM_BYTES_MAX: Final = 1024 * 1024  # a configuration in a text area fits
FIELDS_MAX: Final = 200
SEE_OTHER: Final = 303
ACCEPTED: Final = 202
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
UNAVAILABLE: Final = 503
BUSY: Final = "Too many pages are asked for at once; try again in a moment.\n"
NOT_FOUND: Final = 404
SHOWN_S: Final = 4.0  # how old a refresh may be that somebody else has asked for
WITHIN_S: Final = 0.15  # a page waits so long for a part of it: a first screen is there within 0.3 s
SLOW_S: Final = 180.0  # how old an answer may be that changes slowly; the books are closed by the hour
USABLE_S: Final = 900.0  # by so much more where nobody looked meanwhile: the next refresh has the new one
ZONE = "commonpool-zone"  # a cookie
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]{1,40}(/[A-Za-z0-9_+-]{1,40}){0,2}")

Group = Literal["now", "work", "money", "access"]

T = TypeVar("T")

log = logging.getLogger(__name__)


class Form(msgspec.Struct, frozen=True):
    """The fields of a form, of which the last one of a name counts, and all the values of a name."""

    fields: Mapping[str, str]
    pairs: tuple[tuple[str, str], ...]

    def get(self, name: str, usual: str = "") -> str:
        return self.fields.get(name, usual).strip()

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.pairs if key == name)


class Page(msgspec.Struct, frozen=True):
    """A page, or with `act` what a form posts to.

    `name` is its key in the languages: `NAME.title` is its title and its word in the menu. It is in the menu where it
    has a `group`, for whoever has one of the permissions it `needs`, anywhere or, where it is the `platform`'s, there;
    `key` is its letter after `g`. An `open` one is for everybody, and knows nobody.
    Of a `shared` one what is live follows from what the reader may do alone, so those who may the same share it.

    Links lead to it for whoever may read it (`View.leads`), of the tenant that its path or query names; where there is
    an `instead`, others are led there if they may read that.
    """

    path: str
    name: str
    show: "Show | None" = None
    act: "Act | None" = None
    needs: tuple[Permission, ...] = ()
    group: Group | None = None
    key: str = ""
    platform: bool = False
    open: bool = False
    shared: bool = False
    instead: str = ""


class Look(msgspec.Struct, frozen=True):
    """How somebody wants to read: words, time zone and theme. `zone_known`: the browser has said it."""

    words: Words
    zone: ZoneInfo
    zone_known: bool
    theme: str


class View:
    """One visit of a page. `me` is None where nobody is known, and for pages that need nobody."""

    def __init__(self, house: "House", request: Request, page: Page, look: Look, me: wire.Me | None) -> None:
        self._house = house
        self.request = request
        self.page = page
        self.look = look
        self.me = me

    @property
    def words(self) -> Words:
        return self.look.words

    @property
    def now_ns(self) -> int:
        """The time, since the epoch."""
        return self._house.clock()

    @property
    def path(self) -> dict[str, str]:
        """What the page's path names: `/tenants/{name}`."""
        return dict(self.request.path_params)

    @property
    def address(self) -> str:
        """Where the page is, as a link leads there; `/` where a link would lead to another host, as to `//host`."""
        return browsers.local_path(quote(self.request.scope["path"]))

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    @property
    def port(self) -> int:
        """Of the control plane, as it listens."""
        return port_of(self.request)

    @property
    def refreshes(self) -> bool:
        """Whether only what is live is asked for."""
        return "hx-request" in self.request.headers

    def may(self, permission: str, tenant: str | None = None) -> bool:
        """Whether the reader has this permission: to this tenant, or anywhere. The API decides; this only hides."""
        for each in self.me.may if self.me else ():
            if each.permission == permission:
                return tenant is None or each.tenants is None or tenant in each.tenants
        return False

    def reads(self, page: "Page", tenant: str | None = None) -> bool:
        """Whether a page is for the reader: of this tenant, or of any."""
        if page.platform:
            return not page.needs or any(map(self.may_platform, page.needs))
        return not page.needs or any(self.may(permission, tenant) for permission in page.needs)

    def leads(self, to: str, tenant: str | None = None) -> str:
        """The same address where what is there is for the reader, else another one where that is, else "".

        `tenant` is whose it is, where the address does not say so. What is no page of the console is for everybody.
        """
        found = self._house.links.find(to)
        if found is None:
            return to
        page, named = found
        whose = tenant or named.get("tenant") or None
        if "{tenant}" in page.path and not _is_tenant(whose or ""):
            return ""
        if self.reads(page, whose):
            return to
        return self.leads(page.instead.format(tenant=quote(whose, safe=""))) if page.instead and whose else ""

    def link(self, to: str, words: object, tenant: str | None = None, kind: str = "", rel: str = "") -> Markup:
        """A link, or its words alone where it would lead to a refusal."""
        return anchor(self.leads(to, tenant), words, kind, rel)

    def way(self, to: str, words: object, tenant: str | None = None) -> Markup:
        """A link, or nothing where it would lead to a refusal."""
        return anchor(to, words) if self.leads(to, tenant) else Markup()

    def home(self) -> str:
        """The first page of the reader's menu, but for what everybody may see of oneself; "" where there is none."""
        menu = (page for pages in self._house.menu(self).values() for page in pages)
        return next((page.path for page in menu if Permission.READ_SELF not in page.needs), "")

    def may_platform(self, permission: str) -> bool:
        """Whether the reader has this permission for what is the platform's."""
        return any(each.permission == permission and each.platform for each in (self.me.may if self.me else ()))

    async def get(self, path: str, answer: type[T], **query: Value) -> T:
        """What the API answers to the reader. Raises RefusedError, which becomes a page."""
        return await ask(self.request, "GET", path, answer, query)

    async def attempt(self, path: str, answer: type[T], **query: Value) -> T | Problem:
        """The same for a part of a page that says itself what it did not get."""
        try:
            return await self.get(path, answer, **query)
        except RefusedError as error:
            return error.problem

    async def wish(self, needs: Permission, path: str, answer: type[T], **query: Value) -> T | Problem:
        """The same, but not asked where the reader has this permission nowhere: the audit log is not for layouts."""
        if not self.may(needs):
            return Problem(FORBIDDEN, "")
        return await self.attempt(path, answer, **query)

    async def slow(self, needs: Permission, path: str, answer: type[T], **query: Value) -> T | Problem:
        """The same of what changes slowly, as the books do: at most `SLOW_S` old, shared by those who may the same.

        What takes longer than the house waits is worked out meanwhile: the page shows the answer before, or says that
        it is being worked out, and has it at a later refresh.
        """
        if not self.may(needs):
            return Problem(FORBIDDEN, "")
        key = msgspec.json.encode((path, sorted(query.items()), self.me.may if self.me else ()))
        asked = self._house.shared.get(key, SLOW_S, lambda: self.get(path, answer, **query), USABLE_S)
        try:
            return await asyncio.wait_for(asked, self._house.within_s)
        except TimeoutError:
            return Problem(ACCEPTED, "")
        except RefusedError as error:
            return error.problem

    async def send(self, method: str, path: str, answer: type[T], body: Any = None, **query: Value) -> T:
        """Have the API change something, as the reader. Raises RefusedError."""
        return await ask(self.request, method, path, answer, query, body)

    def render(self, template: str, *, code: int = 200, **values: Any) -> Response:
        """The page; of a visit that only refreshes it, what is in its block `live`."""
        layout = "bare.html" if self.refreshes else "frame.html"
        return Drawn(lambda: self._house.render(template, self, layout, values), code, HEADERS)

    def go(self, path: str, said: str = "") -> Response:
        """Go on to a page of ours after a change; there the message of the key `said` is shown."""
        where = browsers.local_path(path)
        if said:
            where += ("&" if "?" in where else "?") + urlencode({"said": said})
        return RedirectResponse(where, SEE_OTHER, HEADERS)


Show = Callable[[View], Awaitable[Response]]
Act = Callable[[View, Form], Awaitable[Response]]
Serve = Callable[[Request], Awaitable[Response]]


class House:
    """What the pages have in common, made once: templates, words, files, the menu; `clock` gives ns since the epoch.

    A page waits `within_s` for a part that is slow.
    """

    def __init__(
        self, pages: Sequence[Page], clock: Callable[[], int] = time.time_ns, within_s: float = WITHIN_S
    ) -> None:
        self.pages = tuple(pages)
        self.clock = clock
        self.within_s = within_s
        self.links = Links((page.path, page) for page in self.pages if page.show is not None)
        self.shared = Shared(time.monotonic)
        self._turns = Turns()
        self._pen = Pen()
        self.words = languages.load()
        self.files = files.load()
        self.environment = jinja2.Environment(
            loader=jinja2.PackageLoader("commonpool.console", "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
            auto_reload=False,
            bytecode_cache=_compiled(),
        )
        self.environment.globals.update(
            version=__version__,
            files=self.files.addresses,
            languages=LANGUAGES,
            themes=THEMES,
            figures=figures,
            named=say,
            story=story,
        )
        self.environment.filters["labelled"] = labelled
        self.environment.tests["problem"] = lambda value: isinstance(value, Problem)

    def routes(self) -> list[BaseRoute]:
        made: list[BaseRoute] = list(self.files.routes)
        for page in self.pages:
            if page.show is not None:
                made.append(Route(page.path, self._served(page, page.show), methods=["GET"]))
            if page.act is not None:
                made.append(Route(page.path, self._served(page, _of_form(page.act)), methods=["POST"]))
            if page.show is None:
                made.append(Route(page.path, self._back, methods=["GET"]))
        made.append(Route("/favicon.ico", RedirectResponse(self.files.addresses["icon.svg"]), methods=["GET"]))
        return [*made, Lost(self._served(LOST, _nothing_here))]

    async def _back(self, request: Request) -> Response:
        """Who opens the address of a form, after it was refused, is led to the page that has it."""
        return RedirectResponse(self.links.above(request.url.path), SEE_OTHER, HEADERS)

    def render(self, template: str, view: View, layout: str, values: Mapping[str, Any]) -> str:
        zone = view.look.zone
        query = [(name, value) for name, value in view.request.query_params.multi_items() if name != "said"]
        said = view.query.get("said", "")
        return self.environment.get_template(template).render(
            layout=layout,
            view=view,
            me=view.me,
            may=view.may,
            may_platform=view.may_platform,
            home=view.home(),
            leads=view.leads,
            link=view.link,
            way=view.way,
            t=view.words,
            say=lambda said: saying.sentence(view.words, said),
            look=view.look,
            here=self._here(view) + (f"?{urlencode(query)}" if query else ""),
            menu=self.menu(view),
            said=said if view.words.has(said) else "",
            moment=lambda at_ns: figures.moment(at_ns, zone),
            clock=lambda at_ns: figures.clock(at_ns, zone),
            day=lambda at_ns: figures.day(at_ns, zone),
            **values,
        )

    def _here(self, view: View) -> str:
        """Where the reader is, for links back: of what a form was answered, the page that has the form."""
        return view.address if view.page.show is not None else quote(self.links.above(view.request.scope["path"]))

    def menu(self, view: View) -> dict[str, list[Page]]:
        """The pages that are for the reader, by group."""
        groups: dict[str, list[Page]] = {}
        for page in self.pages:
            if page.group is not None and view.me and view.reads(page):
                groups.setdefault(page.group, []).append(page)
        return groups

    def _served(self, page: Page, answer: Show) -> Serve:
        """The same where the reader is known, and what the API refuses is said on a page."""

        async def serve(request: Request) -> Response:
            view = View(self, request, page, self.look(request), None)
            try:
                return await self._answered(view, answer)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            except RefusedError as error:
                if error.status == UNAUTHORIZED and _logs_in(view):
                    query = request.url.query
                    return view.go("/login?" + urlencode({"next": view.address + (f"?{query}" if query else "")}))
                return await self._refused(view, error)
            except BusyError:
                return PlainTextResponse(BUSY, UNAVAILABLE, {**HEADERS, "retry-after": str(RETRY_S)})
            except Exception:
                log.exception("the page %s failed", request.url.path)
                said = "the console failed at this; the product's log says why"
                return await self._refused(view, RefusedError(500, said))

        return serve

    async def _answered(self, view: View, answer: Show) -> Response:
        if not view.page.open:
            view.me = await view.get("/admin/v1/me", wire.Me)
        if view.page.shared and view.refreshes:
            return await self.shared.get(_alike(view), SHOWN_S, lambda: self._drawn(view, answer))
        return await self._drawn(view, answer)

    async def _drawn(self, view: View, answer: Show) -> Response:
        """The page, worked out in its turn; what a form asks for may take long, and takes none."""
        async with self._turns.turn() if view.request.method != "POST" else nullcontext():
            return await self._pen.draw(await answer(view))

    async def _refused(self, view: View, error: RefusedError) -> Response:
        """The page that says why, drawn in its turn as any other; in bare words where too many wait for theirs."""
        try:
            async with self._turns.turn():
                return await self._pen.draw(view.render("refused.html", code=error.status, problem=error.problem))
        except BusyError:
            return PlainTextResponse(f"{error}\n", error.status, HEADERS)

    def look(self, request: Request) -> Look:
        """As the reader's cookies say, else their browser; the zone is UTC until the browser has said its own."""
        language = chosen(request.cookies.get(COOKIE, ""), request.headers.get("accept-language", ""))
        zone = _zone(request.cookies.get(ZONE, ""))
        return Look(
            words=self.words[language],
            zone=zone or ZoneInfo("UTC"),
            zone_known=zone is not None,
            theme=theme(request.cookies.get(THEME, "")),
        )


def _compiled() -> jinja2.BytecodeCache | None:
    """Compiled templates are kept where Python keeps its own, if it may: the first page is there sooner."""
    folder = Path(__file__).parent / "__pycache__"
    if sys.dont_write_bytecode:
        return None
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
    return jinja2.FileSystemBytecodeCache(str(folder)) if os.access(folder, os.W_OK) else None


def _is_tenant(name: str) -> bool:
    """Bills call the platform and groups by names that no tenant has (`core.statement.label`)."""
    return name != PLATFORM and ":" not in name


def _zone(name: str) -> ZoneInfo | None:
    """The time zone of this name, where there is one."""
    try:
        return ZoneInfo(name) if _ZONE.fullmatch(name) else None
    except (KeyError, ValueError, OSError):
        return None


async def _nothing_here(view: View) -> Response:
    raise RefusedError(NOT_FOUND, f"there is nothing at {view.request.url.path!r}")


LOST: Final = Page("/{path:path}", "frame", _nothing_here)


def _logs_in(view: View) -> bool:
    """Whether it is somebody with a browser who opens a page and has shown nothing: the log-in form is next."""
    headers = view.request.headers
    shown = "authorization" in headers or "hx-request" in headers or view.request.method != "GET"
    return not shown and "text/html" in headers.get("accept", "")


def _of_form(act: Act) -> Show:
    async def answer(view: View) -> Response:
        return await act(view, await _form(view.request))

    return answer


def _alike(view: View) -> bytes:
    """What a refresh follows from: the page, how it is read, and what the reader may see."""
    look, url = view.look, view.request.url
    return msgspec.json.encode(
        (url.path, url.query, look.words.language, look.zone.key, look.zone_known, view.me.may if view.me else ())
    )


async def together(*questions: Awaitable[Any]) -> list[Any]:
    """The answers of several questions, asked at the same time."""
    return await asyncio.gather(*questions)


async def _form(request: Request) -> Form:
    """The fields of a form, if it is one of ours. Raises RefusedError."""
    if not browsers.is_own_page(headers_of(request)):
        said = "this form was not sent by a page of this host; open the page and try again"
        raise RefusedError(403, said, code="foreign_page")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise RefusedError(413, f"the form is longer than {FORM_BYTES_MAX} bytes; send less, or use the command")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise RefusedError(400, "the form cannot be read; open the page and try again") from None
    return Form(dict(pairs), tuple(pairs))
