# SPDX-License-Identifier: Apache-2.0
"""How the GPU's driver gets into a guest."""

from dataclasses import dataclass
from enum import StrEnum


class DriverSource(StrEnum):
    """Where the driver comes from. vgpuctl never downloads one: NVIDIA's licence says who may.

    image: the base image has it. packages: a package repository of the operator. run-file: NVIDIA's Linux installer,
    and windows: its Windows installer, each from an address of the operator.
    """

    NONE = "none"
    IMAGE = "image"
    PACKAGES = "packages"
    RUN_FILE = "run-file"
    WINDOWS = "windows"

    def is_fetched(self) -> bool:
        """True if the guest fetches an installer by its address."""
        return self in (DriverSource.RUN_FILE, DriverSource.WINDOWS)


@dataclass(frozen=True)
class GuestDriver:
    """The driver of one guest.

    version: of the driver, or its branch (`580`); checked against the host's. repository: a line for APT, or the
    address of a DNF repository. key: the public key that signs it, in ASCII armour; None for one that the image trusts.
    package: its name there. url: of the installer. sha256: of the installer.
    toolkit: NVIDIA's container toolkit with a CDI specification as well. hold_kernel: no new kernel by itself.
    """

    source: DriverSource = DriverSource.NONE
    version: str | None = None
    repository: str | None = None
    key: str | None = None
    package: str | None = None
    url: str | None = None
    sha256: str | None = None
    toolkit: bool = False
    hold_kernel: bool = True

    def is_wanted(self) -> bool:
        """True if a guest is set up for its driver: it is installed there, or looked for."""
        return self.source is not DriverSource.NONE
