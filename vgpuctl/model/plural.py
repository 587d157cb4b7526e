# SPDX-License-Identifier: Apache-2.0
"""Numbers of things in messages."""


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 VM`, `2 VMs`, `0 shares`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
