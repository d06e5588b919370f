"""The desk: the one owner of the core. It hands the machine events and performs its effects, in order.

The relay submits a request with a `Waiter` and is called back when it is dispatched or refused.
"""

from typing import Protocol

from commonpool.core import effects
from commonpool.core.events import Ended
from commonpool.core.model import Request
from commonpool.engines.base import Target


class Waiter(Protocol):
    """The relay's side of one request. Called on the event loop, possibly before `Desk.submit` returns."""

    def dispatched(self, target: Target, attempt: int, wait_ns: int) -> None:
        """Send the request to this replica now; report its end with `Desk.ended`, once, whatever happens."""

    def refused(self, refusal: effects.Refuse) -> None:
        """Answer with this error; nothing was taken."""

    def failed(self) -> None:
        """No attempt is left: answer with the error of the last attempt."""


class Desk(Protocol):
    """What the relay needs of the owner of the core."""

    def submit(self, request: Request, waiter: Waiter) -> None:
        """A new request: exactly one of the waiter's methods follows, now or later, unless it is cancelled first."""

    def cancel(self, request_id: str) -> None:
        """The client of a request that still waits went away. The waiter hears nothing more."""

    def ended(self, event: Ended) -> None:
        """An attempt ended. Its record is durable when this returns, so the answer's last byte may be sent then.

        With `event.retry`, `Waiter.dispatched` (another attempt) or `Waiter.failed` follows.
        """
