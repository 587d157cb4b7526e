# SPDX-License-Identifier: Apache-2.0
"""Numbers of things in messages."""


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 VM`, `2 VMs`, `0 shares`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def all_are(number: int, noun: str, which: str = "") -> str:
    """All of some things with their verb: `all 4 seats of vws are`, `the only seat of vws is`."""
    return f"the only {noun}{which} is" if number == 1 else f"all {number} {noun}s{which} are"
