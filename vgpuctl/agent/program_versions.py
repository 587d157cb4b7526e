# SPDX-License-Identifier: Apache-2.0
"""Versions of programs, kept beside the agent's own file from one agent to the next.

Starting QEMU or libvirtd to ask takes longer than all other facts of a small host. An answer holds while the program's
file is the same: its size and its times of change.
"""

import json
import os
import sys
from typing import Dict, Optional

_FILE = "versions.json"


def recall(program: str) -> Optional[str]:
    """Return what was kept of a program (absolute path), None when its file is another one now."""
    mark = _mark(program)
    kept = _read().get(program)
    if mark is None or not isinstance(kept, list) or len(kept) != 2 or kept[0] != mark:
        return None
    return str(kept[1])


def remember(program: str, version: str) -> None:
    """Keep a program's version; without a cache folder, or when it cannot be written, nothing is kept."""
    path, mark = _path(), _mark(program)
    if path is None or mark is None:
        return
    temporary = f"{path}.{os.getpid()}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({**_read(), program: [mark, version]}, file)
        os.rename(temporary, path)
    except OSError:
        return


def _path() -> Optional[str]:
    """Return the file in the agent's cache folder, None for an agent that is installed or runs from memory."""
    folder, name = os.path.split(sys.argv[0])
    return f"{folder}/{_FILE}" if folder and name.startswith("agent-") else None


def _read() -> Dict[str, object]:
    path = _path()
    try:
        with open(path or "", encoding="utf-8") as file:
            kept = json.load(file)
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _mark(program: str) -> Optional[str]:
    try:
        found = os.stat(program)
    except OSError:
        return None
    return f"{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"
