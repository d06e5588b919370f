"""Threads that do nothing until a test lets them, to see what goes on meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

WITHIN_S = 120

P = ParamSpec("P")
T = TypeVar("T")


class HeldThreads(ThreadPoolExecutor):
    """For `loop.set_default_executor`. `begun` is set once something was given to them."""

    def __init__(self) -> None:
        super().__init__(max_workers=4)
        self.go_on = threading.Event()
        self.begun = asyncio.Event()

    def submit(self, work: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        self.begun.set()

        def held() -> T:
            assert self.go_on.wait(WITHIN_S)
            return work(*args, **named)

        return super().submit(held)
