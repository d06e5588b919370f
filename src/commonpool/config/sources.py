"""The files that make up a configuration, as one value that travels: read once, checked wherever it arrives."""

from fnmatch import fnmatchcase
from pathlib import Path, PurePath

import msgspec

from commonpool.config.keys import ROOT, TENANT
from commonpool.config.kinds import INCLUDE
from commonpool.config.problems import ConfigError, Problem, Report, quote
from commonpool.config.tree import Mapping, Node, Scalar, Sequence, compose

FILE_BYTES_MAX = 1024 * 1024
SOURCES_BYTES_MAX = 16 * 1024 * 1024
FILES_MAX = 1001  # the main file and one for each tenant


class Sources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text of the main file and of each tenant's file, by name as shown in errors.

    `folder` is what relative paths in them start from. `applied` maps a tenant's name to its file in `files` where that
    file was applied on its own: it replaces the tenant of that name, wherever that is defined. Every other file belongs
    to `include` of the main one and defines the tenant of its stem.
    """

    main: str
    files: dict[str, str]
    folder: str = "."
    applied: dict[str, str] = {}


def gather(path: Path) -> tuple[Sources, list[Problem]]:
    """The main file and what it includes. What cannot be read is a problem; the rest is there all the same."""
    main = str(path)
    text = read_text(path)
    problems: list[Problem] = []
    files = {main: text}
    for pattern in include_patterns(compose(text, main, Report(main))):
        if not _is_pattern(pattern):
            continue  # reported with its line when the text is checked
        for found in sorted(path.parent.glob(pattern)):
            if found.name.startswith(".") or str(found) in files or found == path:
                continue
            try:
                files[str(found)] = read_text(found)
            except ConfigError as error:
                problems += error.problems
            if len(files) > FILES_MAX:
                problems.append(
                    Problem(main, None, None, "include", pattern, f"matches more than {FILES_MAX - 1} files")
                )
                return Sources(main, files, _folder(path)), problems
    return Sources(main, files, _folder(path)), problems


def read_text(path: Path) -> str:
    """The text of one file; raises ConfigError with one sentence when it cannot be had."""
    try:
        if path.is_dir():
            raise _unreadable(path, "is a folder; name the file in it")
        if path.exists() and not path.is_file():
            raise _unreadable(path, "is not a regular file")
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise _unreadable(path, "does not exist; check the path") from None
    except PermissionError:
        raise _unreadable(path, "may not be read by this user; change its permissions") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > FILE_BYTES_MAX:
        raise _unreadable(path, f"is larger than {FILE_BYTES_MAX // 1024} KiB, which no configuration is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unreadable(path, "is not UTF-8 text; save it as UTF-8", line) from None


def include_patterns(root: Node | None) -> list[str]:
    """The texts under `include`, before anything is checked."""
    if not isinstance(root, Mapping):
        return []
    found = next((node for key, node in root.items if key.text == "include"), None)
    return [item.text for item in found.items if isinstance(item, Scalar)] if isinstance(found, Sequence) else []


def includes(sources: Sources, pattern: str) -> list[str]:
    """The files of `sources` that a pattern of `include` means."""
    wanted = PurePath(pattern).parts
    return [
        file
        for file in sources.files
        if file != sources.main
        and len(parts := _below(file, PurePath(sources.main).parent)) == len(wanted)
        and all(map(fnmatchcase, parts, wanted))
    ]


def merge_tenant(base: Sources, name: str, text: str, source: str | None = None) -> Sources:
    """`base` with this tenant replaced or added. `source` is the name of its file for errors."""
    files = {file: kept for file, kept in base.files.items() if file == base.main or tenant_name(base, file) != name}
    file = source or f"{name}.yaml"
    while file in files:
        file += " (applied)"
    applied = {tenant: kept for tenant, kept in base.applied.items() if tenant != name}
    return Sources(base.main, {**files, file: text}, base.folder, {**applied, name: file})


def tenant_name(sources: Sources, file: str) -> str:
    """Which tenant a file defines."""
    return next((name for name, applied in sources.applied.items() if applied == file), PurePath(file).stem)


def is_tenant_text(text: str) -> bool:
    """Whether this is a tenant's own file rather than a whole configuration: it has a tenant's keys and no others'."""
    root = compose(text, "", Report(""))
    if not isinstance(root, Mapping):
        return False
    keys = {key.text for key, _ in root.items}
    return bool(keys & TENANT.by_key.keys()) and not keys & ROOT.by_key.keys()


def check_bounds(sources: Sources, report: Report) -> bool:
    """Whether sources that came from elsewhere are whole and not too large; reports what is not."""
    if sources.main not in sources.files:
        report.fail_file(sources.main, "is the main file, and its text is not there")
    for name, file in sources.applied.items():
        if file not in sources.files or file == sources.main:
            report.fail_file(file, f"is the file of tenant {quote(name)}, and its text is not there")
    if len(sources.files) > FILES_MAX:
        report.fail_file(sources.main, f"comes with {len(sources.files)} files; allowed are {FILES_MAX}")
    sizes = {file: len(text.encode(errors="replace")) for file, text in sources.files.items()}
    for file, size in sizes.items():
        if size > FILE_BYTES_MAX:
            report.fail_file(file, f"is larger than {FILE_BYTES_MAX // 1024} KiB, which no configuration is")
    if sum(sizes.values()) > SOURCES_BYTES_MAX:
        report.fail_file(sources.main, f"and its tenants' files are larger than {SOURCES_BYTES_MAX // 1024**2} MiB")
    return not report.problems


def _is_pattern(text: str) -> bool:
    try:
        INCLUDE.parse(text)
    except ValueError:
        return False
    return True


def _below(file: str, folder: PurePath) -> tuple[str, ...]:
    path = PurePath(file)
    return path.relative_to(folder).parts if path.is_relative_to(folder) else ()


def _folder(path: Path) -> str:
    return str(path.parent.absolute())


def _unreadable(path: Path, sentence: str, line: int | None = None) -> ConfigError:
    return ConfigError([Problem(str(path), line, None, "", None, sentence)])
