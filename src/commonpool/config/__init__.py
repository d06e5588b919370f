"""Configuration: YAML to frozen structs, checked once, with everything that is wrong and where.

`load` reads `commonpool.yaml` and what it includes; `read_sources` and `parse_sources` do the two halves where the text
is checked elsewhere than it lies; `merge_tenant` puts one tenant's own file into what runs; `diff` says what a change
does; `declared` turns a node into the core's. Quantities are in `quantities`, the schema for editors in `schema`, and
what is guaranteed of each pool in `promises`.
"""

from commonpool.config.changes import Change, Kind, diff
from commonpool.config.loading import (
    TenantFile,
    is_tenant_file,
    load,
    load_tenant,
    parse,
    parse_sources,
    read_sources,
)
from commonpool.config.nodes import declared
from commonpool.config.problems import ConfigError, Problem
from commonpool.config.sources import Sources, is_tenant_text, merge_tenant
from commonpool.config.structs import Config, NodeConfig

__all__ = [
    "Change",
    "Config",
    "ConfigError",
    "Kind",
    "NodeConfig",
    "Problem",
    "Sources",
    "TenantFile",
    "declared",
    "diff",
    "is_tenant_file",
    "is_tenant_text",
    "load",
    "load_tenant",
    "merge_tenant",
    "parse",
    "parse_sources",
    "read_sources",
]
