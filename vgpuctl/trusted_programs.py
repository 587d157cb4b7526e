# SPDX-License-Identifier: Apache-2.0
"""Programs that are about to be started: who could have written them decides, as for the files that they read."""

import contextlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Sequence

from vgpuctl.trusted_files import NAMED, judge

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_AFTER = ("exec", "command", "env", "nohup", "sudo", "!")
"""Words behind which a shell's line still has to name its program."""


def judge_program(program: str) -> None:
    """Judge the file of a program, named by a path or found on PATH. Raises FileNotTrusted.

    A program that is not there is left to whoever starts it.
    """
    found = shutil.which(program)
    if found is not None:
        with contextlib.suppress(OSError):
            judge(found, NAMED)


def judge_command(words: Sequence[str]) -> None:
    """Judge a program, and the files that its arguments name by a whole path: `sh /srv/off.sh`. Raises FileNotTrusted.

    Only what can be told from the words is judged, not what the program does.
    """
    if words:
        judge_program(words[0])
    for word in words:
        for path in {word, *word.split()}:  # a shell's line is one word: sh -c '/srv/off.sh now'
            with contextlib.suppress(OSError, ValueError):
                if path.startswith("/") and stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - it may be any text
                    judge(path, NAMED)


def judge_shell_line(line: str) -> None:
    """The same for a line of a shell: its first program, and all files that it names. Raises FileNotTrusted."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split, reader.commenters = True, ""
    words = list[str]()
    with contextlib.suppress(ValueError):  # quotes without an end: the shell refuses the line too
        for word in reader:
            words.append(os.path.expandvars(f"$HOME{word[1:]}" if word.startswith("~/") else word))
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in _AFTER):
        del words[0]
    judge_command(words)
