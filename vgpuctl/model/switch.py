# SPDX-License-Identifier: Apache-2.0
"""A wish that is on, off, or left to a default."""

from enum import StrEnum


class Switch(StrEnum):
    """On or off; None in its place leaves the choice to the operating system's profile."""

    ON = "on"
    OFF = "off"
