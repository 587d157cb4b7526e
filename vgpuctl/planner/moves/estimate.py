# SPDX-License-Identifier: Apache-2.0
"""How long a VM would stop in a live move.

Calibrated with VMware's table of a V100 on a 10 Gbit/s link (vSphere 7, GUID-8FE6A0DA): 2 s for 1 GB of used memory,
39 s for 32 GB.
"""

_PAYLOAD = 0.7
"""The part of a link's bandwidth that carries state: VMware's table has 0.87 GB/s on 1.25 GB/s."""
_FIXED_S = 1.0
"""To stop the guest on one host and to let it go on on the other, by the same table."""
_BYTES_PER_MBIT = 1_000_000 / 8
_BYTES_PER_MB = 1_000_000


def estimate_downtime(
    *,
    state_bytes: int | None,
    read_mb_s: int | None,
    write_mb_s: int | None,
    link_mbit_s: int | None,
    memory_bytes: int | None,
    dirty_bytes_s: int | None,
    streams: bool | None = None,
    state_dirty_bytes_s: int | None = None,
) -> float | None:
    """Estimate the stop of a live move in seconds; None if a value that it needs is not known.

    state_bytes: of all GPUs of the VM; 0 for a VM without. read_mb_s, write_mb_s: the slowest of its GPUs, in MB/s.
    memory_bytes: of the guest. dirty_bytes_s: how fast it writes it. streams: the GPUs' memory is copied while the VM
    runs too; what was written in the meantime is left, at state_dirty_bytes_s. Where nobody knows that, all of it is
    left. What is written faster than the link carries is left as a whole.
    """
    if state_bytes is None or not link_mbit_s or memory_bytes is None or dirty_bytes_s is None:
        return None
    link = link_mbit_s * _BYTES_PER_MBIT * _PAYLOAD
    stop_s = _FIXED_S + memory_bytes * min(1.0, dirty_bytes_s / link) / link
    if not state_bytes:
        return stop_s
    if not read_mb_s or not write_mb_s:
        return None
    slowest = min(link, read_mb_s * _BYTES_PER_MB, write_mb_s * _BYTES_PER_MB)
    left = min(1.0, state_dirty_bytes_s / slowest) if streams and state_dirty_bytes_s is not None else 1.0
    return stop_s + state_bytes * left / slowest
