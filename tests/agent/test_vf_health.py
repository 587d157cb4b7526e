# SPDX-License-Identifier: Apache-2.0
"""Health of SR-IOV: which VF can carry a vGPU, and what the facts say of those that cannot."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent import machine
from tests.agent.kernel import make
from tests.agent.machine import Tree, a40, profile_vf, vf_address, virtual_function
from tests.unit.fleet_factory import emulated_a40
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.wire.facts import VirtualFunction
from vgpuctl.agent.wire.vf_health import VfState, describe, is_usable, sick_states, state_of

PF = "0000:41:00.0"


@pytest.mark.parametrize(
    ("driver", "offers_types", "state"),
    [
        ("nvidia", True, VfState.HEALTHY),
        ("nvidia", None, VfState.HEALTHY),
        ("nvidia", False, VfState.UNREGISTERED),
        (None, False, VfState.NO_DRIVER),
        ("pci-pf-stub", False, VfState.ON_STUB),
        ("vfio-pci", False, VfState.OTHER_DRIVER),
    ],
)
def test_a_vf_is_healthy_on_nvidia_with_types(driver: str | None, offers_types: bool | None, state: VfState) -> None:
    assert state_of(driver, offers_types) is state
    function = VirtualFunction(vf_address(0), 0, driver, 24, offers_types=offers_types)
    assert is_usable(function) is (state is VfState.HEALTHY)
    assert not is_usable(replace(function, problem="cannot be read"))


def test_the_states_of_a_card_are_counted_and_other_vendors_have_none() -> None:
    gpu = emulated_a40().facts()
    vfs = (replace(gpu.vfs[0], driver=None), replace(gpu.vfs[1], offers_types=False), *gpu.vfs[2:])
    sick = sick_states(replace(gpu, vfs=vfs))
    assert sick == (VfState.NO_DRIVER, VfState.UNREGISTERED)
    assert describe(sick, len(vfs)) == (
        f"1 of {len(vfs)} VFs without a driver, 1 of {len(vfs)} VFs on nvidia without vGPU types"
    )
    assert sick_states(gpu) == () == sick_states(replace(gpu, vendor_id="8086", vfs=vfs))


def test_the_facts_tell_which_vfs_offer_types(tmp_path: Path) -> None:
    count: Tree = {f"{machine.device_path(PF)}/sriov_numvfs": "2\n"}
    host = make(tmp_path / "some", a40(total_vfs=2), count, profile_vf(0), virtual_function(1))
    [gpu] = read_facts(host).gpus
    assert [vf.offers_types for vf in gpu.vfs] == [True, False]
    assert gpu.problems == (), "a card with one VF left takes a VM on that"
    host = make(tmp_path / "none", a40(total_vfs=2), count, virtual_function(0), virtual_function(1))
    [gpu] = read_facts(host).gpus
    assert "no VF can carry a vGPU: 2 of 2 VFs on nvidia without vGPU types" in gpu.problems[0]
    host.bind(vf_address(0), None)
    host.bind(vf_address(1), "pci-pf-stub")
    [gpu] = read_facts(host).gpus
    assert "1 of 2 VFs without a driver, 1 of 2 VFs on pci-pf-stub" in gpu.problems[0]
