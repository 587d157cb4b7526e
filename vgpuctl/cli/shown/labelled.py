# SPDX-License-Identifier: Apache-2.0
"""Sections of a label and its value, as `show-*` commands print them."""

from collections.abc import Sequence

from vgpuctl.cli.shown.output import print_line
from vgpuctl.cli.shown.terminal import terminal_width, wrapped

_WIDTH = 10


def print_labelled(label: str, values: Sequence[str]) -> None:
    """Print the values beside their label, each from a line of its own on, in lines that fit the terminal."""
    begin = label.ljust(_WIDTH)
    for value in values:
        for line in wrapped(value.split(" "), terminal_width(), indent=" " * _WIDTH):
            print_line(begin + line[_WIDTH:])
            begin = " " * _WIDTH
