# SPDX-License-Identifier: Apache-2.0
"""The seats of a licence pool, as they are listed."""

from vgpuctl.model.licence import Edition, LicencePool, LicenceSeat
from vgpuctl.usecases.licence.list_licence_pools import _state_of


def test_seats_are_in_the_natural_order_of_their_vms() -> None:
    names = ("web-10", "web-9", "web-1")
    seats = [LicenceSeat("dls", "acme", name, name, Edition.VWS, 0.0) for name in names]
    state = _state_of(LicencePool("dls", Edition.VWS, 4, 60, None), seats, [])
    assert [one.vm_name for one in state.seats] == ["web-1", "web-9", "web-10"] and state.free == 1
