"""Who may use what of an engine's prompt cache: the rules, and a law over every order that an engine may have."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from commonpool.core.effects import Dispatch
from commonpool.core.model import Replica, Request
from commonpool.engines.base import Target
from commonpool.engines.registry import EMBEDDED, LLAMACPP, OPENAI, SGLANG, VLLM
from commonpool.gateway.caches import Caches, HeldError, Part

SLOTS = 3
REPLICA = Replica("m-0.1", "m", 1000, SLOTS, 4096)


def target(adapter: Any = EMBEDDED, replica_id: str = "m-0.1") -> Target:
    return Target(replica_id, "127.0.0.1", 1, adapter, "m")


class Asked:
    """One cache keeper before one replica, asked in the words of a transcript."""

    def __init__(self, adapter: Any = EMBEDDED, *, ours: bool = True, key: bytes | None = b"k" * 32) -> None:
        self.caches = Caches(key)
        self.target = target(adapter)
        self.caches.replica_ready(REPLICA, self.target, ours=ours)
        self.requests: dict[str, Request] = {}

    def send(self, name: str, tenant: str = "a", *, endpoint: Any = "chat", sequences: int = 1) -> Part:
        request = Request(name, tenant, "app", "m", "interactive", endpoint, 10, 10, sequences)
        self.requests[name] = request
        return self.part(Dispatch(name, 1, "m-0.1", 0, ()))

    def part(self, effect: Dispatch) -> Part:
        return self.caches.part(self.requests[effect.request_id], effect, self.target)

    def run(self, name: str, tenant: str = "a", **more: Any) -> Part:
        part = self.send(name, tenant, **more)
        assert self.land(name) == []
        assert self.end(name) == []
        return part

    def land(self, name: str, *, ran: bool = True) -> list[str]:
        return [effect.request_id for effect in self.caches.landed(name, 1, ran=ran)]

    def end(self, name: str) -> list[str]:
        return [effect.request_id for effect in self.caches.ended(name, 1)]


def in_slot(slot: int, *, uses: bool) -> Part:
    return Part({"id_slot": b"%d" % slot, "cache_prompt": b"true" if uses else b"false"}, "head")


LOOSE = Part({"cache_prompt": b"false"}, "whole")


# -- salts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", [VLLM, SGLANG], ids=lambda each: each.name)
def test_a_tenant_has_one_salt_of_32_hexadecimal_digits_and_no_other_has_it(adapter: Any) -> None:
    asked = Asked(adapter)
    salts = {}
    for tenant in ("a", "b", "ab", "a\0"):
        part = asked.send(f"1-{tenant}", tenant)
        assert part == asked.send(f"2-{tenant}", tenant, endpoint="embeddings", sequences=5)
        assert list(part.fields) == ["cache_salt"]
        salts[tenant] = part.fields["cache_salt"].decode()
    assert len(set(salts.values())) == len(salts)
    assert all(len(salt) == 34 and set(salt[1:-1]) <= set("0123456789abcdef") for salt in salts.values())


def test_a_salt_survives_a_restart_with_its_key_and_nothing_else() -> None:
    def salt(key: bytes | None) -> bytes:
        return Asked(VLLM, key=key).send("r").fields["cache_salt"]

    assert salt(b"1" * 32) == salt(b"1" * 32) != salt(b"2" * 32)
    assert salt(None) != salt(None)


def test_an_engine_that_others_may_reach_too_uses_nothing() -> None:
    assert Asked(LLAMACPP).send("r") == Part({"cache_prompt": b"false"})
    assert Asked(OPENAI).send("r") == Part({})


# -- slots -------------------------------------------------------------------------------------------------------------


def test_a_tenant_uses_what_its_own_left_and_another_does_not() -> None:
    asked = Asked()
    assert asked.run("1") == in_slot(0, uses=False)  # nobody knows what is in a slot at first
    assert asked.run("2") == in_slot(0, uses=True)
    assert asked.run("3", "b") == in_slot(1, uses=False)
    assert asked.run("4") == in_slot(0, uses=True)
    assert asked.run("5", "b") == in_slot(1, uses=True)


def test_a_slot_that_goes_to_another_tenant_is_that_ones_from_then_on() -> None:
    asked = Asked()
    for tenant in ("a", "b", "c"):
        asked.run(tenant, tenant)
    assert asked.run("d", "d") == in_slot(0, uses=False)  # the one used longest ago
    assert asked.run("a2", "a") == in_slot(1, uses=False)
    assert asked.run("d2", "d") == in_slot(0, uses=True)


def test_each_running_attempt_has_a_slot_of_its_own() -> None:
    asked = Asked()
    asked.run("0")
    parts = [asked.send(name) for name in ("1", "2", "3")]
    assert parts == [in_slot(0, uses=True), in_slot(1, uses=False), in_slot(2, uses=False)]


def test_one_that_was_refused_leaves_its_slot_to_nobody() -> None:
    asked = Asked()
    asked.run("1")
    for name in ("2", "3"):  # of b: the two other slots
        asked.send(name, "b")
        asked.land(name, ran=False)
    held = asked.send("4", "b")
    assert held == in_slot(0, uses=False)
    asked.land("4", ran=False)  # a 400 of the engine: what a left is there still
    for name in ("2", "3", "4"):
        asked.end(name)
    assert [asked.send(name, "b") for name in ("5", "6", "7")] == [in_slot(n, uses=False) for n in (1, 2, 0)]


def test_one_that_was_refused_takes_nothing_from_its_own_tenant() -> None:
    asked = Asked()
    asked.run("1")
    assert asked.send("2") == in_slot(0, uses=True)
    asked.land("2", ran=False)
    asked.end("2")
    assert asked.run("3") == in_slot(0, uses=True)


def test_what_was_given_up_before_it_landed_leaves_a_doubt_until_it_has() -> None:
    asked = Asked()
    asked.caches.replica_ready(Replica("m-0.1", "m", 1000, 1, 4096), asked.target, ours=True)
    asked.send("lost", "a")
    asked.end("lost")  # its client left at once: it may run at any time
    assert asked.run("1", "b") == in_slot(0, uses=False)
    assert asked.run("2", "b") == in_slot(0, uses=False)  # what "lost" did meanwhile, nobody knows
    asked.send("3", "b")
    assert asked.land("lost", ran=False) == []
    asked.land("3")
    asked.end("3")  # it may have run before "lost" did
    assert asked.run("4", "b") == in_slot(0, uses=False)
    assert asked.run("5", "b") == in_slot(0, uses=True)


def test_a_loose_one_makes_every_slot_unknown_while_it_runs() -> None:
    asked = Asked()
    asked.run("1")
    asked.send("runs")
    asked.land("runs")
    assert asked.send("loose", "b", endpoint="embeddings") == LOOSE
    assert asked.run("2") == in_slot(1, uses=False)
    asked.land("loose")
    asked.end("loose")
    asked.end("runs")  # its end may be heard late: the loose one may have come behind it
    assert asked.run("3") == in_slot(2, uses=False)
    assert asked.run("4") == in_slot(2, uses=True)


@pytest.mark.parametrize("more", [{"endpoint": "embeddings"}, {"sequences": 2}], ids=["embeddings", "sequences"])
def test_a_loose_one_waits_for_those_on_their_way_that_rely_on_their_slot(more: Any) -> None:
    asked = Asked()
    asked.run("1")
    assert asked.send("2") == in_slot(0, uses=True)
    with pytest.raises(HeldError):
        asked.send("loose", "b", **more)
    assert asked.send("3") == in_slot(1, uses=False)  # so that the waiting has an end
    assert asked.land("3") == []
    assert asked.land("2") == ["loose"]
    assert asked.part(Dispatch("loose", 1, "m-0.1", 0, ())) == LOOSE


def test_a_loose_one_waits_for_nobody_whose_client_has_left() -> None:
    asked = Asked()
    asked.run("1")
    asked.send("2")
    with pytest.raises(HeldError):
        asked.send("loose", "b", sequences=2)
    assert asked.end("2") == ["loose"]


def test_what_is_held_for_a_replica_that_is_lost_goes_elsewhere() -> None:
    asked = Asked()
    asked.run("1")
    asked.send("2")
    with pytest.raises(HeldError):
        asked.send("loose", "b", sequences=2)
    assert [effect.request_id for effect in asked.caches.replica_lost("m-0.1")] == ["loose"]
    assert (asked.land("2"), asked.end("2")) == ([], [])


def test_a_replica_that_was_there_before_this_process_uses_nothing() -> None:
    asked = Asked(ours=False)
    for name in ("1", "2"):
        assert asked.run(name) == Part({"cache_prompt": b"false"})


# -- the law -----------------------------------------------------------------------------------------------------------


class Task:
    """What the engine has of an attempt. `late`: it is still on its way to the engine's queue."""

    def __init__(self, name: str, tenant: str, slot: int | None, *, uses: bool, refused: bool) -> None:
        self.name = name
        self.tenant = tenant
        self.slot = slot
        self.uses = uses
        self.refused = refused
        self.wanted = True


class Engine:
    """An engine as it may be: what was sent comes to its queue in any order, and it notices late who has left.

    `used` are those who read what a slot held: the reader, whose that was, and whether anybody waited for the answer.
    """

    def __init__(self) -> None:
        self.coming: list[Task] = []
        self.queue: list[Task] = []
        self.running: dict[int, Task] = {}
        self.content = ["proof"] * SLOTS
        self.used: list[tuple[str, str]] = []

    def launch(self, slot: int, task: Task) -> None:
        if task.uses and task.wanted:
            self.used.append((task.tenant, self.content[slot]))
        if not (task.uses and self.content[slot] == task.tenant):
            self.content[slot] = task.tenant
        self.running[slot] = task


class Story:
    """Random things that happen to the keeper and the engine; what may be seen of the engine is told to the keeper."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.trouble = self.random.choice((0.02, 0.1, 0.3))  # how often something unusual happens
        self.asked = Asked()
        self.engine = Engine()
        self.open: dict[str, Task] = {}  # attempts whose clients wait
        self.unheard: dict[str, list[Callable[[], None]]] = {}  # what the engine said and nobody has read yet, in order
        self.unlanded: dict[str, Task] = {}
        self.waiting: list[str] = []  # held
        self.count = 0

    def act(self) -> None:
        engine = self.engine
        acts: list[Callable[[], None]] = []
        if len(self.open) + len(self.waiting) < SLOTS:
            acts += [self.arrive] * 2
        if engine.coming:
            acts += [self.reach] * 2
        if engine.queue:
            acts += [self.launch] * 2
        if engine.running:
            acts += [self.finish] * 2
        if self.open and self.happens():
            acts.append(self.leave)
        gone = [task for task in (*engine.coming, *engine.queue, *engine.running.values()) if not task.wanted]
        if gone and self.happens():
            acts.append(lambda: self.notice(self.random.choice(gone)))
        if self.unheard:
            acts += [self.hear] * 2
        self.random.choice(acts)()

    def happens(self) -> bool:
        return self.random.random() < self.trouble

    def arrive(self) -> None:
        self.count += 1
        name = str(self.count)
        loose = self.happens()
        try:
            part = self.asked.send(name, self.random.choice("ab"), sequences=2 if loose else 1)
        except HeldError:
            self.waiting.append(name)
            return
        self.sent(name, part)

    def sent(self, name: str, part: Part) -> None:
        slot = int(part.fields["id_slot"]) if "id_slot" in part.fields else None
        uses = part.fields["cache_prompt"] == b"true"
        refused = self.happens()
        task = Task(name, self.asked.requests[name].tenant, slot, uses=uses, refused=refused)
        self.open[name] = self.unlanded[name] = task
        self.engine.coming.append(task)

    def released(self, names: list[str]) -> None:
        for name in names:
            self.waiting.remove(name)
            self.sent(name, self.asked.part(Dispatch(name, 1, "m-0.1", 0, ())))

    def reach(self) -> None:
        """A request comes to the engine's queue, or is refused before."""
        task = self.engine.coming.pop(self.random.randrange(len(self.engine.coming)))
        if task.refused:
            self.say(task, lambda: self.over(task, ran=False))
        else:
            self.engine.queue.append(task)

    def launch(self) -> None:
        """The first in the queue that can run does."""
        engine = self.engine
        for task in engine.queue:
            free = [slot for slot in range(SLOTS) if slot not in engine.running]
            if task.slot is not None:
                free = [slot for slot in free if slot == task.slot]
            if free:
                engine.queue.remove(task)
                engine.launch(self.random.choice(free), task)
                if task.slot is not None:
                    self.say(task, partial(self.begun, task))
                return

    def finish(self) -> None:
        task = self.engine.running.pop(self.random.choice(sorted(self.engine.running)))
        self.say(task, lambda: self.over(task, ran=True))

    def say(self, task: Task, what: Callable[[], None]) -> None:
        self.unheard.setdefault(task.name, []).append(what)

    def hear(self) -> None:
        name = self.random.choice(sorted(self.unheard))
        said = self.unheard[name]
        what = said.pop(0)
        if not said:
            del self.unheard[name]
        what()

    def leave(self) -> None:
        """A client goes away; the engine has not noticed."""
        task = self.open.pop(self.random.choice(sorted(self.open)))
        task.wanted = False
        self.released(self.asked.end(task.name))

    def notice(self, task: Task) -> None:
        engine = self.engine
        for tasks in (engine.coming, engine.queue):
            if task in tasks:
                tasks.remove(task)
        engine.running = {slot: each for slot, each in engine.running.items() if each is not task}
        self.say(task, lambda: self.land(task, ran=False))  # the connection is closed

    def begun(self, task: Task) -> None:
        """Its answer has begun. Of what was left nothing is read but that the connection is closed."""
        if task.wanted:
            self.land(task, ran=True)

    def land(self, task: Task, *, ran: bool) -> None:
        if self.unlanded.pop(task.name, None) is not None:
            self.released(self.asked.land(task.name, ran=ran and task.wanted))

    def over(self, task: Task, *, ran: bool) -> None:
        """The answer is whole."""
        self.land(task, ran=ran)
        if self.open.pop(task.name, None) is not None:
            self.released(self.asked.end(task.name))


def test_nobody_ever_uses_what_another_tenant_left() -> None:
    used = 0
    for seed in range(400):
        story = Story(seed)
        for _ in range(150):
            story.act()
        assert all(reader == left for reader, left in story.engine.used), seed
        used += len(story.engine.used)
    assert used > 2000  # a cache that is off would obey the law, too
