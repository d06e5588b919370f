"""A small configuration to change, and ways to ask for what is wrong with another."""

from collections.abc import Callable
from pathlib import Path

import pytest

from commonpool.config import ConfigError, parse

BASE = """\
pools:
  main: {gpus: 4_gpu}
models:
  small:
    version: v1
    gpu: 1_gpu
    slots: 4
    context: 2048
    engine: {kind: embedded, file: small.gguf}
prices: {currency: EUR, gpu_hour: {main: 2.50}}
tenants:
  support:
    tenant: {guaranteed: 2_gpu}
"""

TREE = """\
pools: {main: {gpus: 10, resources: {memory: 100GiB, cpu_cores: 40}}}
models: {m: {version: 1, gpu: 1, slots: 4, context: 10, engine: {kind: embedded, file: x}}}
prices: {currency: EUR, gpu_hour: {main: 1}}
groups:
  top: {}
  low: {parent: top}
tenants:
  a: {tenant: {group: low, guaranteed: 2}}
  b: {tenant: {group: low, guaranteed: 1}}
  c: {tenant: {group: top, guaranteed: 1}}
"""

Edit = Callable[..., str]


@pytest.fixture
def base() -> str:
    return BASE


@pytest.fixture
def edit() -> Edit:
    """BASE with one place replaced, which must be there, and text added at the end."""

    def edited(old: str = "", new: str = "", *, end: str = "") -> str:
        assert old in BASE
        return BASE.replace(old, new, 1) + end if old else BASE + end

    return edited


@pytest.fixture
def wrong() -> Callable[[str], list[str]]:
    """The lines of the error that a text gives, one for each problem."""

    def lines(text: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            parse(text, "c.yaml")
        return str(caught.value).splitlines()

    return lines


@pytest.fixture
def root() -> Path:
    """The repository's root."""
    return Path(__file__).parents[2]


@pytest.fixture
def tree() -> Edit:
    """TREE with more said of the groups top and low, and of tenant a."""

    def said(top: str = "", low: str = "", a: str = "") -> str:
        text = TREE.replace("top: {}", f"top: {{{top}}}").replace("{parent: top}", f"{{parent: top, {low}}}")
        return text.replace("guaranteed: 2}", f"guaranteed: 2, {a}}}")

    return said
