# SPDX-License-Identifier: Apache-2.0
"""Enabling and disabling virtual functions, NVIDIA's by a program in the place of sriov-manage."""

from pathlib import Path

from tests.agent import machine
from tests.agent.kernel import FakeKernel, add_program, make, problem, take
from tests.agent.machine import Tree, a40, function, profile_vf, vf_address
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import SetVirtualFunctions

PF = "0000:41:00.0"
VF = vf_address(0)
PROFILE = (a40(total_vfs=1), {f"{machine.device_path(PF)}/sriov_numvfs": "1\n"}, profile_vf(0))


def add_sriov_manage(host: FakeKernel, body: str) -> None:
    """A program in the place of NVIDIA's; `host`, `count` and `address` are at its hand."""
    repository = Path(__file__).parents[2]
    add_program(
        host,
        "/usr/lib/nvidia/sriov-manage",
        "import os, sys\nfrom pathlib import Path\n"
        f"sys.path.insert(0, {str(repository)!r})\n"
        "from tests.agent.kernel import FakeKernel\nfrom tests.agent.machine import profile_vf\n"
        "host = FakeKernel(Path(os.environ['VGPUCTL_ROOT']))\n"
        "action, address = sys.argv[1:]\n"
        "count = 4 if action == '-e' else 0\n" + body,
    )


def test_nvidias_vfs_are_enabled_and_disabled_by_sriov_manage(tmp_path: Path) -> None:
    host = make(tmp_path, a40(total_vfs=4))
    add_sriov_manage(host, "print('Enabling VFs on', address)\nhost.set_vfs(address, count, profile_vf)")
    [change] = take(host, SetVirtualFunctions(PF, 4)).changes
    assert (change.before, change.after, change.changed) == ("0", "4", True)
    writes = host.writes
    assert not take(host, SetVirtualFunctions(PF, 4)).changes[0].changed
    assert host.writes == writes
    assert take(host, SetVirtualFunctions(PF, 0)).changes[0].after == "0"


def test_the_unbind_lock_is_tried_five_times_and_its_user_named(tmp_path: Path) -> None:
    host = make(tmp_path, a40(total_vfs=4), machine.holder(8, "/dev/nvidia0", command="/usr/bin/dcgm"), {"/calls": ""})
    add_sriov_manage(
        host,
        "calls = host.place('/calls')\ncalls.write_text(calls.read_text() + 'x')\n"
        "print('Cannot obtain unbindLock for', address)",
    )
    refused = problem(take(host, SetVirtualFunctions(PF, 4)))
    assert refused.code == "unbind-lock"
    assert "dcgm (pid 8)" in refused.message
    assert host.place("/calls").read_text() == "xxxxx"


def test_the_unbind_lock_may_come_at_the_second_try(tmp_path: Path) -> None:
    host = make(tmp_path, a40(total_vfs=4), {"/calls": ""})
    add_sriov_manage(
        host,
        "calls = host.place('/calls')\n"
        "if calls.read_text():\n    host.set_vfs(address, count, profile_vf)\n"
        "else:\n    calls.write_text('x')\n    print('Cannot obtain unbindLock for', address)",
    )
    assert take(host, SetVirtualFunctions(PF, 4)).problem is None


def test_a_script_that_breaks_off_is_a_problem_and_the_card_goes_back(tmp_path: Path) -> None:
    host = make(tmp_path, a40(total_vfs=4))
    add_sriov_manage(host, "host.bind(address, 'pci-pf-stub')\nprint('write error')")
    refused = problem(take(host, SetVirtualFunctions(PF, 4)))
    assert refused.code == "sriov-failed"
    assert "write error" in refused.message
    assert host.driver(PF) == "nvidia"


def test_a_card_left_on_the_stub_driver_is_repaired_first(tmp_path: Path) -> None:
    host = make(tmp_path, a40(total_vfs=4, driver="pci-pf-stub"))
    add_sriov_manage(host, "assert host.driver(address) == 'nvidia'\nhost.set_vfs(address, count, profile_vf)")
    assert take(host, SetVirtualFunctions(PF, 4)).problem is None
    assert host.driver(PF) == "nvidia"


def test_nvidias_vfs_come_all_or_none_and_only_from_its_driver(tmp_path: Path) -> None:
    host = make(tmp_path / "a", a40(total_vfs=4))
    assert problem(take(host, SetVirtualFunctions(PF, 2))).code == "bad-count"
    assert problem(take(host, SetVirtualFunctions(PF, 4))).code == "program-missing"
    host = make(tmp_path / "b", a40(total_vfs=4, driver="vfio-pci"))
    assert problem(take(host, SetVirtualFunctions(PF, 4))).code == "wrong-driver"


def test_vfs_with_a_vgpu_are_not_taken_away(tmp_path: Path) -> None:
    host = make(tmp_path, *PROFILE, profile_vf(0, current="558"))
    assert problem(take(host, SetVirtualFunctions(PF, 0))).code == "vfs-in-use"


def test_other_vendors_counts_pass_through_zero(tmp_path: Path) -> None:
    pf = "0000:03:00.0"
    files: Tree = {"sriov_totalvfs": "7\n", "sriov_numvfs": "0\n", "sriov_drivers_autoprobe": "1\n"}
    host = make(tmp_path, function(pf, vendor="8086", pci_class="038000", driver="i915", files=files))
    assert take(host, SetVirtualFunctions(pf, 3)).problem is None
    assert take(host, SetVirtualFunctions(pf, 5)).problem is None
    folder = f"/sys/bus/pci/devices/{pf}"
    assert host.written == [
        (f"{folder}/sriov_drivers_autoprobe", "0"),
        (f"{folder}/sriov_numvfs", "3"),
        (f"{folder}/sriov_numvfs", "0"),
        (f"{folder}/sriov_numvfs", "5"),
    ]
    assert problem(take(host, SetVirtualFunctions(pf, 8))).code == "bad-count"


def test_a_dry_run_believes_in_vfs_that_it_would_enable(tmp_path: Path) -> None:
    host = make(tmp_path, a40(total_vfs=4))
    steps = (SetVirtualFunctions(PF, 4), SetVfProfile(VF, "558"))
    reply = take(host, *steps, dry_run=True)
    assert reply.problem is None
    assert [change.changed for change in reply.changes] == [True, True]
    assert problem(take(host, SetVfProfile(VF, "558"), dry_run=True)).code == "not-found"
