# SPDX-License-Identifier: Apache-2.0
"""The files that ssh reads for its configuration, with those that they include: judged before ssh is asked.

ssh runs the programs of `Match exec` while it reads. It judges ~/.ssh/config and what that includes by owner and mode,
but neither their folders nor the files of -F. A pattern may fit more files here than it does for ssh, never fewer.
Source: ssh_config(5), Include; OpenSSH 10.0, readconf.c and misc.c (argv_split).
"""

import contextlib
import glob
import itertools
import os
import re
import stat
from collections.abc import Iterator

from vgpuctl.errors import UsageError
from vgpuctl.hosts.ssh_tokens import own_home
from vgpuctl.trusted_files import FOUND, NAMED, Trust, judge, opened
from vgpuctl.trusted_programs import judge_shell_line
from vgpuctl.user_folders import expanded

SYSTEM = ("/etc/ssh", "/usr/etc/ssh", "/usr/local/etc", "/usr/local/etc/ssh")
"""Folders of the system's ssh_config, as distributions and ssh's own build place it."""
_MOST_BYTES = 2**20
_INCLUDE = re.compile(r"""[\s"']*include(?:["']?[\s=]+)?(.*)""", re.IGNORECASE | re.DOTALL)
_MATCH = re.compile(r"""[\s"']*match(?:["']?[\s=]+)?(.*)""", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')+""")
_MARKS = re.compile(r"""\\([\\"' ])|["']""")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_WILD = re.compile(r"[*?]")
_NOT_ALIKE = re.compile(r"[\[\\%]")
"""Classes and escapes, which Python reads in another way, and tokens."""


def judge_files(configuration: str | None) -> None:
    """Judge what ssh would read. configuration: of -F; None for ssh's own files. Raises FileNotTrusted.

    A file that is missing, or that this user may not read, is none for ssh either.
    """
    if configuration == "none":
        return
    own = f"{own_home()}/.ssh"
    left: list[tuple[str, Trust, str]] = [(f"{folder}/ssh_config", FOUND, folder) for folder in SYSTEM]
    left.append((f"{own}/config", FOUND, own))
    if configuration is not None:
        left = [(configuration, NAMED, own)]
    read = set[str]()
    while left:
        path, trust, folder = left.pop()
        if path not in read:
            read.add(path)
            content = _content(path, trust)
            for line in _programs(content):
                judge_shell_line(line)
            left += [(one, NAMED, folder) for one in _included(content, folder)]


def _content(path: str, trust: Trust) -> str:
    """The content; "" for what cannot be opened, and for a pipe, which would be empty for ssh then."""
    try:
        with opened(path, trust) as file:
            if not stat.S_ISREG(os.fstat(file.descriptor).st_mode):
                return ""
            return file.read(_MOST_BYTES).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return ""


def _programs(content: str) -> Iterator[str]:
    """The lines of a shell that `Match exec` runs."""
    for line in content.split("\n"):
        found = _MATCH.fullmatch(line)
        words = [_MARKS.sub(r"\1", word) for word in _WORD.findall(found[1])] if found else []
        for word, following in itertools.pairwise(words):
            if word.lower().lstrip("!") == "exec":
                yield following


def _included(content: str, folder: str) -> Iterator[str]:
    """The files that Include lines name. folder: where relative names start."""
    for line in content.split("\n"):
        found = _INCLUDE.fullmatch(line)
        for word in _WORD.findall(found[1]) if found else ():
            pattern = _pattern(_MARKS.sub(r"\1", word), folder)
            wild = _WILD.search(pattern)
            try:
                if wild is not None:
                    judge(os.path.dirname(pattern[: wild.start()]), NAMED)  # noqa: PTH120 - others could add a file
                yield from glob.iglob(pattern)  # noqa: PTH207 - the pattern has a folder
            except (OSError, ValueError):
                continue


def _pattern(name: str, folder: str) -> str:
    """A pattern of Python's own that fits at least what ssh's name fits."""
    name = _VARIABLE.sub(lambda found: os.environ.get(found[1], found[0]), name).replace("%d", own_home())
    if name == "~" or name.startswith("~/"):
        name = own_home() + name[1:]
    with contextlib.suppress(UsageError):
        name = str(expanded(name))
    parts = ("*" if _NOT_ALIKE.search(part) else part for part in name.split("/"))
    return os.path.join(folder, "/".join(parts))  # noqa: PTH118 - as it is written
