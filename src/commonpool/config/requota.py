"""Other quotas in the text of a configuration: only those values change; comments, order and all other keys stay."""

from collections.abc import Mapping as Map

from commonpool.config.loading import parse_sources
from commonpool.config.problems import Report
from commonpool.config.quantities import format_gpu
from commonpool.config.sources import Sources, tenant_name
from commonpool.config.tree import Mapping, Node, Scalar, compose

KEYS = ("guaranteed", "elastic_cap")


class RequotaError(Exception):
    """The text cannot be changed in place: which tenant, and what to write by hand."""


def requota(sources: Sources, quotas: Map[str, tuple[int, int]]) -> Sources:
    """The configuration with these (guaranteed, elastic_cap) in milli_gpu by tenant; what is right already stays.

    Raises RequotaError for a tenant that is not written in a way that can be edited, and ConfigError where the new
    quotas contradict what else the configuration says.
    """
    files = dict(sources.files)
    policy = parse_sources(sources).policy
    for name, wanted in quotas.items():
        tenant = policy.tenants[name]
        for key, value, now in zip(KEYS, wanted, (tenant.guaranteed, tenant.elastic_cap), strict=True):
            if value != now:
                file = _file_of(sources, name)
                files[file] = _edited(files[file], file, name, key, format_gpu(value).replace(" ", "_"), sources)
    changed = Sources(sources.main, files, sources.folder, sources.applied)
    parse_sources(changed)
    return changed


def _file_of(sources: Sources, tenant: str) -> str:
    own = [file for file in sources.files if file != sources.main and tenant_name(sources, file) == tenant]
    return sources.applied.get(tenant) or (own[0] if own else sources.main)


def _edited(text: str, file: str, tenant: str, key: str, value: str, sources: Sources) -> str:
    root = compose(text, file, Report(file))
    quota = _find(root, ("tenant",) if file != sources.main else ("tenants", tenant, "tenant"))
    if not isinstance(quota, Mapping) or not quota.items:
        raise RequotaError(
            f"{file} does not write the quota of tenant {tenant} as a mapping; write tenant: {{{key}: {value}}} there"
        )
    lines = text.splitlines(keepends=True)
    written = next((node for found, node in quota.items if found.text == key), None)
    if isinstance(written, Scalar):
        line, start = written.mark.line - 1, written.mark.column - 1
        old = written.text if written.plain else lines[line][start] + written.text + lines[line][start]
        if not lines[line].startswith(old, start):
            raise RequotaError(f"{file}, line {line + 1}: set {key} of tenant {tenant} to {value} by hand")
        lines[line] = lines[line][:start] + value + lines[line][start + len(old) :]
    else:
        first = quota.items[0][0].mark
        line, start = first.line - 1, first.column - 1
        before = lines[line][:start]
        # In a block every key has a line of its own; inside braces a comma parts them.
        more = f"{key}: {value}\n{before}" if not before.strip() else f"{key}: {value}, "
        lines[line] = before + more + lines[line][start:]
    return "".join(lines)


def _find(node: Node | None, path: tuple[str, ...]) -> Node | None:
    for part in path:
        if not isinstance(node, Mapping):
            return None
        node = next((value for key, value in node.items if key.text == part), None)
    return node
