# SPDX-License-Identifier: Apache-2.0
"""The placement benchmarks of the folder that is given to a bench: modules that replay the public traces by numpy."""

import importlib
import sys
from pathlib import Path
from typing import Any


def load(folder: Path | str, name: str) -> Any:
    """Import a module of the folder, which stays on the path for what it imports itself.

    Ends the program with one line where the folder has no such module, or a library is missing.
    """
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name == name:
            raise SystemExit(f"{folder} has no {name}.py: give the folder of the placement benchmarks") from missing
        raise SystemExit(f"{name}.py needs {missing.name}: run `pip install {missing.name}`") from missing
