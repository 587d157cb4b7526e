# SPDX-License-Identifier: Apache-2.0
"""Runs one command of the made-up next version."""

import importlib
import sys
from typing import Any

from tests.next_version import become
from vgpuctl.cli.main import leave, run


def _set(name: str, value: Any) -> None:
    module, _, attribute = name.rpartition(".")
    setattr(importlib.import_module(module), attribute, value)


if __name__ == "__main__":
    become(_set)
    leave(run(sys.argv[1:]))
