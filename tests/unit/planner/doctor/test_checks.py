# SPDX-License-Identifier: Apache-2.0
"""Every failure mode of reference 9, provoked in what was read of a host; and a healthy host, which has none.

tests/e2e/host/test_check_hosts.py provokes on simulated hosts what those can show.
"""

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import emulated_a40, host_facts, lease, whole_card
from vgpuctl import catalog
from vgpuctl.agent.wire.boot import BootFacts
from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.agent.wire.diagnostics import LOG_PATTERNS, GpuDiagnostics, HostDiagnostics, LogLine, UnitDiagnostics
from vgpuctl.agent.wire.facts import FabricFacts, Gpu, GpuTopology, Holder, MigFacts, ServiceFacts, UnreadPart
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.agent.wire.tuning import GpuTuning
from vgpuctl.model.layout import (
    GpuLayout,
    GpuMatch,
    HostLayout,
    Layout,
    MigVgpuLayout,
    PassthroughLayout,
    SizeMode,
    TuningLayout,
    VfLayout,
    VgpuLayout,
)
from vgpuctl.model.lease import LeaseState, Share
from vgpuctl.planner import doctor
from vgpuctl.planner.doctor import CHECKS, DomainDiagnostics, Examined, Severity, examine
from vgpuctl.planner.doctor.prerequisites_table import PREREQUISITES

GPU = "0000:41:00.0"
VF = "0000:41:00.4"
MANAGER = "nvidia-vgpu-mgr.service"
VGPU = VgpuLayout()
HEALTHY_UNITS = (
    UnitDiagnostics(MANAGER, "loaded", "active", "success"),
    UnitDiagnostics("nvidia-vgpud.service", "loaded", "inactive", "success"),
    UnitDiagnostics("nvidia-fabricmanager.service", "not-found", "inactive", "success"),
)


def seen(gpu: Gpu, layout: Layout = VGPU, *, diagnostics: dict[str, Any] | None = None, **more: Any) -> Examined:
    """A host with one GPU; `diagnostics` are of the GPU."""
    told = GpuDiagnostics(gpu.address, unbind_lock=True, **(diagnostics or {}))
    declared = HostLayout((GpuLayout(GpuMatch(), layout),))
    host = {key: more.pop(key) for key in list(more) if key in HostDiagnostics.__dataclass_fields__}
    facts = replace(host_facts([gpu]), **more.pop("facts", {}))
    return Examined(facts, HostDiagnostics((told,), **{"units": HEALTHY_UNITS, **host}), declared, **more)


def a40(**changes: Any) -> Gpu:
    return replace(emulated_a40().facts(), **changes)


def a40_with(*types: str) -> Gpu:
    gpu = emulated_a40()
    for function, name in zip(gpu.functions, types, strict=False):
        gpu.create(name, function)
    return gpu.facts()


def h100(**changes: Any) -> Gpu:
    return replace(
        EmulatedGpu(catalog.board("nvidia-h100-pcie-80gb"), GPU, "vf-profile", vf_count=20).facts(), **changes
    )


def behind_switch(state: str, **more: Any) -> Gpu:
    return h100(topology=GpuTopology(fabric=FabricFacts(state, **more)))


def broken_lease() -> Any:
    held = Share(GPU, Sharing.VF_PROFILE, "A40-8Q", VF, type_id="559")
    return replace(lease("gpu1", held, state=LeaseState.BROKEN), problem="EIO")


def whole_large() -> Gpu:
    return replace(whole_card(), bars_bytes=(256 << 30,))


def m60() -> Gpu:
    return EmulatedGpu(catalog.board("nvidia-tesla-m60"), GPU, "mdev").facts()


def logged(check: str, text: str = "a line") -> tuple[LogLine, ...]:
    return (LogLine(CheckId(check), "kernel", text),)


def without_unbind_lock() -> Examined:
    found = seen(a40())
    return replace(found, diagnostics=replace(found.diagnostics, gpus=(GpuDiagnostics(GPU, unbind_lock=False),)))


def old_and_new() -> Examined:
    new = EmulatedGpu(catalog.board("nvidia-rtx-pro-6000-blackwell-server"), "0000:81:00.0", "vf-profile", vf_count=4)
    found = seen(m60())
    return replace(found, facts=host_facts([m60(), new.facts()]))


def tuned(*, persistence: bool | None = False, keys: TuningLayout | None = None) -> Examined:
    gpu = a40(tuning=GpuTuning(persistence=persistence), vfs=())
    entry = GpuLayout(GpuMatch(), VGPU, tuning=keys or TuningLayout(250_000, None, True))
    return replace(seen(gpu), layout=HostLayout((entry,)))


CASES: list[tuple[str, Callable[[], Examined], str]] = [
    ("iommu-off", lambda: seen(a40(), facts={"iommu_active": False}), "VT-d"),
    ("sriov-resources", lambda: seen(a40(total_vfs=0, vfs=())), "Above 4G"),
    ("foreign-driver", lambda: seen(a40(driver="nouveau")), "blacklist nouveau"),
    ("driver-without-vgpu", without_unbind_lock, "vGPU Manager"),
    ("wrong-driver", lambda: seen(a40(driver="pci-pf-stub")), "apply-hosts"),
    ("wrong-driver", lambda: seen(a40(driver="vfio-pci", vfs=())), "apply-hosts"),
    ("gpu-in-use", lambda: seen(a40(users=(Holder(77, "nvidia-smi"),))), "stop_services"),
    ("mode-pending", lambda: seen(h100(mig=MigFacts(False, True))), "--reset"),
    ("mode-pending", lambda: seen(a40(), diagnostics={"ecc_current": True, "ecc_pending": False}), "reboot"),
    ("mig-without-instance", lambda: seen(h100(mig=MigFacts(True, True)), MigVgpuLayout()), "geometry"),
    ("size-conflict", lambda: seen(a40_with("A40-4Q"), VgpuLayout(types=("A40-8Q",))), "mixed-size"),
    ("stale-vgpu", lambda: seen(a40_with("A40-8Q")), "current_vgpu_type"),
    ("mixed-size-lost", lambda: seen(a40(heterogeneous=False), VgpuLayout(size_mode=SizeMode.MIXED)), "apply-hosts"),
    ("fabric", lambda: seen(behind_switch("in-progress")), "802"),
    ("fabric", lambda: seen(behind_switch("completed"), fabric_mode=0), "FABRIC_MODE=2"),
    ("memory-map", lambda: seen(whole_large(), PassthroughLayout(), address_bits=39), "X-PciMmio64Mb"),
    (
        "group-not-isolated",
        lambda: seen(whole_card(), PassthroughLayout(), diagnostics={"strangers": ("0000:00:1f.3",)}),
        "ACS",
    ),
    (
        "group-not-isolated",
        lambda: seen(replace(whole_card(), driver="vfio-pci"), PassthroughLayout()),
        "every function",
    ),
    ("no-reset", lambda: seen(replace(whole_card(), reset_methods=("bus",)), PassthroughLayout()), "disable_idle_d3"),
    ("kernel-module", lambda: seen(a40(driver=None), nvidia_module=False), "dkms"),
    ("kernel-module", lambda: seen(a40(), facts={"nvml_problem": "Driver/library version mismatch"}), "reboot"),
    ("secure-boot", lambda: seen(a40(driver=None), lines=logged("secure-boot"), secure_boot=True), "mokutil"),
    (
        "vgpu-manager",
        lambda: seen(a40(), units=(UnitDiagnostics(MANAGER, "loaded", "failed", "exit-code"),)),
        "journalctl",
    ),
    (
        "ecc-and-type",
        lambda: seen(m60(), VgpuLayout(types=("M60-2B",)), diagnostics={"ecc_current": True, "ecc_pending": True}),
        "-e 0",
    ),
    ("mixed-generations", old_and_new, "release notes"),
    ("stop-race", lambda: seen(a40(), leases=(broken_lease(),)), "vgpuctl repair"),
]


@pytest.mark.parametrize(
    ("check", "provoke", "fix"), CASES, ids=[f"{case[0]}-{number}" for number, case in enumerate(CASES)]
)
def test_a_provoked_failure_is_found_with_its_fix(check: str, provoke: Callable[[], Examined], fix: str) -> None:
    found = [finding for finding in examine(provoke()) if finding.check == check]
    assert found, [finding.check for finding in examine(provoke())]
    assert any(fix in finding.fix for finding in found) and all(finding.read for finding in found)


LOGGED = {one.check for one in LOG_PATTERNS}
# Lines that count beside a host that is as they say.
BESIDE: dict[str, Callable[[], Gpu]] = {
    "foreign-driver": lambda: a40(driver=None, vfs=()),
    "mixed-generations": lambda: a40(driver=None, vfs=()),
    "driver-without-vgpu": lambda: a40(types=()),
    "secure-boot": lambda: a40(driver=None, vfs=()),
    "sriov-resources": lambda: a40(vfs=()),
}


def beside(check: str, **more: Any) -> Examined:
    """A host whose state agrees with the logged line."""
    facts = {"nvml_problem": "NVML does not answer"} if check == "kernel-module" else {}
    return seen(BESIDE.get(check, a40)(), lines=logged(check, "the very line"), facts=facts, **more)


@pytest.mark.parametrize("check", sorted(LOGGED))
def test_what_a_log_says_is_found_too(check: str) -> None:
    assert (check, "kernel: the very line") in [(one.check, one.read) for one in examine(beside(check))]


@pytest.mark.parametrize(
    ("check", "gpu", "layout"),
    [
        # `probe routine was not called`: the card is on vfio-pci because that is declared.
        ("foreign-driver", lambda: replace(whole_card(), driver="vfio-pci", companions=()), PassthroughLayout()),
        ("foreign-driver", a40, VGPU),
        # The driver names an old board that a guest's driver serves.
        ("mixed-generations", lambda: replace(whole_card(), driver="vfio-pci", companions=()), PassthroughLayout()),
        # One card of the host is for displays; those for vGPUs offer their types.
        ("driver-without-vgpu", a40, VGPU),
        # The room came with a later boot option, or nobody wants VFs.
        ("sriov-resources", a40, VGPU),
    ],
)
def test_what_a_log_says_is_history_on_a_host_that_is_well(check: str, gpu: Callable[[], Gpu], layout: Layout) -> None:
    lines = (LogLine(CheckId(check), "kernel", "the very line", GPU),)
    assert [one.check for one in examine(seen(gpu(), layout, lines=lines)) if one.check == check] == []


@pytest.mark.parametrize("check", ["kernel-module", "secure-boot"])
def test_a_refused_program_or_module_of_others_is_only_noted(check: str) -> None:
    """NVML answers, and every card has its driver: another program's library, another card's module."""
    (found,) = examine(seen(a40(), lines=logged(check), secure_boot=True))
    assert (found.check, found.severity) == (check, Severity.NOTE)


def test_a_refused_type_on_a_card_with_a_vgpu_is_no_missing_instance() -> None:
    line = "NVRM: Failed to add vgpu create request: 0x38"
    assert examine(seen(a40(), lines=logged("mig-without-instance", line))) == ()
    with_mig = seen(h100(mig=MigFacts(True, True)), MigVgpuLayout(), lines=logged("mig-without-instance", line))
    assert f"kernel: {line}" in [one.read for one in examine(with_mig)]


@pytest.mark.parametrize("check", ["sriov-resources", "no-reset"])
def test_what_the_kernel_says_of_a_device_that_is_no_gpu_is_not_of_this_host_to_fix(check: str) -> None:
    def lines(device: str | None) -> tuple[LogLine, ...]:
        return (LogLine(CheckId(check), "kernel", "the very line", device),)

    assert examine(seen(a40(vfs=()), lines=lines("0000:02:00.0"))) == ()
    for device in (GPU, None):
        assert check in [one.check for one in examine(seen(a40(vfs=()), lines=lines(device)))]


@pytest.mark.parametrize(
    ("gpu", "layout"),
    [
        (emulated_a40().facts(), VgpuLayout(types=("A40-8Q",))),
        (whole_card(), PassthroughLayout()),
        (EmulatedGpu(catalog.board("intel-flex-170"), GPU, "vf", vf_count=4).facts(), VfLayout(4)),
        (m60(), VgpuLayout()),
    ],
    ids=["A40", "whole card", "Flex 170", "M60"],
)
def test_a_healthy_host_has_no_finding(gpu: Gpu, layout: Layout) -> None:
    assert examine(seen(gpu, layout)) == ()


def test_a_vgpu_that_somebody_may_want_is_not_stale() -> None:
    gpu = a40_with("A40-8Q")
    held = Share(GPU, Sharing.VF_PROFILE, "A40-8Q", VF, type_id="559")
    used = next(one.address for one in gpu.vfs if one.current_type not in (None, "0"))
    leased = seen(gpu, leases=(lease("gpu1", replace(held, function=used)),))
    made = seen(gpu, made=(used,))
    defined = seen(gpu, domains=(DomainDiagnostics("web-9", "u", False, (used,)),))
    running = seen(replace(gpu, vfs=tuple(replace(one, holders=(Holder(5, "qemu"),)) for one in gpu.vfs)))
    for examined in (leased, made, defined, running):
        assert [one.check for one in examine(examined)] == []


def test_every_row_of_the_reference_has_one_check_and_a_case() -> None:
    assert [check.row for check in CHECKS if check.row] == list(range(1, 25))
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    known = {check.id for check in CHECKS}
    assert known >= LOGGED
    beside = {CheckId.VGPU_STATE_LOST}  # of the reference's page on moves, which has no row of the doctor
    assert {check.id for check in CHECKS if check.row} == {case[0] for case in CASES} | LOGGED - beside


def test_no_finding_is_worse_than_its_check_and_one_is_as_bad() -> None:
    order = list(Severity)
    found = [one for _, provoke, _ in CASES for one in examine(provoke())]
    found += [one for check in LOGGED for one in examine(beside(check))]
    worst = {one.check: one.severity for one in sorted(found, key=lambda one: -order.index(one.severity))}
    assert {check.id: check.worst for check in CHECKS if check.row} == {
        check: severity for check, severity in worst.items() if check in {one.id for one in CHECKS if one.row}
    }


def with_vfs(driver: str | None, *, offers_types: bool | None = None, count: int = 32) -> Gpu:
    gpu = emulated_a40().facts()
    sick = tuple(replace(one, driver=driver, offers_types=offers_types) for one in gpu.vfs[:count])
    return replace(gpu, vfs=(*sick, *gpu.vfs[count:]))


@pytest.mark.parametrize(
    ("check", "examined", "read", "fix"),
    [
        ("pf-unbound", seen(a40(driver=None, vfs=())), "driver is none", "binds nvidia"),
        ("vfs-without-driver", seen(with_vfs(None)), "VFs without a driver", "apply-hosts"),
        ("vfs-on-stub", seen(with_vfs("pci-pf-stub")), "on pci-pf-stub", "apply-hosts"),
        ("vfs-unregistered", seen(with_vfs("nvidia", offers_types=False)), "without vGPU types", "nvidia-vgpu-mgr"),
        ("vfs-on-other-driver", seen(with_vfs("vfio-pci")), "on another driver", "managed='yes'"),
        ("board-unknown", seen(a40(vfs=(), types=()), sriov_boards=("20b0",)), "knows 20b0", "driver"),
    ],
)
def test_each_sick_state_of_sriov_is_named_with_its_remedy(check: str, examined: Examined, read: str, fix: str) -> None:
    [finding] = [one for one in examine(examined) if one.check == check]
    assert finding.severity is Severity.ERROR and read in finding.read and fix in finding.fix


def test_a_card_with_healthy_vfs_left_is_a_warning_and_held_vfs_are_somebodys() -> None:
    [finding] = [one for one in examine(seen(with_vfs(None, count=1))) if one.check == "vfs-without-driver"]
    assert finding.severity is Severity.WARNING and finding.read.startswith("1 of ")
    gpu = with_vfs("vfio-pci", count=1)
    held = replace(gpu, vfs=(replace(gpu.vfs[0], holders=(Holder(5, "qemu"),)), *gpu.vfs[1:]))
    assert "vfs-on-other-driver" not in [one.check for one in examine(seen(held))]


@pytest.mark.parametrize("name", ["pve-nvidia-sriov@ALL.service", "nvidia-sriov.service", "nvidia-mig-manager.service"])
def test_units_of_others_that_change_sriov_are_warned_of(name: str) -> None:
    examined = seen(a40(), facts={"services": (ServiceFacts(name, False), ServiceFacts("ssh.service", True))})
    [finding] = [one for one in examine(examined) if one.check == "foreign-sriov-unit"]
    assert finding.severity is Severity.WARNING and f"systemctl disable --now {name}" in finding.fix
    assert name in finding.read


def test_an_unread_part_is_an_error_where_it_keeps_vms_away_and_else_a_warning() -> None:
    (finding,) = examine(seen(a40(unread=("numa_node cannot be read",), problems=("numa_node cannot be read",))))
    assert (finding.check, finding.severity) == ("unread", Severity.ERROR)
    (finding,) = examine(seen(a40(unread=("NVML does not tell its name",))))
    assert (finding.check, finding.severity) == ("unread", Severity.WARNING)


def test_an_unread_fact_of_the_host_is_named_and_an_error_where_it_keeps_vms_away() -> None:
    def found(*names: str) -> list[tuple[str, Severity]]:
        unread = tuple(UnreadPart(name, f"{name} cannot be read: EIO") for name in names)
        return [(one.check, one.severity) for one in examine(seen(a40(), facts={"unread": unread}))]

    assert found("machine_id", "selinux") == [("unread", Severity.WARNING)] * 2
    assert found("kvm") == [("unread", Severity.WARNING), ("unread", Severity.ERROR)]
    # The default value of an unread fact causes no second finding.
    unread = (UnreadPart("iommu_active", "EIO"), UnreadPart("guest_firmwares", "EIO"))
    facts = {"iommu_active": False, "guest_firmwares": None, "unread": unread}
    assert {one.check for one in examine(seen(a40(), facts=facts))} == {"unread"}


@pytest.mark.parametrize(("version", "found"), [("8.0.0", ["libvirt-too-old"]), ("9.7.0", []), (None, [])])
def test_libvirt_that_gives_no_vm_a_vf_profile_is_named_before_any_vm_is_tried(
    version: str | None, found: list[str]
) -> None:
    findings = examine(seen(emulated_a40().facts(), facts={"libvirt_version": version}))
    assert [one.check for one in findings if one.check == "libvirt-too-old"] == found


def test_a_boot_unit_whose_python_is_gone_is_named() -> None:
    boot = BootFacts(
        "m", is_enabled=True, restored_boot_id=seen(a40()).facts.boot_id, missing_python="/usr/bin/python3.9"
    )
    (found,) = examine(seen(a40(), facts={"boot": boot}))
    assert (found.check, found.severity) == ("boot-contract", Severity.ERROR)
    assert "/usr/bin/python3.9" in found.read


def test_settings_that_the_driver_may_forget_are_a_note_with_the_service_that_keeps_them() -> None:
    (found,) = (one for one in examine(tuned()) if one.check is CheckId.SETTINGS_NOT_KEPT)
    assert found.severity is Severity.NOTE
    assert "its power_limit_w may be forgotten" in found.read and "nvidia-persistenced" in found.fix


@pytest.mark.parametrize(
    "examined",
    [
        tuned(persistence=True),
        tuned(persistence=None),
        tuned(keys=TuningLayout(ecc=True)),
        replace(tuned(), facts=host_facts([a40(tuning=GpuTuning(persistence=False))])),
    ],
    ids=["kept", "not told", "ECC is the card's", "VFs keep it open"],
)
def test_settings_that_are_kept_are_no_finding(examined: Examined) -> None:
    assert not [one for one in examine(examined) if one.check is CheckId.SETTINGS_NOT_KEPT]


def test_every_id_is_that_of_a_check_or_a_prerequisite() -> None:
    ids = [*(check.id for check in CHECKS), *(one.id for one in PREREQUISITES)]
    assert set(CheckId) == {*ids, CheckId.LIBVIRT}


def test_an_id_is_written_once() -> None:
    given = {
        argument.value
        for path in Path(doctor.__file__).parent.glob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }
    assert given & {check.value for check in CheckId} == set()
    assert {type(check) for check in LOGGED} == {CheckId}


@pytest.mark.parametrize(
    ("gpu", "profile", "state", "words"),
    [
        (
            a40_with("A40-8Q"),
            "A40-24Q",
            LeaseState.RUNNING,
            f"{VF} carries A40-8Q (type 562) now, not A40-24Q, which VM",
        ),
        (a40(types=()), "A40-24Q", LeaseState.BUILT, None),
        (a40(), "A40-25Q", LeaseState.BUILT, f"GPU {GPU} has no type A40-25Q now; its id 562 is A40-8Q now; VM"),
        (a40(), "A40-25Q", LeaseState.RESERVED, None),
        (a40(), "A40-24Q", LeaseState.BUILT, None),
        (a40_with("A40-8Q"), "A40-8Q", LeaseState.RUNNING, None),
    ],
    ids=["other type", "no types yet", "gone", "only promised", "not there, which repair fixes", "as promised"],
)
def test_a_share_is_compared_with_its_promise_by_the_name_of_its_type(
    gpu: Gpu, profile: str, state: LeaseState, words: str | None
) -> None:
    held = lease("gpu1", Share(GPU, Sharing.VF_PROFILE, profile, VF, type_id="562"), state=state)
    found = [one for one in examine(seen(gpu, leases=[held])) if one.check is CheckId.VGPU_TYPE]
    assert [one.severity for one in found] == ([] if words is None else [Severity.ERROR])
    assert all(words in one.read for one in found if words is not None)


def test_a_list_of_shares_at_boot_without_names_is_a_warning() -> None:
    boot = BootFacts("digest", True, host_facts([]).boot_id, unnamed=(VF,))
    (found,) = (one for one in examine(seen(a40(), facts={"boot": boot})) if one.check is CheckId.BOOT_CONTRACT)
    assert found.severity is Severity.WARNING and VF in found.read and "apply-hosts" in found.fix
