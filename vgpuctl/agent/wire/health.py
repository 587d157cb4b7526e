# SPDX-License-Identifier: Apache-2.0
"""The health of a host's GPUs, a reading beside the facts. Python 3.9, standard library only.

None means that the GPU, its driver or the kernel does not have the value. A value that it has and that could not be
read is a sentence in `unread`, so nobody takes it for good.
"""

from typing import Optional, Tuple

from vgpuctl.agent.wire.values import dataclass

OFF_THE_BUS = "ffff:ffff"
"""Vendor and device id in the config space of a function that no longer answers: all bits are set."""


@dataclass(frozen=True)
class Bar:
    """One memory BAR of a function. is_assigned: the kernel gave it an address, and its register still has one."""

    number: int
    size_bytes: int
    is_assigned: bool


@dataclass(frozen=True)
class EccErrors:
    """Numbers of memory errors that ECC corrected, and that it could not correct."""

    corrected: int
    uncorrected: int


@dataclass(frozen=True)
class RemappedRows:
    """Memory rows that were replaced by spare ones (Ampere and later).

    corrected, uncorrected: by the kind of error. is_pending: a row is replaced at the next reset. has_failed: there was
    no spare row.
    """

    corrected: int
    uncorrected: int
    is_pending: bool
    has_failed: bool


@dataclass(frozen=True)
class RetiredPages:
    """Memory pages that are no longer used (before Ampere). is_pending: one is retired at the next reset."""

    single_bit: int
    double_bit: int
    is_pending: bool


@dataclass(frozen=True)
class Xid:
    """One Xid of the kernel's log. at_s: seconds since the boot. text: the driver's words after the code."""

    code: int
    at_s: float
    text: str


@dataclass(frozen=True)
class DriverFailure:
    """The driver's message when it gave the card up without an Xid. at_s: seconds since the boot."""

    at_s: float
    text: str


@dataclass(frozen=True)
class GpuHealth:
    """The health of one GPU.

    kernel_ids: vendor and device id as the kernel read them when it found the card; config_ids: as the config space
    has them now. volatile: memory errors since the driver was loaded; aggregate: in the card's life. nvml_state: NVML's
    `lost` or `reset-required`. xids: of this boot, oldest first, as far back as the log goes: the last ones, and of
    each code the last one. driver_failures: the last ones of this boot,
    oldest first, also where the driver has the card again.
    """

    address: str
    kernel_ids: str
    config_ids: Optional[str]
    driver: Optional[str]
    bars: Tuple[Bar, ...] = ()
    reset_methods: Tuple[str, ...] = ()
    uuid: Optional[str] = None
    vbios: Optional[str] = None
    volatile: Optional[EccErrors] = None
    aggregate: Optional[EccErrors] = None
    remapped: Optional[RemappedRows] = None
    retired: Optional[RetiredPages] = None
    nvml_state: Optional[str] = None
    xids: Tuple[Xid, ...] = ()
    unread: Tuple[str, ...] = ()
    driver_failures: Tuple[DriverFailure, ...] = ()


@dataclass(frozen=True)
class HostHealth:
    """The health of every GPU of a host.

    read_at_s: seconds since the boot, by a clock that nobody sets. log_begins_s: the time since the boot of the oldest
    line that the kernel's log still has. scrubs_memory: whether NVIDIA's driver clears memory that is freed;
    None without that driver. unread: parts of the host that could not be read.
    """

    boot_id: str
    gpus: Tuple[GpuHealth, ...]
    read_at_s: float = 0.0
    log_begins_s: float = 0.0
    scrubs_memory: Optional[bool] = None
    unread: Tuple[str, ...] = ()
