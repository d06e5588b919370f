"""YAML text to a tree of nodes that know their place. Scalars stay text: what `on`, `012` or `1:30` mean is for the
key that they belong to, not for YAML.

The tree is built from the parser's events, without recursion, and bounded in depth and in size; an alias counts as
large as what it stands for.
"""

import re

import msgspec
import yaml

from commonpool.config.problems import Mark, Report, quote

DEPTH_MAX = 32
NODES_MAX = 100_000

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff\ufeff]")
# Only the parser of it is used. The one in C is twenty times faster and not in every build.
LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN_TAG = re.compile(r"tag:yaml\.org,2002:(str|int|float|bool|null|map|seq)$")


class Scalar(msgspec.Struct, frozen=True):
    """A value as it is written; `plain` without quotes."""

    text: str
    plain: bool
    mark: Mark

    @property
    def is_null(self) -> bool:
        """Whether nothing stands here."""
        return self.plain and self.text in ("", "~", "null", "Null", "NULL")


class Mapping(msgspec.Struct, frozen=True):
    """Keys and values in the order of the file; a key may still occur twice."""

    items: list[tuple[Scalar, "Node"]]
    mark: Mark


class Sequence(msgspec.Struct, frozen=True):
    """A list."""

    items: list["Node"]
    mark: Mark


Node = Scalar | Mapping | Sequence


class _Refused(Exception):  # noqa: N818 - a way out of the builder, not an error that anyone else sees
    def __init__(self, mark: Mark, sentence: str) -> None:
        super().__init__(sentence)
        self.mark = mark


class _Open(msgspec.Struct):
    """A mapping or list whose end has not come yet."""

    node: Mapping | Sequence
    anchor: str | None
    key: Scalar | None = None
    size: int = 1


def compose(text: str, file: str, report: Report, loader: type = LOADER) -> Node | None:
    """The tree of one document, or None after reporting why there is none."""
    if control := _CONTROL.search(text):
        line = text.count("\n", 0, control.start()) + 1
        column = control.start() - text.rfind("\n", 0, control.start())
        report.fail_file(file, f"holds the control character U+{ord(control[0]):04X}; write plain text", line, column)
        return None
    builder = _Builder(file)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except _Refused as refusal:
        report.fail_file(file, str(refusal), refusal.mark.line, refusal.mark.column)
        return None
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        line, column = (place.line, place.column) if place else (0, 0)
        report.fail_file(file, _syntax(text, error, line, column), line + 1, column + 1)
        return None
    if builder.root is None or (isinstance(builder.root, Scalar) and builder.root.is_null):
        report.fail_file(file, "is empty; a configuration has at least pools, models and prices")
        return None
    return builder.root


def _syntax(text: str, error: yaml.MarkedYAMLError, line: int, column: int) -> str:
    lines = text.splitlines()
    if line < len(lines) and lines[line][column : column + 1] == "\t":
        return "a tab stands where YAML wants spaces; indent with spaces"
    context = f" ({error.context})" if error.context else ""
    return f"is not valid YAML: {error.problem}{context}"


class _Builder:
    def __init__(self, file: str) -> None:
        self.root: Node | None = None
        self._file = file
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}

    def take(self, event: yaml.Event) -> None:
        start = event.start_mark
        mark = Mark(self._file, start.line + 1, start.column + 1) if start else Mark(self._file, 1, 1)
        match event:
            case yaml.DocumentStartEvent() if self.root is not None:
                raise _Refused(mark, "holds a second document; a file is one document, so remove the line with ---")
            case yaml.AliasEvent():
                self._place(*self._aliased(event.anchor, mark))
            case yaml.ScalarEvent():
                self._check_tag(event.tag, mark)
                node = Scalar(event.value, event.style in (None, ""), mark)
                if event.anchor:
                    self._anchors[event.anchor] = (node, 1)
                self._place(node, 1)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._check_tag(event.tag, mark)
                if len(self._open) >= DEPTH_MAX:
                    raise _Refused(mark, f"is nested more than {DEPTH_MAX} levels deep")
                empty = Mapping([], mark) if isinstance(event, yaml.MappingStartEvent) else Sequence([], mark)
                self._open.append(_Open(empty, event.anchor))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._open.pop()
                if done.anchor:
                    self._anchors[done.anchor] = (done.node, done.size)
                self._place(done.node, done.size)

    def _aliased(self, anchor: str | None, mark: Mark) -> tuple[Node, int]:
        if anchor is None or anchor not in self._anchors:
            # The parser leaves this to the composer; an anchor that is still open would hold itself.
            raise _Refused(mark, f"the alias {quote(f'*{anchor}')} names no anchor that ends before it")
        return self._anchors[anchor]

    def _place(self, node: Node, size: int) -> None:
        """Put a finished node where it belongs: into the innermost open container, or at the root."""
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        parent.size += size
        if parent.size > NODES_MAX:
            raise _Refused(node.mark, f"holds more than {NODES_MAX} values, aliases written out")
        if isinstance(parent.node, Sequence):
            parent.node.items.append(node)
        elif parent.key is not None:
            parent.node.items.append((parent.key, node))
            parent.key = None
        elif isinstance(node, Scalar):
            parent.key = node
        else:
            raise _Refused(node.mark, "a key must be a name, not a list or a mapping")

    @staticmethod
    def _check_tag(tag: str | None, mark: Mark) -> None:
        # "!" is only "not plain"; any other tag asks for a type, and a key decides its own.
        if tag and tag != "!" and not _PLAIN_TAG.match(tag):
            raise _Refused(mark, f"the tag {quote(tag)} is not supported; write the value alone")
