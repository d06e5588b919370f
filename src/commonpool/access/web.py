"""Calls to others, such as the issuer: small answers, within seconds, from where the product may connect to alone."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import TypeVar

import httpx
import msgspec

from commonpool.access.problems import AwayError
from commonpool.config import outgoing

CALL_S = 5.0
ANSWER_BYTES_MAX = 1024 * 1024
PORTS = {"http": 80, "https": 443}

T = TypeVar("T")


class Web:
    """An HTTP client that is made when it is first used: reading the certificates of the system takes a while.

    `destinations` are those of `config.outgoing`. `trusted` are certificates that count instead of the system's.
    """

    def __init__(
        self,
        destinations: tuple[str, ...] | None = None,
        *,
        call_s: float = CALL_S,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        self._destinations = destinations
        self._call_s = call_s
        self._trusted = trusted
        self._client: httpx.AsyncClient | None = None
        self._making = asyncio.Lock()

    async def call(
        self,
        method: str,
        url: str,
        answer: type[T],
        *,
        form: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, T]:
        """The status, and the answer as what it should be. Redirects are not followed. Raises AwayError."""
        sent = {"accept": "application/json", **(headers or {})}
        if form is not None:
            sent["content-type"] = "application/x-www-form-urlencoded"
        status, content = await self._exchange(method, url, None if form is None else form.encode(), sent)
        try:
            return status, msgspec.json.decode(content, type=answer)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise AwayError(f"{httpx.URL(url).host} answers {status} and not as an issuer does") from None

    async def send(self, url: str, content: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Post this: the status, and what is answered. Redirects are not followed. Raises AwayError."""
        return await self._exchange("POST", url, content, headers)

    async def _exchange(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        where = httpx.URL(url).host
        sent = {"accept-encoding": "identity", **headers}
        client = await self._made()
        try:
            async with (
                asyncio.timeout(self._call_s),
                client.stream(method, url, content=content, headers=sent) as response,
            ):
                answered = bytearray()
                async for chunk in response.aiter_raw():
                    answered += chunk
                    if len(answered) > ANSWER_BYTES_MAX:
                        raise AwayError(f"{where} answers with more than {ANSWER_BYTES_MAX} bytes")
                return response.status_code, bytes(answered)
        except TimeoutError:
            raise AwayError(f"{where} does not answer within {self._call_s:g} s") from None
        except outgoing.OutgoingError as error:
            raise AwayError(str(error).removesuffix(".")) from None
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise AwayError(f"{where} cannot be reached ({type(error).__name__})") from None

    async def close(self) -> None:
        """Close what is open."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _made(self) -> httpx.AsyncClient:
        async with self._making:
            if self._client is None:
                trusted = self._trusted
                if trusted is None:
                    trusted = await asyncio.to_thread(ssl.create_default_context)
                transport = _Judged(self._destinations, trusted)
                self._client = httpx.AsyncClient(transport=transport, timeout=self._call_s, trust_env=False)
            return self._client


class _Judged(httpx.AsyncBaseTransport):
    """Connects to addresses of a host that may be connected to, one after the other until one answers.

    TLS is with the host's name, whatever address it has. No connection is kept: one that was made for a name could be
    taken for another one at the same address.
    """

    def __init__(self, destinations: tuple[str, ...] | None, trusted: ssl.SSLContext) -> None:
        self._destinations = destinations
        self._inner = httpx.AsyncHTTPTransport(verify=trusted, limits=httpx.Limits(max_keepalive_connections=0))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport`. Raises OSError, too."""
        url = request.url
        found = await outgoing.addresses(url.host, url.port or PORTS[url.scheme], self._destinations)
        request.extensions = {**request.extensions, "sni_hostname": url.host}
        for at, address in enumerate(found, 1):
            request.url = url.copy_with(host=address)
            try:
                return await self._inner.handle_async_request(request)
            except httpx.ConnectError:
                if at == len(found):
                    raise
        raise OSError(f"{url.host} has no address")

    async def aclose(self) -> None:
        """Close what is open."""
        await self._inner.aclose()
