"""What the figures were measured on, in words that name no host."""

import platform
import re
import sysconfig
from pathlib import Path


def cores() -> str:
    models = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return f"{len(models)} cores of {models[0] if models else platform.machine()}"


def python() -> str:
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return f"Python {platform.python_version()} built with{'' if optimised else 'out'} --enable-optimizations"
