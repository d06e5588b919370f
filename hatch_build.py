"""The wheel with a compiled core: mypyc makes C of core/, and a C compiler makes extension modules of that.

Only where it is asked for, by `HATCH_BUILD_HOOKS_ENABLE=1`, as `make compile` does. Any other wheel is pure Python and
needs no compiler. Both decide the same (docs/adr/0010-compiled-core.md).
"""

import os
import re
import shlex
import shutil
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.wheel import WheelBuilderConfig
from mypyc.build import mypycify
from setuptools import Distribution

# A module with structs stays interpreted: msgspec makes C of them already, and compiling loses the types that msgspec
# reads and writes them by. These are on the way of each decision, and what they have is built from what is known.
STRUCT = re.compile(r"^class .*\bfrozen=True", re.MULTILINE)
WITH_STRUCTS = {"admission", "hosts", "scaling"}
# Where the functions of all modules are; the modules themselves only point there.
LIBRARY = "commonpool_core"


class CompiledCore(BuildHookInterface[WheelBuilderConfig]):
    """Adds the extension modules to a wheel, beside the sources they are made of."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        missing = lacking()
        if missing:
            raise SystemExit(f"The core cannot be compiled: this machine lacks {missing}.")
        self._folder = TemporaryDirectory()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"] |= _compile(Path(self.root) / "src/commonpool/core", Path(self._folder.name))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del build_data, artifact_path
        if version != "editable":
            self._folder.cleanup()


def lacking() -> str | None:
    """What this machine lacks for compiling, and where it comes from; None if nothing."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC"))[0]
    if shutil.which(compiler) is None:
        return f"the C compiler {compiler} (Debian: apt install gcc)"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return None if header.exists() else f"Python's header {header} (Debian: apt install python3-dev)"


def _is_compiled(module: Path) -> bool:
    if module.stem == "__init__":
        return False
    return module.stem in WITH_STRUCTS or not STRUCT.search(module.read_text(encoding="utf-8"))


def _compile(core: Path, folder: Path) -> dict[str, str]:
    """Compile into a folder. Returns where each module is, and where it belongs in the wheel."""
    extensions = mypycify(
        [str(path) for path in sorted(core.glob("*.py")) if _is_compiled(path)],
        target_dir=str(folder / "c"),
        group_name=LIBRARY,
        opt_level="1",  # as fast as 2 here, in three quarters of the time
        debug_level="0",
    )
    for extension in extensions:
        extension.extra_compile_args.append("-Wno-error")  # what another compiler warns of stops nobody
    build = Distribution({"name": "commonpool", "ext_modules": extensions}).get_command_obj("build_ext")
    build.build_lib, build.build_temp = str(folder / "modules"), str(folder / "objects")
    build.ensure_finalized()
    build.run()
    made = [path for path in (folder / "modules").rglob("*") if path.is_file()]
    return {str(path): str(path.relative_to(folder / "modules")) for path in made}
