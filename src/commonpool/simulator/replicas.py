"""A replica under continuous batching, in closed form: what happens is worked out when it changes, not token by token.

The engine works in steps; each gives every running sequence one token. A request that comes joins at the end of the
step that runs: then its prompt is read, which yields its first token and holds up all others (chunked prefill spreads
the same work over several steps: nearly the same throughput, a smoother flow of tokens). Prompts that wait are read
first come, first served, before the next step.

The *clock* of a replica counts its steps. A request whose first token came at clock c and whose output is n tokens ends
when the clock shows c + n - 1. Between two changes of the batch every step takes the same time, so the next end follows
from one multiplication, and a change moves no other request's place. All in integers: exact, and equal to the slow
model step by step (tests/simulator/test_replicas.py).
"""

import heapq
from collections import deque

from commonpool.simulator.cluster import Speed


class Served:
    """A request on a replica. `tokens_out` is the length of each of its sequences; times are absolute."""

    __slots__ = ("ends_at_step", "first_token_at", "sequences", "tokens_in", "tokens_out")

    def __init__(self, tokens_in: int, tokens_out: int, sequences: int) -> None:
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out
        self.sequences = sequences
        self.first_token_at = 0
        self.ends_at_step = 0


class Batch:
    """What runs on one replica. Times given to it never go backwards, and none lies beyond `next_end`."""

    __slots__ = (
        "_clock",
        "_decoding",
        "_joined",
        "_leaving",
        "_prefill_token_ns",
        "_ready_at",
        "_sequences",
        "_step_end",
        "_step_ns",
        "_step_sequence_ns",
    )

    def __init__(self, speed: Speed) -> None:
        self._prefill_token_ns = speed.prefill_token_ns
        self._step_ns = speed.step_ns
        self._step_sequence_ns = speed.step_sequence_ns
        self._clock = 0  # steps begun
        self._step_end = 0  # when the last of them ends
        self._ready_at = 0  # when the next step begins, or the next prompt is read
        self._sequences = 0  # of those in `_decoding`
        self._joined = 0
        self._decoding: list[tuple[int, int, Served]] = []  # heap of (ends_at_step, order of joining, request)
        self._leaving: deque[tuple[int, Served]] = deque()  # their last token comes at a time that nothing can change

    def join(self, served: Served, now: int) -> None:
        """Put a request on the replica; its `first_token_at` is known from now on."""
        self._advance(now)
        self._ready_at = max(self._ready_at, now) + served.tokens_in * self._prefill_token_ns
        served.first_token_at = self._ready_at
        self._joined += 1
        served.ends_at_step = self._clock + max(0, served.tokens_out - 1)
        if served.tokens_out <= 1:
            self._leaving.append((self._ready_at, served))
        else:
            heapq.heappush(self._decoding, (served.ends_at_step, self._joined, served))
            self._sequences += served.sequences

    def next_end(self) -> int:
        """When the next request ends if nothing else joins or leaves; -1 when there is none."""
        if self._leaving:
            return self._leaving[0][0]
        if not self._decoding:
            return -1
        steps = self._decoding[0][0] - self._clock
        return self._ready_at + steps * (self._step_ns + self._sequences * self._step_sequence_ns)

    def ended(self, now: int) -> list[Served]:
        """Take away those whose last token has come."""
        self._advance(now)
        leaving = self._leaving
        done: list[Served] = []
        while leaving and leaving[0][0] <= now:
            done.append(leaving.popleft()[1])
        return done

    def leave(self, served: Served, now: int) -> int:
        """Take a request away before its end; return how many tokens each of its sequences has produced.

        A step that runs, and a prompt that is to be read, still take their time.
        """
        self._advance(now)
        running = [item for item in self._decoding if item[2] is not served]
        if len(running) < len(self._decoding):
            heapq.heapify(running)
            self._decoding = running
            self._sequences -= served.sequences
        else:
            self._leaving = deque(item for item in self._leaving if item[1] is not served)
        if now < served.first_token_at:
            return 0
        unfinished = 1 if now < self._step_end else 0
        return served.tokens_out - (served.ends_at_step - self._clock) - unfinished

    def clear(self) -> list[Served]:
        """The replica is lost: take everything away. In the order in which they end."""
        gone = [item[1] for item in self._leaving] + [item[2] for item in sorted(self._decoding)]
        self._leaving.clear()
        self._decoding.clear()
        self._sequences = 0
        self._ready_at = 0
        return gone

    def _advance(self, now: int) -> None:
        """Count the steps that have begun; nothing can change those any more."""
        decoding = self._decoding
        if not decoding or now <= self._ready_at:
            return
        step = self._step_ns + self._sequences * self._step_sequence_ns
        steps = (now - self._ready_at + step - 1) // step
        self._clock += steps
        self._ready_at += steps * step
        self._step_end = self._ready_at
        while decoding and decoding[0][0] <= self._clock:
            served = heapq.heappop(decoding)[2]
            self._sequences -= served.sequences
            self._leaving.append((self._ready_at, served))
