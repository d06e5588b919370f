"""Calls to the issuer: small JSON answers, within seconds, from where the configuration says and from nowhere else."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import TypeVar

import httpx
import msgspec

from commonpool.access.problems import AwayError

CALL_S = 5.0
ANSWER_BYTES_MAX = 1024 * 1024

T = TypeVar("T")


class Web:
    """An HTTP client that is made when it is first used: reading the certificates of the system takes a while.

    `trusted` are others that count instead of those.
    """

    def __init__(self, *, call_s: float = CALL_S, trusted: ssl.SSLContext | None = None) -> None:
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
        where = httpx.URL(url).host
        sent = {"accept": "application/json", "accept-encoding": "identity", **(headers or {})}
        if form is not None:
            sent["content-type"] = "application/x-www-form-urlencoded"
        client = await self._made()
        try:
            async with (
                asyncio.timeout(self._call_s),
                client.stream(method, url, content=form, headers=sent) as response,
            ):
                content = bytearray()
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > ANSWER_BYTES_MAX:
                        raise AwayError(f"{where} answers with more than {ANSWER_BYTES_MAX} bytes")
                return response.status_code, msgspec.json.decode(content, type=answer)
        except TimeoutError:
            raise AwayError(f"{where} does not answer within {self._call_s:g} s") from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise AwayError(f"{where} cannot be reached ({type(error).__name__})") from None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise AwayError(f"{where} answers {response.status_code} and not as an issuer does") from None

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
                limits = httpx.Limits(max_connections=8, max_keepalive_connections=2)
                self._client = httpx.AsyncClient(verify=trusted, timeout=self._call_s, limits=limits)
            return self._client
