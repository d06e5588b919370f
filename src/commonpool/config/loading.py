"""From files or text to a Config, or to a ConfigError with everything that is wrong."""

from pathlib import Path, PurePath

import msgspec

from commonpool.config.build import build
from commonpool.config.checks import check
from commonpool.config.defaults import fill
from commonpool.config.keys import ROOT, TENANT, TENANTS_MAX
from commonpool.config.kinds import NAME
from commonpool.config.problems import ConfigError, Report
from commonpool.config.promises import warn_of_scaling
from commonpool.config.quotas import settle_tenant
from commonpool.config.reader import ABSENT, read
from commonpool.config.shape import Record, Values
from commonpool.config.sources import (
    Sources,
    check_bounds,
    gather,
    includes,
    is_tenant_text,
    read_text,
    tenant_name,
)
from commonpool.config.structs import Config
from commonpool.config.tree import compose

_WILDCARDS = frozenset("*?[")


class TenantFile(msgspec.Struct, frozen=True):
    """A tenant's own file: the tenant is called as the file is, without its ending."""

    name: str
    text: str
    source: str


def load(path: Path) -> Config:
    """The configuration in a file and in those that it includes."""
    sources, problems = gather(path)
    try:
        config = parse_sources(sources)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from None
    if problems:
        raise ConfigError(problems)
    return config


def read_sources(path: Path) -> Sources:
    """The texts of a configuration, unchecked, to be sent and checked where it is to run.

    Raises ConfigError when one of the files cannot be read.
    """
    sources, problems = gather(path)
    if problems:
        raise ConfigError(problems)
    return sources


def parse(text: str, source: str = "commonpool.yaml") -> Config:
    """The configuration in a text that includes no other file. Relative paths are below the folder of `source`."""
    return parse_sources(Sources(source, {source: text}, str(Path(source).parent.absolute())))


def parse_sources(sources: Sources) -> Config:
    """The configuration in these texts."""
    report = Report(sources.main)
    if not check_bounds(sources, report):
        report.raise_problems()
    # 1. Each file by itself.
    values = _read_file(ROOT, sources, sources.main, (), report)
    # 2. Each tenant's file into its place.
    for file in sources.files:
        if file != sources.main:
            _add_tenant(sources, file, values, report)
    # 3. What follows from other keys, and what must hold between them.
    if values is not None:
        if len(values.get("tenants", {})) > TENANTS_MAX:
            report.fail(("tenants",), f"there are {len(values['tenants'])} tenants; allowed are {TENANTS_MAX}")
        _check_includes(sources, values, report)
        fill(values, report)
        check(values, report)
    report.raise_problems()
    if values is None:
        raise AssertionError("a file without values has a problem")
    config = build(values, sources.main, Path(sources.folder))
    # 4. What is allowed, and worth a warning only once the rest is right.
    warn_of_scaling(config.policy, report)
    return msgspec.structs.replace(config, warnings=tuple(report.warnings))


def load_tenant(path: Path) -> TenantFile:
    """A tenant's own file, checked as far as that goes without the rest of the configuration."""
    text, file = read_text(path), str(path)
    report = Report(file)
    name = _tenant_name(path.stem, file, report)
    values = _read_file(TENANT, Sources(file, {file: text}), file, ("tenants", name), report)
    if values is not None and "tenant" in values:
        settle_tenant(values["tenant"], ("tenants", name), {}, report)
    report.raise_problems()
    return TenantFile(name, text, file)


def is_tenant_file(path: Path) -> bool:
    """Whether this is a tenant's own file rather than a whole configuration. Raises ConfigError if unreadable."""
    return is_tenant_text(read_text(path))


def _read_file(shape: Record, sources: Sources, file: str, path: tuple[str, ...], report: Report) -> Values | None:
    root = compose(sources.files[file], file, report)
    if root is None:
        return None
    report.mark(path, root.mark)
    values = read(shape, root, path, report)
    return None if values is ABSENT else dict(values)


def _add_tenant(sources: Sources, file: str, values: Values | None, report: Report) -> None:
    """Read a tenant's file into `values`; without them, only for its own problems."""
    name = _tenant_name(tenant_name(sources, file), file, report)
    path = ("tenants", name)
    tenants = {} if values is None else values.setdefault("tenants", {})
    applied = sources.applied.get(name) == file
    if name in tenants and not applied:
        report.fail_file(file, f"defines tenant {name}, which {report.place(path).file} defines too; remove one")
        return
    if applied and name in tenants:
        report.forget(path)
    tenants[name] = _read_file(TENANT, sources, file, path, report) or {}


def _tenant_name(name: str, file: str, report: Report) -> str:
    try:
        NAME.parse(name)
    except ValueError as error:
        report.fail_file(file, f"{error}; the file's name is the tenant's")
    return name


def _check_includes(sources: Sources, values: Values, report: Report) -> None:
    for number, pattern in enumerate(values.get("include", [])):
        if pattern is None or includes(sources, pattern):
            continue
        at = ("include", str(number))
        # A file that was applied on its own since may have taken the place of the one that is meant.
        if _WILDCARDS.isdisjoint(pattern):
            if PurePath(pattern).stem not in sources.applied:
                report.fail(at, f"there is no file {pattern} beside {sources.main}", pattern)
        else:
            report.warn(at, f"{pattern} matches no file")
