"""The desk and prompt caches: what it says of each attempt, and what it holds until others have landed."""

from pathlib import Path

import pytest

from commonpool.core.effects import Refuse
from commonpool.core.events import Ended
from commonpool.core.machine import Machine
from commonpool.core.model import Endpoint, Outcome, Replica, Request, Usage, UsageRecord, Wait
from commonpool.engines.base import Target
from commonpool.engines.registry import EMBEDDED
from commonpool.gateway.caches import Part
from commonpool.gateway.desk import CoreDesk
from commonpool.store.journal import Journal
from tests.core.worlds import CONTEXT, policy, tenant


class Client:
    def __init__(self, name: str, tenant_name: str, endpoint: Endpoint, heard: list[str]) -> None:
        self.request = Request(name, tenant_name, "app", "m", "interactive", endpoint, 10, 10)
        self.heard = heard

    def dispatched(self, target: Target, attempt: int, wait_ns: int, waits: tuple[Wait, ...], part: Part) -> None:
        assert (wait_ns, waits) == (0, ())
        told = " ".join(f"{name}={value.decode()}" for name, value in sorted(part.fields.items()))
        self.heard.append(f"{self.request.id}#{attempt} to {target.replica_id} {told}")

    def refused(self, refusal: Refuse) -> None:
        raise AssertionError(refusal)

    @property
    def first_token_at(self) -> int:
        return 0

    def recalled(self) -> None:
        raise AssertionError(self.request.id)

    def failed(self) -> None:
        self.heard.append(f"{self.request.id} failed")


class Room:
    def __init__(self, folder: Path) -> None:
        self.heard: list[str] = []
        self.seen: list[UsageRecord] = []
        both = policy(tenant("a", 2000, elastic_cap=4000), tenant("b", 2000, elastic_cap=4000), milli_gpu=4000)
        self.desk = CoreDesk(Machine(both), lambda: 0, Journal(folder), self.seen.append)

    def ready(self, name: str, *, engine: str | None = None) -> None:
        target = Target(name, "127.0.0.1", 1, EMBEDDED, "m")
        self.desk.replica_ready(Replica(name, "m", 2000, 4, 4 * CONTEXT), target, engine)

    def submit(self, name: str, tenant_name: str = "a", endpoint: Endpoint = "chat") -> None:
        self.desk.submit(
            Request(name, tenant_name, "app", "m", "interactive", endpoint, 10, 10),
            Client(name, tenant_name, endpoint, self.heard),
        )

    def end(self, name: str, outcome: Outcome = Outcome.COMPLETED, *, retry: bool = False) -> None:
        self.desk.ended(Ended(name, 1, outcome, Usage(1, 0, 1), retry=retry))

    def run(self, name: str, tenant_name: str = "a") -> None:
        self.submit(name, tenant_name)
        self.desk.landed(name, 1, ran=True)
        self.end(name)

    def news(self) -> list[str]:
        heard, self.heard[:] = list(self.heard), []
        return heard


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_each_attempt_is_told_its_slot_and_whether_it_may_use_what_is_there(room: Room) -> None:
    room.ready("m-0.1")
    room.run("1")
    room.run("2")
    room.run("3", "b")
    assert room.news() == [
        "1#1 to m-0.1 cache_prompt=false id_slot=0",
        "2#1 to m-0.1 cache_prompt=true id_slot=0",
        "3#1 to m-0.1 cache_prompt=false id_slot=1",
    ]


def test_a_replica_of_an_earlier_process_uses_nothing(room: Room) -> None:
    room.ready("m-0.1", engine="started with")
    room.run("1")
    room.run("2")
    assert room.news() == ["1#1 to m-0.1 cache_prompt=false", "2#1 to m-0.1 cache_prompt=false"]


def test_one_that_the_engine_places_is_sent_when_the_others_have_landed(room: Room) -> None:
    room.ready("m-0.1")
    room.run("1")
    room.submit("2")
    room.news()
    room.submit("e", "b", "embeddings")
    assert room.news() == []
    room.desk.landed("2", 1, ran=True)
    assert room.news() == ["e#1 to m-0.1 cache_prompt=false"]


def test_the_end_of_another_sends_it_too(room: Room) -> None:
    room.ready("m-0.1")
    room.run("1")
    room.submit("2")
    room.submit("e", "b", "embeddings")
    room.news()
    room.end("2", Outcome.CANCELLED)
    assert room.news() == ["e#1 to m-0.1 cache_prompt=false"]


def test_a_client_that_leaves_what_is_held_gives_its_place_back(room: Room) -> None:
    room.ready("m-0.1")
    room.run("1")
    room.submit("2")
    room.submit("e", "b", "embeddings")
    room.news()
    room.desk.cancel("e")
    room.desk.landed("2", 1, ran=True)
    room.end("2")
    assert room.news() == []
    assert [(record.request_id, record.outcome) for record in room.seen[1:]] == [
        ("e", Outcome.CANCELLED),
        ("2", Outcome.COMPLETED),
    ]
    assert room.desk.open_requests == 0


def test_what_is_held_for_a_replica_that_is_lost_runs_on_the_next_one(room: Room) -> None:
    room.ready("m-0.1")
    room.run("1")
    room.submit("2")
    room.submit("e", "b", "embeddings")
    room.news()
    room.desk.replica_lost("m-0.1", "It broke.")
    room.end("2", Outcome.FAILED, retry=True)
    room.ready("m-0.2")
    room.desk.tick()
    assert sorted(room.news()) == [
        "2#2 to m-0.2 cache_prompt=false id_slot=0",
        "e#2 to m-0.2 cache_prompt=false",
    ]
