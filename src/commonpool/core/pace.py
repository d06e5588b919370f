"""What is learned of how long things take, from those that ended."""

from typing import Final

# Learned figures move by an eighth of the difference with each request.
LEARN_SHIFT: Final = 3


class Pace:
    """How long a site takes over a unit of service (a token; a job's nanosecond). Nanoseconds; 0 until learned."""

    __slots__ = ("_deviation", "expected")

    def __init__(self) -> None:
        self.expected = 0
        self._deviation = 0

    @property
    def careful(self) -> int:
        """With room for the usual ups and downs: expected plus twice the mean deviation, as TCP sets its time-outs."""
        return self.expected + 2 * self._deviation

    def learn(self, ns_per_unit: int) -> None:
        if not self.expected:
            self.expected = max(1, ns_per_unit)
            self._deviation = self.expected // 4
            return
        error = ns_per_unit - self.expected
        self.expected = max(1, self.expected + (error >> LEARN_SHIFT))
        self._deviation += (abs(error) - self._deviation) >> LEARN_SHIFT
