"""Takes a letter to its channel: to where the product may connect to, with the secrets as they are at that moment."""

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from commonpool.access.problems import AwayError
from commonpool.access.web import Web
from commonpool.config import outgoing
from commonpool.config.secrets import SecretMissingError, secret
from commonpool.config.structs import Channel, Mail
from commonpool.control.alerting import mail as mails
from commonpool.control.alerting.formats import Moment, post_of, refused
from commonpool.control.alerting.letters import Letter

SEND_S: Final = 60.0  # a whole attempt: an e-mail takes several round trips


class UndeliveredError(Exception):
    """A channel was not told: why, without a full stop. No secret is in it."""


class Courier(Protocol):
    """What takes letters to channels."""

    async def deliver(self, channel: Channel, letter: Letter, moment: Moment) -> None:
        """Returns when the receiver has taken it. Raises UndeliveredError."""

    async def close(self) -> None:
        """Close what is open."""


class Outside:
    """The courier of the product. `destinations` are those of `config.outgoing`.

    `trusted` are certificates that count instead of the system's.
    """

    def __init__(
        self,
        destinations: tuple[str, ...] | None,
        *,
        environment: Mapping[str, str] = os.environ,
        trusted: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._destinations = destinations
        self._environment = environment
        self._trusted = trusted
        self._web: Web | None = None

    async def deliver(self, channel: Channel, letter: Letter, moment: Moment) -> None:
        """See `Courier.deliver`."""
        try:
            async with asyncio.timeout(SEND_S):
                if channel.mail is not None:
                    await self._mail(channel, channel.mail, letter, moment)
                else:
                    await self._post(channel, letter, moment)
        except TimeoutError:
            raise UndeliveredError(f"it takes longer than {SEND_S:g} s") from None
        except SecretMissingError as error:
            raise UndeliveredError(str(error).removesuffix(".")) from None

    async def close(self) -> None:
        """See `Courier.close`."""
        if self._web is not None:
            await self._web.close()

    async def _post(self, channel: Channel, letter: Letter, moment: Moment) -> None:
        at = f"alerts.channels.{channel.name}"
        url = channel.url or ""
        if url.startswith(("env:", "file:")):
            url = await self._secret(f"{at}.url", url)
        key = None if channel.secret is None else await self._secret(f"{at}.secret", channel.secret)
        post = post_of(channel.kind, letter, key, moment)
        if post.query:
            url += ("&" if "?" in url else "?") + post.query
        if self._web is None:
            self._web = Web(self._destinations, trusted=await asyncio.to_thread(self._trusted))
        try:
            headers = {"content-type": "application/json; charset=utf-8", **post.headers}
            status, answer = await self._web.send(url, post.content, headers)
        except AwayError as error:
            raise UndeliveredError(str(error)) from None
        if why := refused(channel.kind, status, answer):
            raise UndeliveredError(why)

    async def _mail(self, channel: Channel, mail: Mail, letter: Letter, moment: Moment) -> None:
        at = f"alerts.channels.{channel.name}"
        password = None if mail.password is None else await self._secret(f"{at}.password", mail.password)
        message = mails.message_of(letter, mail, moment)
        try:
            found = await outgoing.addresses(mail.server.host, mail.server.port, self._destinations)
        except OSError as error:
            said = (
                str(error).removesuffix(".") if isinstance(error, outgoing.OutgoingError) else "its name is not known"
            )
            raise UndeliveredError(f"{mail.server.host} cannot be reached: {said}") from None
        try:
            trusted = await asyncio.to_thread(self._trusted)
            await asyncio.to_thread(mails.send, message, mail, password, found, trusted)
        except mails.MailError as error:
            raise UndeliveredError(str(error)) from None

    async def _secret(self, key: str, where: str) -> str:
        return await asyncio.to_thread(secret, key, where, self._environment)
