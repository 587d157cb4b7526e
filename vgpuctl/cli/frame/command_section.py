# SPDX-License-Identifier: Apache-2.0
"""A subject of `vgpuctl help`."""

from typing import NamedTuple


class CommandSection(NamedTuple):
    """A subject of `vgpuctl help`. folder: where the modules of its commands are, under cli/ and usecases/.

    about: what a newcomer has to know first. pages: under docs/. seldom: those of the commands that programs call, or
    that nobody types in an ordinary week; lists have them last.
    """

    title: str
    folder: str
    commands: dict[str, str]
    subject: str
    about: str
    pages: tuple[str, ...]
    seldom: frozenset[str] = frozenset()
