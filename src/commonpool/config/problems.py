"""What is wrong with a configuration: every problem with its place, collected and raised together."""

import difflib
import json
from collections.abc import Iterable

import msgspec

KeyPath = tuple[str, ...]

PROBLEMS_MAX = 200  # beyond this many, the file is of another kind and the rest only hides it
SHOWN_CHARS_MAX = 60
NEAREST_CHARS_MAX = 80  # longer words are not misspelt names, and comparing them is slow


class Mark(msgspec.Struct, frozen=True):
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong. `sentence` says what, and what is allowed.

    `line` and `column` are None where the file as a whole is meant; `key` is "" then. `value` is None where there is
    none, and where it may be a secret.
    """

    file: str
    line: int | None
    column: int | None
    key: str
    value: str | None
    sentence: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.key}: {self.sentence}" if self.key else f"{place}: {self.sentence}"


class ConfigError(Exception):
    """The configuration cannot be used; `problems` are all its faults, by file and line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.file, problem.line or 0)))
        super().__init__("\n".join(map(str, self.problems)))


class SecretError(ValueError):
    """A value is wrong and may be a secret, so neither this message nor whoever reports it repeats it."""


class Report:
    """Collects problems and warnings, and knows where each key stands."""

    def __init__(self, file: str) -> None:
        self.warnings: list[str] = []
        self._problems: list[Problem] = []
        self._marks: dict[KeyPath, Mark] = {(): Mark(file, 1, 1)}
        self._bad: set[KeyPath] = set()

    @property
    def full(self) -> bool:
        """Whether so much is wrong that looking further helps nobody."""
        return len(self._problems) >= PROBLEMS_MAX

    def mark(self, path: KeyPath, mark: Mark) -> None:
        """Remember where this key stands."""
        self._marks[path] = mark

    def fail(self, path: KeyPath, sentence: str, value: str | None = None, mark: Mark | None = None) -> None:
        """The value of this key is wrong. Without a mark it is placed where the key, or the nearest one above, is."""
        self._bad.add(path)
        if self.full:
            return
        mark = mark or self.place(path)
        self._problems.append(Problem(mark.file, mark.line, mark.column, _dotted(path), value, sentence))

    def fail_file(self, file: str, sentence: str, line: int | None = None, column: int | None = None) -> None:
        """The file itself is wrong."""
        self._problems.append(Problem(file, line, column, "", None, sentence))

    def warn(self, path: KeyPath, sentence: str) -> None:
        """Allowed, and worth a word."""
        mark = self.place(path)
        self.warnings.append(str(Problem(mark.file, mark.line, mark.column, _dotted(path), None, sentence)))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was found so far."""
        return tuple(self._problems)

    def is_said(self, path: KeyPath) -> bool:
        """Whether this very key stands in a file, with whatever value."""
        return path in self._marks

    def is_bad(self, path: KeyPath) -> bool:
        """Whether this very key has a problem: its value is unknown, rather than absent."""
        return path in self._bad

    def is_sound(self, path: KeyPath) -> bool:
        """Whether neither this key nor anything below it has a problem."""
        return not any(at[: len(path)] == path for at in self._bad)

    def forget(self, path: KeyPath) -> None:
        """Drop all that is known of this key and what is below it: another definition replaces it."""
        self._marks = {at: mark for at, mark in self._marks.items() if at[: len(path)] != path}

    def raise_problems(self) -> None:
        """Raise ConfigError if there are problems."""
        if self._problems:
            raise ConfigError(self._problems)

    def place(self, path: KeyPath) -> Mark:
        """Where the key stands, or the nearest one above it."""
        while path not in self._marks:
            path = path[:-1]
        return self._marks[path]


def _dotted(path: KeyPath) -> str:
    return ".".join(part if part.isprintable() and len(part) <= SHOWN_CHARS_MAX else quote(part) for part in path)


def quote(text: str) -> str:
    """The value as errors show it: in quotes, on one line, not too long, with nothing that a terminal would obey."""
    shown = text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
    return "".join(
        each if each.isprintable() else json.dumps(each)[1:-1] for each in json.dumps(shown, ensure_ascii=False)
    )


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that `word` most likely means, if any is near."""
    if len(word) > NEAREST_CHARS_MAX:
        return None
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def hint(word: str, known: Iterable[str], label: str) -> str:
    """The end of a sentence about an unknown word: the name that it most likely means, and all that are known."""
    every = list(known)
    near = nearest(word, every)
    return f"did you mean {near}? {label.capitalize()}: {listed(every)}" if near else f"{label}: {listed(every)}"


def listed(names: Iterable[str]) -> str:
    """Names for a sentence; long lists are cut."""
    every = list(names)
    shown = ", ".join(every[:20])
    return f"{shown} and {len(every) - 20} more" if len(every) > 20 else shown or "none"  # noqa: PLR2004 - see above
