# SPDX-License-Identifier: Apache-2.0
"""One lease whose vGPU has a licence, or has none, by its host's NVML."""

from collections.abc import Callable

from vgpuctl.agent.wire.measure_states import LICENSE_STATES
from vgpuctl.agent.wire.readings import Measured, VgpuReadings
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Lease, LeaseState, Share

VF = "0000:41:00.4"
SHARE = Share("0000:41:00.0", Sharing.VF_PROFILE, "A40-8Q", VF, type_id="558", framebuffer_mib=8192)


def licensed_share(host: str) -> tuple[Lease, Callable[[str], VgpuReadings]]:
    """The lease, and its vGPU's readings in a licence state."""

    def readings(state: str) -> VgpuReadings:
        values = tuple(("license_state", (one,), float(one == state)) for one in LICENSE_STATES)
        return VgpuReadings(SHARE.gpu, VF, "uuid-1", "A40-8Q", None, Measured(values))

    return Lease("lease-1", "uuid-1", "acme", "web-1", host, 0, SHARE, LeaseState.RUNNING), readings
