"""Flows, what waits in them, and a room with places: what the tests of queueing and of the line share."""

from commonpool.core.entries import Entry, Spot
from commonpool.core.model import Request
from commonpool.core.queueing import Account, Flow, Room
from commonpool.core.quota import Node


def entry(flow: Flow, seq: int, priority: int, deadline: int, urgent_at: int) -> Entry:
    made = Entry(Request(f"r{seq}", flow.tenant, "app", "m", "t", "chat", 1), seq, 0)
    made.flow, made.node, made.ask = flow, flow.node, 1
    made.priority, made.deadline, made.ahead = priority, deadline, deadline - urgent_at
    return made


class Where(Room):
    """A room that has a place for everybody, or for one tenant alone."""

    def __init__(self, only: str = "") -> None:
        super().__init__("m")
        self.only = only
        self.pace.learn(1)  # a nanosecond for a token of service, and no deviation yet

    def fit(self, entry: Entry, now: int) -> Spot | None:  # noqa: ARG002 - time does not matter there
        return None if self.only not in {"", entry.flow.tenant} else Spot()


def flow(name: str, *, use: int = 0, guaranteed: int = 0, weight: int = 1) -> Flow:
    node = Node(name, "main")
    node.use, node.guaranteed = use, guaranteed
    return Flow(name, Account(name), node, weight, Where())
