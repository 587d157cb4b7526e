# SPDX-License-Identifier: Apache-2.0
"""The text of os-release(5): a distribution's own names."""

import shlex
from typing import Dict


def read_os_release(text: str) -> Dict[str, str]:
    """Return the variables of the file; a line that no shell could read is left out."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if not equals or name.startswith("#"):
            continue
        try:
            found[name] = "".join(shlex.split(value))
        except ValueError:
            continue
    return found
