# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Multi-Process Service (MPS) in a guest: programs of one tenant that share the VM's GPUs at the same time."""

from dataclasses import dataclass

from vgpuctl.errors import UsageError

MOST_CLIENTS = 60
"""Client contexts of CUDA that one device takes, since CUDA 13.1, whose driver is R590.

Source: docs.nvidia.com/deploy/mps, release 590, "When to Use MPS", Client-Server Connection Limits.
"""
MOST_CLIENTS_BEFORE = 48
"""With CUDA 13.0 and before, on Volta and later (same place)."""
FIRST_WITH_MOST = 590
"""The first branch of the driver that takes MOST_CLIENTS."""

THREADS_HINT = "write a percentage from 1% to 100%"


@dataclass(frozen=True)
class Mps:
    """Settings of the control daemon in the guest, for each of the VM's GPUs.

    clients: among how many programs a GPU is divided; MPS has no limit of its own that could enforce it.
    threads_percent: the part of the GPU's threads that each of them may use at most; 100 divided by clients without it.
    memory_mib: the device memory that each may have; what the guest sees of it, divided by clients, without it.
    """

    clients: int = 1
    threads_percent: int | None = None
    memory_mib: int | None = None

    @property
    def threads(self) -> int:
        """The percentage of threads that the daemon is told: as asked for, else 100 divided by clients."""
        return self.threads_percent or max(100 // self.clients, 1)


@dataclass(frozen=True)
class GuestRequest:
    """Software that is set up in the guest beside its driver. mps: None for none."""

    mps: Mps | None = None


def parse_threads(text: str, /, *, what: str = "threads") -> int:
    """Read a percentage such as `25%`. Raises UsageError: a number alone could be meant as 25 threads, or as a part."""
    number = text.strip().removesuffix("%").strip()
    is_percentage = text.strip().endswith("%") and number.isascii() and number.isdigit() and len(number) < 5
    if not is_percentage or not 1 <= int(number) <= 100:
        raise UsageError(f"{what} is {text[:40]!r}, which is no part of the GPU's threads", hint=THREADS_HINT)
    return int(number)


def format_threads(percent: int) -> str:
    """Write a percentage as `parse_threads` reads it."""
    return f"{percent}%"
