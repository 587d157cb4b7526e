# SPDX-License-Identifier: Apache-2.0
"""Readings of a GPU's NVLink links, summed over the links."""

from typing import Any, List

from vgpuctl.agent.readings.fields import read_field
from vgpuctl.agent.readings.recorder import Recorder

# NVML_NVLINK_ERROR_DL_*
_ERRORS = {"replay": 0, "recovery": 1, "crc-flit": 2, "crc-data": 3, "ecc-data": 4}
_KIB = 1024
# Scope of nvmlDeviceGetFieldValues that means all links together.
_ALL_LINKS = 0xFFFFFFFF
_NAMES = "nvlink_bytes nvlink_errors"


def read(found: Recorder, library: Any, device: Any) -> None:
    """Record the links of a GPU; NVML answers Not Supported for a board without NVLink."""
    active: List[int] = []
    count = found.ask("nvlink_active_links", lambda: _count_active(library, device, active))
    if not count:
        found.lacks(_NAMES, "the GPU has no active NVLink link")
        return

    def transfers() -> None:
        for direction, number in (
            ("tx", library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX),
            ("rx", library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX),
        ):
            found.add("nvlink_bytes", read_field(library, device, number, _ALL_LINKS) * _KIB, direction)

    def errors() -> None:
        for kind, number in _ERRORS.items():
            total = sum(library.nvmlDeviceGetNvLinkErrorCounter(device, link, number) for link in active)
            found.add("nvlink_errors", total, kind)

    found.ask("nvlink_bytes", transfers)
    found.ask("nvlink_errors", errors)


def _count_active(library: Any, device: Any, active: List[int]) -> int:
    """Return the number of active links. Raises NVMLError of the first link; later ones end the list."""
    for link in range(library.NVML_NVLINK_MAX_LINKS):
        try:
            is_active = library.nvmlDeviceGetNvLinkState(device, link)
        except library.NVMLError:
            if link == 0:
                raise
            break
        if is_active:
            active.append(link)
    return len(active)
