# SPDX-License-Identifier: Apache-2.0
"""The load of shares that came after the reading that a policy goes by: each counts with the load of its kind."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.model.lease import Lease, Share
from vgpuctl.scheduler.rolling import part_seen
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of

SETTLED_S = 300.0
"""How long a guest may take to boot and to begin its work."""


@dataclass(frozen=True)
class UnmeasuredLoad:
    """seen: by id of a lease, the part of its load that is in the reading, 0 to 1; what is not there is not in it.

    kinds: by vGPU type, the mean percent of a GPU that one share was measured with. A type that was never measured
    counts with all that its share promises.
    """

    seen: Mapping[str, float]
    kinds: Mapping[str, float]

    def percent(self, leases: Collection[Lease], gpu: Gpu) -> float:
        """Load of a GPU's shares that its measured utilisation lacks, in percent of the GPU."""
        return sum(
            (1 - self.seen.get(one.id, 0.0)) * self._of_kind(one.share, gpu)
            for one in leases
            if self.seen.get(one.id, 0.0) < 1
        )

    def _of_kind(self, share: Share, gpu: Gpu) -> float:
        measured = self.kinds.get(share.profile)
        return 100 * _promised(share, gpu) if measured is None else measured


def seen_part(begun_at: float, read_at: float, *, is_rolling: bool) -> float:
    """How much of a share's load is in a reading. Times in seconds since the epoch.

    is_rolling: the load of the last hour, of which a share that runs for a minute is a small part; in quarters, so that
    a fleet need not be put together again each second. A single reading has seen a share whose guest had time to start
    its work.
    """
    age_s = read_at - begun_at
    if is_rolling:
        return round(4 * part_seen(max(0.0, age_s))) / 4
    return 1.0 if age_s >= SETTLED_S else 0.0


def _promised(share: Share, gpu: Gpu) -> float:
    takes = kind_of(share.sharing).takes
    if takes is Takes.CARD:
        return 1.0
    if takes is Takes.FUNCTION:
        return 1 / max(1, len(gpu.vfs))
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    memory_mib = (board.memory_mib if board is not None else None) or gpu.memory_mib
    return min(1.0, share.framebuffer_mib / memory_mib) if memory_mib and share.framebuffer_mib else 1.0
