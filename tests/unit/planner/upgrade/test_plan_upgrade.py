# SPDX-License-Identifier: Apache-2.0
"""The order of an upgrade, and what it changes on a host."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import emulated_a40, emulated_t4, host_facts
from vgpuctl.agent.wire.boot import BootFacts
from vgpuctl.agent.wire.facts import Gpu, GpuInstance, HostFacts, MigFacts, ServiceFacts
from vgpuctl.planner.upgrade import UpgradeHost, UpgradeTarget, UpgradeVm, plan_upgrade

DRIVER = UpgradeTarget("595.45.04", None)
A40 = host_facts([emulated_a40().facts()])


def _vm(name: str, to: str | None = None, *, runs: bool = True, apart: str | None = None) -> UpgradeVm:
    return UpgradeVm(name, runs, "move" if to else "stop", to, None, has_vgpu=True, apart=apart)


def _host(name: str, *vms: UpgradeVm, facts: HostFacts = A40) -> UpgradeHost:
    return UpgradeHost(name, facts, vms)


def _batches(*hosts: UpgradeHost, at_once: int = 4) -> list[list[str]]:
    plan = plan_upgrade(hosts, DRIVER, at_once=at_once)
    found: dict[int, list[str]] = {}
    for one in plan.hosts:
        found.setdefault(one.batch, []).append(one.name)
    return list(found.values())


def test_the_emptiest_host_is_first_and_alone() -> None:
    busy, empty = _host("a", _vm("acme/1"), _vm("acme/2")), _host("c")
    quiet = _host("b", _vm("acme/3", runs=False))
    assert _batches(busy, quiet, empty) == [["c"], ["b", "a"]]
    assert _batches(busy, quiet, empty, at_once=1) == [["c"], ["b"], ["a"]]


def test_each_kind_of_gpus_has_a_first_host() -> None:
    t4 = host_facts([emulated_t4().facts()])
    assert _batches(_host("a"), _host("b"), _host("t", facts=t4), _host("u", facts=t4)) == [["a"], ["t"], ["b", "u"]]


def test_hosts_of_one_anti_affinity_group_are_never_down_together() -> None:
    hosts = [_host("first"), *(_host(name, _vm(f"acme/{name}", apart="acme/db")) for name in "abc"), _host("d")]
    assert _batches(*hosts) == [["d"], ["first", "a"], ["b"], ["c"]]


def test_room_that_vms_move_to_is_counted_once_and_stays_up() -> None:
    hosts = [_host("first"), _host("a", _vm("acme/1", "x")), _host("b", _vm("acme/2", "x")), _host("c", _vm("v", "a"))]
    assert _batches(*hosts) == [["first"], ["a"], ["b", "c"]]


def test_a_host_that_is_upgraded_already_is_said_to_be_done() -> None:
    there = _host("a", facts=replace(A40, nvidia_driver="595.45.04"))
    plan = plan_upgrade([there, _host("b")], DRIVER, at_once=1)
    assert plan.done == ("a",) and [one.name for one in plan.hosts] == ["b"]
    both = plan_upgrade([there], UpgradeTarget("595.45.04", "6.12.0"), at_once=1)
    assert not both.done


def test_a_host_without_the_driver_is_left_out_of_its_upgrade() -> None:
    intel = replace(emulated_a40().facts(), vendor_id="8086", device_id="56c0", name=None)
    other = _host("a", facts=replace(host_facts([intel]), nvidia_driver=None))
    plan = plan_upgrade([other, _host("b")], DRIVER, at_once=1)
    assert (plan.without_driver, plan.done, [one.name for one in plan.hosts]) == (("a",), (), ["b"])
    both = plan_upgrade([other], UpgradeTarget("595.45.04", "6.12.0"), at_once=1)
    assert both.without_driver == ("a",) and both.hosts[0].boards == ("Intel Data Center GPU Flex 170",)
    kernel = plan_upgrade([other], UpgradeTarget(None, "6.12.0"), at_once=1)
    assert not kernel.without_driver and kernel.hosts


def test_guests_that_break_are_named_and_the_others_are_unknown() -> None:
    old = replace(_vm("acme/old"), guest_driver="550.54.16")
    passthrough = replace(_vm("acme/whole"), has_vgpu=False)
    plan = plan_upgrade([_host("a", old, _vm("acme/silent"), passthrough)], DRIVER, at_once=1)
    assert [vm.name for vm in plan.breaking] == ["acme/old"]
    verdicts = {vm.name: vm.guest and str(vm.guest.verdict) for vm in plan.hosts[0].vms}
    assert verdicts == {"acme/old": "breaks", "acme/silent": "unknown", "acme/whole": None}
    kernel = plan_upgrade([_host("a", old)], UpgradeTarget(None, "6.12.0"), at_once=1)
    assert not kernel.breaking and not kernel.branches


def _changes(target: UpgradeTarget, facts: HostFacts) -> list[str]:
    (planned,) = plan_upgrade([_host("a", facts=facts)], target, at_once=1).hosts
    assert all(change.todo for change in planned.changes)
    return [f"{change.gpu or 'host'}: {change.found}" for change in planned.changes]


@pytest.mark.parametrize(
    ("kernel", "is_expected"),
    [
        ("6.8.0-79-generic", True),
        ("5.14.0-427.13.1.el9_4.x86_64", True),
        ("6.12.0-55.el10.x86_64", True),
        ("5.15.0-122-generic", False),
        ("5.14.0-362.8.1.el9_3.x86_64", False),
        ("custom", False),
    ],
)
def test_a_kernel_without_mdevs_of_vfs_changes_the_domains(kernel: str, is_expected: bool) -> None:
    on_vfs = host_facts([emulated_a40(sharing="mdev-vf").facts()])
    (found,) = [one for one in _changes(UpgradeTarget(None, kernel), on_vfs) if "mdevs on VFs" in one]
    assert ("expected as VFs" in found) is is_expected and ("not known" in found) is not is_expected
    for facts in (A40, host_facts([emulated_t4().facts()])):
        assert not any("mdevs on VFs" in one for one in _changes(UpgradeTarget(None, kernel), facts))
    assert not any("mdevs on VFs" in one for one in _changes(DRIVER, on_vfs))


def test_a_list_of_ids_alone_is_to_be_written_again_before_the_driver_changes() -> None:
    boot = BootFacts("digest", is_enabled=True, unnamed=("0000:41:00.4",))
    facts = replace(host_facts([emulated_a40().facts()]), boot=boot)
    what = "host: the boot unit would make 1 vGPU by the type ids of the driver of now"
    assert what in _changes(DRIVER, facts)
    assert what not in _changes(DRIVER, replace(facts, boot=replace(boot, unnamed=())))
    assert what not in _changes(UpgradeTarget(None, "6.9"), facts)


def test_what_a_reboot_takes_is_listed() -> None:
    instances = (GpuInstance(1, "3g.20gb", 0, 4, in_use=False), GpuInstance(2, "1g.5gb", 4, 1, in_use=False))
    gpu: Gpu = replace(emulated_a40().facts(), mig=MigFacts(True, False, instances), heterogeneous=True)
    facts = replace(host_facts([gpu]), services=(ServiceFacts("nvidia-fabricmanager", True),))
    address = gpu.address
    assert _changes(DRIVER, facts) == [
        "host: the fabric manager must have the driver's version",
        "host: nothing restores VFs, MIG instances and vGPUs at boot",
        f"{address}: 2 MIG instances are lost and must be made again",
        f"{address}: MIG mode is pending: the reboot turns it off",
        f"{address}: mixed-size mode is lost",
        f"{address}: the ids of vGPU types may change with the driver",
    ]
    assert "host: the driver's modules must exist for the new kernel" in _changes(UpgradeTarget(None, "6.9"), facts)
