"""The closed form of a replica against an engine that works step by step, token by token."""

import random
from typing import NamedTuple

from commonpool.simulator.cluster import Speed
from commonpool.simulator.replicas import Batch, Served

SPEED = Speed(prefill_token_ns=7, step_ns=100, step_sequence_ns=10, load_ns=0)


class Task(NamedTuple):
    at: int
    tokens_in: int
    tokens_out: int
    sequences: int = 1
    leaves_at: int = -1


class Seen(NamedTuple):
    first_token_at: int
    ended_at: int  # -1: it left
    tokens: int


def by_steps(tasks: list[Task]) -> list[Seen]:
    """The slow model. At the end of a step read the prompts that have come, in order; then make the next step."""
    seen: dict[int, Seen] = {}
    waiting = list(enumerate(tasks))
    running: dict[int, int] = {}  # which: tokens so far
    first: dict[int, int] = {}
    now = 0
    while waiting or running:
        if not running:
            now = max(now, waiting[0][1].at)
        while waiting and waiting[0][1].at <= now:
            which, task = waiting.pop(0)
            now += task.tokens_in * SPEED.prefill_token_ns
            first[which] = now
            running[which] = 1
            if task.leaves_at >= 0 and task.leaves_at < now:
                seen[which] = Seen(now, -1, 0)
                del running[which]
            elif task.tokens_out == 1:
                seen[which] = Seen(now, now, 1)
                del running[which]
        running = {
            which: tokens
            for which, tokens in running.items()
            if not _left(which, tasks[which], tokens, now, first, seen)
        }
        if not running:
            continue
        end = now + SPEED.step_ns + SPEED.step_sequence_ns * sum(tasks[which].sequences for which in running)
        for which, tokens in list(running.items()):
            if now < tasks[which].leaves_at < end:
                seen[which] = Seen(first[which], -1, tokens)
                del running[which]
            elif tokens + 1 == tasks[which].tokens_out:
                seen[which] = Seen(first[which], end, tokens + 1)
                del running[which]
            else:
                running[which] = tokens + 1
        now = end
    return [seen[which] for which in range(len(tasks))]


def _left(which: int, task: Task, tokens: int, now: int, first: dict[int, int], seen: dict[int, Seen]) -> bool:
    if not 0 <= task.leaves_at <= now:
        return False
    seen[which] = Seen(first[which], -1, tokens)
    return True


def in_closed_form(tasks: list[Task]) -> list[Seen]:
    """The model under test, driven as the simulation does: told what happens, and woken at each end it names."""
    batch = Batch(SPEED)
    served = [Served(task.tokens_in, task.tokens_out, task.sequences) for task in tasks]
    seen: dict[int, Seen] = {}

    def report(now: int) -> None:
        for done in batch.ended(now):
            which = next(n for n, one in enumerate(served) if one is done)
            seen[which] = Seen(done.first_token_at, now, done.tokens_out)

    changes = [(task.at, 1, which) for which, task in enumerate(tasks)]
    changes += [(task.leaves_at, 0, which) for which, task in enumerate(tasks) if task.leaves_at >= 0]
    for at, joins, which in sorted(changes):
        while 0 <= batch.next_end() <= at:
            report(batch.next_end())
        if joins:
            batch.join(served[which], at)
        elif which not in seen:
            tokens = batch.leave(served[which], at)
            seen[which] = Seen(served[which].first_token_at, -1, tokens)
    while batch.next_end() >= 0:
        report(batch.next_end())
    return [seen[which] for which in range(len(tasks))]


def test_it_is_the_engine_step_by_step() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        at = 0
        tasks = []
        for _ in range(chance.randint(1, 30)):
            at += chance.choice((0, 1, 50, 110, 400, 3000))
            tasks.append(Task(at, chance.randint(0, 60), chance.randint(1, 40), chance.choice((1, 1, 1, 3))))
        assert in_closed_form(tasks) == by_steps(tasks), f"seed {seed}"


def test_one_that_leaves_has_produced_what_it_had_step_by_step() -> None:
    """Its prompt and its last step still take their time in the closed form; so it alone is compared."""
    for seed in range(300):
        chance = random.Random(seed)
        tasks = [Task(chance.randint(0, 900), chance.randint(0, 60), chance.randint(1, 40)) for _ in range(8)]
        tasks.sort()
        which = chance.randrange(len(tasks))
        tasks[which] = tasks[which]._replace(leaves_at=tasks[which].at + chance.randint(1, 4000))
        assert in_closed_form(tasks)[which] == by_steps(tasks)[which], f"seed {seed}"


def test_after_one_left_the_others_go_on_faster() -> None:
    batch = Batch(SPEED)
    stays, leaves = Served(0, 11, 1), Served(0, 100, 4)
    batch.join(stays, 0)
    batch.join(leaves, 0)
    assert batch.next_end() == 10 * 150
    assert batch.leave(leaves, 160) == 2
    assert batch.next_end() == 300 + 8 * 110


def test_a_lost_replica_has_nothing_left_and_starts_anew() -> None:
    batch = Batch(SPEED)
    one, other = Served(10, 5, 1), Served(0, 3, 1)
    batch.join(one, 0)
    batch.join(other, 0)
    assert batch.clear() == [other, one]
    assert batch.next_end() == -1
    batch.join(one, 1000)
    assert (one.first_token_at, batch.next_end()) == (1070, 1070 + 4 * 110)


def test_an_embedding_ends_when_its_prompt_is_read() -> None:
    batch = Batch(SPEED)
    served = Served(10, 0, 1)
    batch.join(served, 0)
    assert batch.next_end() == 70
    assert batch.ended(70) == [served]
