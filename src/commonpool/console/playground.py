"""The playground: one request as an app, with a key that the reader brings.

The key goes with the request and is kept nowhere: not here, not in the page's address, not in a log. It is asked first
whose it is, from the reader's own address, so that a key which may come from some networks alone is good for nobody
else here either. What is sent is charged to its app like anything else (docs/adr/0029-the-playground-relays.md).
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final

import httpx
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from commonpool.access.callers import APP
from commonpool.access.permissions import Permission
from commonpool.api.wire.people import Me
from commonpool.api.wire.status import Status
from commonpool.console import asks
from commonpool.console.asking import RefusedError, ask
from commonpool.console.frame import HEADERS, Form, Page, View

AT_ONCE_MAX: Final = 16
TOKENS: Final = 256
TOKENS_MAX: Final = 4096
PROMPT_CHARS_MAX: Final = 100_000
FIRST_S: Final = 600.0  # a request may wait in the queue for as long as its promise says
TOLD: Final = ("x-request-id", "retry-after", "x-commonpool-wait")  # headers of the answer that go on
CONNECT_S: Final = 5.0


class Playground:
    """The page, and the requests that are open from it."""

    def __init__(self) -> None:
        self._open = 0
        self._client: httpx.AsyncClient | None = None

    async def show(self, view: View) -> Response:
        status = await view.get("/admin/v1/status", Status)
        return view.render(
            "playground.html",
            models=[(model.name, model.name) for model in status.models],
            gateway=status.gateway,
            tokens_max=TOKENS_MAX,
        )

    async def send(self, view: View, form: Form) -> Response:
        """Pass one request on, and what the gateway answers back as it comes: events, or an error as JSON."""
        try:
            gateway, body = await self._checked(view, form)
        except RefusedError as error:
            return JSONResponse({"error": {"message": str(error)}}, error.status, HEADERS)
        headers = {"authorization": f"Bearer {form.get('key')}", "content-type": "application/json"}
        client, answer = self._own_client(), None
        request = client.build_request("POST", f"{gateway}/v1/chat/completions", content=body, headers=headers)
        self._open += 1
        try:
            answer = await _begun(client.send(request, stream=True), view.request)
        except httpx.HTTPError as error:
            message = f"the gateway at {gateway} cannot be reached: {type(error).__name__}"
            return JSONResponse({"error": {"message": message}}, 502, HEADERS)
        finally:
            if answer is None:
                self._open -= 1
        told = {name: answer.headers[name] for name in TOLD if name in answer.headers}
        media = answer.headers.get("content-type", "application/json")
        return StreamingResponse(self._passed(answer), answer.status_code, {**HEADERS, **told}, media)

    async def _checked(self, view: View, form: Form) -> tuple[str, bytes]:
        """Where the gateway is, and the body to send there. Raises RefusedError."""
        key, prompt = form.get("key"), form.get("prompt")
        if not key or not prompt:
            raise RefusedError(400, "a request needs a key and a prompt")
        if len(prompt) > PROMPT_CHARS_MAX:
            raise RefusedError(400, f"the prompt has {len(prompt)} characters; at most {PROMPT_CHARS_MAX} go from here")
        tokens = asks.number(form, "max_tokens", TOKENS)
        if not 0 < tokens <= TOKENS_MAX:
            raise RefusedError(400, f"max_tokens is {tokens}; it is a number from 1 to {TOKENS_MAX}")
        whose = await ask(view.request, "GET", "/admin/v1/me", Me, key=key)
        if [held.role for held in whose.roles] != [APP]:
            raise RefusedError(403, "this key is not the key of an app; make a data key on the page of keys")
        status = await view.get("/admin/v1/status", Status)
        if self._open >= AT_ONCE_MAX:
            raise RefusedError(429, f"{AT_ONCE_MAX} requests are open from the playground; wait until one has ended")
        tier = {"service_tier": form.get("tier")} if form.get("tier") else {}
        body = {
            **tier,
            "model": form.get("model"),
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return status.gateway, msgspec.json.encode(body)

    async def _passed(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        try:
            async for chunk in answer.aiter_raw():
                yield chunk
        finally:
            self._open -= 1
            await answer.aclose()

    def _own_client(self) -> httpx.AsyncClient:
        """Made when it is first used, since reading the system's certificates takes a while."""
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=httpx.Timeout(FIRST_S, connect=CONNECT_S), trust_env=False)
        return self._client


async def _begun(sending: Coroutine[Any, Any, httpx.Response], visit: Request) -> httpx.Response:
    """What the gateway begins to answer. Raises ClientDisconnect where the reader leaves before: nobody waits then."""
    sent, left = asyncio.ensure_future(sending), asyncio.ensure_future(_left(visit))
    both: set[asyncio.Future[Any]] = {sent, left}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not sent.done():
            raise ClientDisconnect
        return sent.result()
    finally:
        for each in both:
            each.cancel()
        await asyncio.gather(*both, return_exceptions=True)


async def _left(visit: Request) -> None:
    while (await visit.receive())["type"] != "http.disconnect":
        pass


def pages() -> tuple[Page, ...]:
    playground = Playground()
    return (
        Page(
            "/playground",
            "playground",
            playground.show,
            playground.send,
            needs=(Permission.READ_STATUS,),
            group="work",
            key="y",
        ),
    )
