"""What was asked and answered, of tenants that keep it: a copy, handed on at the end of the answer."""

from functools import partial
from typing import Final

from commonpool.core.model import Request
from commonpool.gateway.http import Outlet
from commonpool.gateway.overheard import Heard, Overheard
from commonpool.store.prompts import Listener, PromptHead, Spoken

ASKED_BYTES_MAX: Final = 1024 * 1024
ANSWERED_BYTES_MAX: Final = 1024 * 1024


class Tap:
    """Hears what is asked and answered of `tenants`, and of nobody else, for `listener`."""

    def __init__(self, listener: Listener | None) -> None:
        self.tenants: frozenset[str] = frozenset()
        self._listener = listener

    def on(self, connection: Outlet, request: Request, at_ns: int, asked: bytes) -> Outlet:
        """The connection that the answer to a request is to be written to."""
        if request.tenant not in self.tenants:
            return connection
        head = PromptHead(request.tenant, at_ns, request.id, request.app, request.model, request.endpoint, 0)
        heard = partial(self._heard, head, asked[:ASKED_BYTES_MAX], cut=len(asked) > ASKED_BYTES_MAX)
        return Overheard(connection, heard, ANSWERED_BYTES_MAX)

    def _heard(self, head: PromptHead, asked: bytes, answer: Heard, *, cut: bool) -> None:
        if self._listener is not None:
            self._listener.hear(Spoken(head, asked, answer.raw, cut=cut or answer.cut, gone=answer.gone))
