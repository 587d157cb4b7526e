# SPDX-License-Identifier: Apache-2.0
"""An event when a running guest loses its licence and when it has one again, each written once."""

from pathlib import Path

from vgpuctl.agent.wire.measure_states import LICENSE_STATES
from vgpuctl.agent.wire.readings import HostReadings, Measured, VgpuReadings
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.event import EventFilter
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.store.store import Store, open_store
from vgpuctl.usecases.telemetry.licence_watch import LicenceWatch

VF = "0000:41:00.4"
SHARE = Share("0000:41:00.0", Sharing.VF_PROFILE, "A40-8Q", VF, type_id="558", framebuffer_mib=8192)
LEASE = Lease("lease-1", "uuid-1", "acme", "web-1", "gpu1", 0, SHARE, LeaseState.RUNNING)


def _readings(state: str) -> dict[str, HostReadings]:
    values = tuple(("license_state", (one,), float(one == state)) for one in LICENSE_STATES)
    vgpu = VgpuReadings(SHARE.gpu, VF, "uuid-1", "A40-8Q", None, Measured(values))
    return {"gpu1": HostReadings("boot-1", 0.0, 0.0, vgpus=(vgpu,))}


def _written(store: Store) -> list[tuple[object, object]]:
    with store.reading() as session:
        found = session.events(None, EventFilter(kinds=("licence-observed",)))
    return [(one.after["licence"], one.evidence["state"]) for one in found]


def test_a_loss_and_a_return_are_events_and_a_boot_is_not(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        with store.transaction() as session:
            session.add_tenant("acme")
        watch = LicenceWatch()
        for state in ("uninitialized", "unlicensed-unrestricted", "licensed", "licensed"):
            watch.look(store, _readings(state), [LEASE])
        assert _written(store) == []
        for state in ("unlicensed-unrestricted", "unlicensed-restricted"):
            watch.look(store, _readings(state), [LEASE])
        watch.look(store, {}, [LEASE])
        lost = [("unlicensed", "unlicensed-unrestricted")]
        assert _written(store) == lost
        # A second process, or one that was started again, tells it once.
        other = LicenceWatch()
        other.look(store, _readings("unlicensed"), [LEASE])
        other.look(store, _readings("licensed"), [LEASE])
        watch.look(store, _readings("licensed"), [LEASE])
        assert _written(store) == [*lost, ("licensed", "licensed")]
