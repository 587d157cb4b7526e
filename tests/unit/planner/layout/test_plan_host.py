# SPDX-License-Identifier: Apache-2.0
"""A host's plan: obstacles, disturbed VMs, the entry that counts, and the host around its GPUs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import lease, whole_card
from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from vgpuctl.agent.wire.facts import Gpu, Holder, HostFacts
from vgpuctl.agent.wire.sharing import CreateMdev, SetVfProfile, Sharing
from vgpuctl.agent.wire.steps import (
    BindDriver,
    CreateGpuInstance,
    DestroyGpuInstance,
    SetServiceActive,
    SetVirtualFunctions,
)
from vgpuctl.model.layout import (
    GpuLayout,
    GpuMatch,
    HostLayout,
    Layout,
    MigLayout,
    MigVgpuLayout,
    OffLayout,
    PassthroughLayout,
    SchedulerLayout,
    SchedulerPolicy,
    SizeMode,
    VfLayout,
    VgpuLayout,
    WantedInstance,
)
from vgpuctl.model.lease import LeaseState, Share
from vgpuctl.planner.layout.plan import leases_in_the_way, plan_host
from vgpuctl.planner.layout.result import HostPlan, Phase

A40, T4, A100, FLEX = "nvidia-a40", "nvidia-t4", "nvidia-a100-pcie-40gb", "intel-flex-170"
GPU, ORIGIN = "0000:41:00.0", "host_vars/gpu1.yml:4"


def declare(layout: Layout, match: GpuMatch | None = None) -> HostLayout:
    return HostLayout((GpuLayout(match or GpuMatch(), layout, ORIGIN),))


def plan_with(layout: Layout, board: str, change: Callable[[Gpu], Gpu] | None = None) -> HostPlan:
    facts = SimulatedHost(SimulatedGpu(board)).facts()
    gpus = tuple(change(gpu) if change else gpu for gpu in facts.gpus)
    return plan_host(declare(layout), replace(facts, gpus=gpus))


def mig_on(*profiles: tuple[str, int]) -> SimulatedGpu:
    gpu = SimulatedGpu(A100)
    assert gpu.card is not None
    gpu.mig = gpu.mig_pending = True
    for profile, start in profiles:
        gpu.card.create(profile, start)
    return gpu


@pytest.mark.parametrize(
    ("code", "layout", "board", "change"),
    [
        ("wrong-vendor", VgpuLayout(), FLEX, None),
        ("wrong-vendor", MigLayout(), FLEX, None),
        ("wrong-vendor", VfLayout(4), A40, None),
        ("no-vgpu", VgpuLayout(), "nvidia-geforce-rtx-3090", None),
        ("no-mig", MigLayout(), A40, None),
        ("no-mig", MigVgpuLayout(), T4, None),
        ("no-virtual-functions", VgpuLayout(virtual_functions=True), T4, None),
        ("needs-virtual-functions", VgpuLayout(virtual_functions=False), A40, None),
        ("sriov-off", VgpuLayout(), A40, lambda gpu: replace(gpu, total_vfs=0)),
        ("foreign-driver", VgpuLayout(), A40, lambda gpu: replace(gpu, driver="nouveau")),
        ("too-many-vfs", VfLayout(200), FLEX, None),
        ("vfs-by-module", VfLayout(4), FLEX, lambda gpu: replace(gpu, driver="gim")),
        ("no-mixed-size", VgpuLayout(size_mode=SizeMode.MIXED), T4, None),
        (
            "scheduler-unreadable",
            VgpuLayout(scheduler=SchedulerLayout(SchedulerPolicy.EQUAL_SHARE)),
            T4,
            lambda gpu: replace(gpu, scheduler=None),
        ),
        ("mig-unreadable", MigLayout(), A100, lambda gpu: replace(gpu, mig=None)),
        ("mig-unknown-profile", MigLayout((WantedInstance("1g.10gb+me"),)), A100, None),
        ("mig-too-many", MigLayout((WantedInstance("4g.20gb"),) * 2), A100, None),
        ("mig-compute-slices", MigLayout((WantedInstance("4g.20gb"), *(WantedInstance("1g.5gb"),) * 4)), A100, None),
        ("mig-memory-slots", MigLayout((WantedInstance("3g.20gb"),) * 2 + (WantedInstance("1g.5gb"),)), A100, None),
        ("mig-bad-placement", MigLayout((WantedInstance("2g.10gb", 1),)), A100, None),
        ("mig-placements", MigLayout((WantedInstance("3g.20gb", 0), WantedInstance("4g.20gb"))), A100, None),
        ("type-not-offered", VgpuLayout(shares=(("A40-8Q", 1),)), T4, None),
        ("no-room", VgpuLayout(shares=(("T4-4Q", 17),)), T4, None),
        ("unread", OffLayout(), A40, lambda gpu: replace(gpu, unread=("sriov_numvfs: EIO",))),
    ],
)
def test_what_cannot_be_reached_is_an_obstacle_and_no_step(
    code: str, layout: Layout, board: str, change: Callable[[Gpu], Gpu] | None
) -> None:
    plan = plan_with(layout, board, change)
    assert [obstacle.code for obstacle in plan.obstacles] == [code]
    assert plan.obstacles[0].origin == ORIGIN
    assert not plan.steps
    assert not plan.is_in_layout


def test_a_type_that_nobody_knows_is_told_with_the_near_ones() -> None:
    (obstacle,) = plan_with(VgpuLayout(shares=(("T4-81Q", 1),)), T4).obstacles
    assert "does not offer T4-81Q; did you mean T4-8Q" in obstacle.reason
    listed = plan_with(VgpuLayout(types=("A40-8Q", "T4-81Q", "T4-4Q")), T4)
    (difference,) = [one for one in listed.differences if one.subject == "types"]
    assert (difference.declared, difference.found) == ("T4-81Q", "no such type")
    assert "did you mean T4-8Q" in str(difference.remedy)


def test_an_obstacle_of_mig_names_the_nearest_that_fits() -> None:
    layout = MigLayout((WantedInstance("3g.20gb"),) * 2 + (WantedInstance("1g.5gb"),))
    (obstacle,) = plan_with(layout, A100).obstacles
    assert obstacle.reason == (
        "1g.5gb + 2 x 3g.20gb does not fit: 9 memory slots of 8, each profile only at its own starts; "
        "the nearest that fits is 2 x 3g.20gb"
    )


def test_a_profile_of_the_other_memory_size_leads_to_its_sibling() -> None:
    (obstacle,) = plan_with(MigLayout((WantedInstance("1g.12gb"), WantedInstance("3g.40gb"))), A100).obstacles
    assert obstacle.reason.endswith("the nearest that fits is 1g.5gb + 3g.20gb")


def test_an_instance_in_use_stops_only_its_own_gpu() -> None:
    busy = mig_on(("3g.20gb", 0))
    assert busy.card is not None
    busy.card.instances[0] = replace(busy.card.instances[0], in_use=True)
    other = mig_on()
    other.address = "0000:81:00.0"
    plan = plan_host(declare(MigLayout((WantedInstance("7g.40gb"),))), SimulatedHost(busy, other).facts())
    assert [(obstacle.gpu, obstacle.code) for obstacle in plan.obstacles] == [(GPU, "mig-in-use")]
    assert "3g.20gb at 0:4 (instance 99) is in use" in plan.obstacles[0].reason
    assert {planned.gpu for planned in plan.steps} == {"0000:81:00.0"}


def test_an_instance_without_compute_instance_gets_one_and_one_in_use_is_left() -> None:
    bare, parts = mig_on(("3g.20gb", 0)), MigLayout((WantedInstance("3g.20gb", None, (2, 1)),))
    assert bare.card is not None
    for layout, said in ((MigLayout((WantedInstance("3g.20gb"),)), "3g.20gb"), (parts, "1c.3g.20gb + 2c.3g.20gb")):
        plan = plan_host(declare(layout), SimulatedHost(bare).facts())
        (planned,) = plan.steps
        assert planned.summary == f"have {said} in the GPU instance at 0:4 of {GPU}"
        assert planned.undo == (DestroyGpuInstance(GPU, "3g.20gb", 0), CreateGpuInstance(GPU, "3g.20gb", 0))
        assert [one.subject for one in plan.differences] == ["mig-compute"]
    bare.card.instances[0] = replace(bare.card.instances[0], in_use=True, compute_instances=1, compute=(3,))
    plan = plan_host(declare(parts), SimulatedHost(bare).facts())
    assert [(one.code, one.gpu) for one in plan.obstacles] == [("mig-in-use", GPU)] and not plan.steps


def test_a_change_of_vfs_names_the_vms_it_disturbs_and_strangers() -> None:
    gpu = SimulatedGpu(A40)
    gpu.vf_count = 32
    first, second, third = gpu.functions[:3]
    gpu.vf_types = {first: "559", second: "559", third: "559"}
    gpu.hold(first)
    held = lease("gpu1", Share(GPU, Sharing.VF_PROFILE, "A40-2Q", first, "559"), vm_name="web-1")
    plan = plan_host(declare(OffLayout()), SimulatedHost(gpu).facts(), [held])
    (step,) = [planned for planned in plan.steps if isinstance(planned.step, SetVirtualFunctions)]
    assert [(one.device, one.vm, one.is_foreign, one.is_running) for one in step.disturbs] == [
        (first, "web-1", False, True),
        (second, None, True, False),
        (third, None, True, False),
    ]
    assert plan.disturbed_by_gpu() == {GPU: step.disturbs}
    assert str(step.disturbs[0]) == f"VM web-1 of acme on {first}, held by qemu-system-x86 (pid 4711)"


def with_sick_vf(gpu: SimulatedGpu, **state: object) -> HostFacts:
    """The host as read when the last VF of a card cannot carry a vGPU."""
    read = gpu.facts()
    sick = replace(read.vfs[-1], **state)  # type: ignore[arg-type]
    return replace(SimulatedHost(gpu).facts(), gpus=(replace(read, vfs=(*read.vfs[:-1], sick)),))


@pytest.mark.parametrize(
    ("state", "read"),
    [
        ({"driver": None}, "without a driver"),
        ({"driver": "pci-pf-stub"}, "on pci-pf-stub"),
        ({"offers_types": False}, "on nvidia without vGPU types"),
    ],
)
def test_sick_vfs_are_made_anew_although_their_number_is_right(state: dict[str, object], read: str) -> None:
    gpu = SimulatedGpu(A40)
    gpu.vf_count = gpu.total_vfs
    plan = plan_host(declare(VgpuLayout()), with_sick_vf(gpu, **state))
    [planned] = plan.steps
    assert planned.step == SetVirtualFunctions(GPU, gpu.total_vfs)
    assert f"anew: 1 of {gpu.total_vfs} VFs {read}" in planned.summary
    [difference] = plan.differences
    assert (difference.subject, difference.remedy) == ("virtual-functions", None)
    assert plan_host(declare(VgpuLayout()), SimulatedHost(gpu).facts()).is_in_layout


def test_sick_vfs_wait_while_a_vm_uses_the_card() -> None:
    gpu = SimulatedGpu(A40)
    gpu.vf_count = gpu.total_vfs
    gpu.vf_types[gpu.functions[0]] = "559"
    gpu.hold(gpu.functions[0])
    plan = plan_host(declare(VgpuLayout()), with_sick_vf(gpu, driver=None))
    assert plan.steps == () and plan.obstacles == ()
    [difference] = plan.differences
    assert "without a driver" in difference.found and "stop or move the VMs" in (difference.remedy or "")


def test_a_share_is_not_put_on_a_sick_vf() -> None:
    gpu = SimulatedGpu(A40)
    gpu.vf_count = gpu.total_vfs
    gpu.vf_types[gpu.functions[0]] = "559"
    gpu.hold(gpu.functions[0])
    read = gpu.facts()
    sick = replace(read, vfs=(read.vfs[0], replace(read.vfs[1], offers_types=False), *read.vfs[2:]))
    facts = replace(SimulatedHost(gpu).facts(), gpus=(sick,))
    [planned] = plan_host(declare(VgpuLayout(shares=(("A40-2Q", 1),))), facts).steps
    assert isinstance(planned.step, SetVfProfile) and planned.step.address == gpu.functions[2]


def test_vfs_of_a_card_that_lost_its_driver_are_made_anew() -> None:
    gpu = SimulatedGpu(A40)
    gpu.vf_count, gpu.driver = gpu.total_vfs, None
    steps = [planned.step for planned in plan_host(declare(VgpuLayout()), SimulatedHost(gpu).facts()).steps]
    assert steps == [BindDriver((GPU,), "nvidia"), SetVirtualFunctions(GPU, gpu.total_vfs)]


def test_an_idle_share_of_ours_goes_and_a_strangers_stays() -> None:
    gpu = SimulatedGpu(T4)
    gpu.mdevs = {
        "11111111-0000-4000-8000-000000000000": (GPU, "230"),
        "22222222-0000-4000-8000-000000000000": (GPU, "230"),
    }
    facts = SimulatedHost(gpu).facts()
    plan = plan_host(declare(VgpuLayout()), facts, made=["11111111-0000-4000-8000-000000000000"])
    assert [planned.summary for planned in plan.steps] == ["delete the idle share 11111111-0000-4000-8000-000000000000"]


def test_types_that_are_not_allowed_are_a_difference_and_are_left_alone() -> None:
    gpu = SimulatedGpu(A40)
    gpu.vf_count = 32
    gpu.vf_types = {gpu.functions[0]: "559"}
    plan = plan_host(declare(VgpuLayout(types=("A40-8Q",))), SimulatedHost(gpu).facts())
    assert [(one.subject, one.declared) for one in plan.differences] == [("types", "A40-8Q")]
    assert not plan.steps


def test_the_same_layout_makes_the_same_mdevs() -> None:
    plans = [plan_with(VgpuLayout(shares=(("T4-4Q", 2),)), T4) for _ in range(2)]
    steps = [planned.step for planned in plans[0].steps]
    assert plans[0] == plans[1]
    assert len({step.uuid for step in steps if isinstance(step, CreateMdev)}) == 2


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        ([GpuMatch()], 0),
        ([GpuMatch(), GpuMatch(board="A40")], 1),
        ([GpuMatch(board="a40"), GpuMatch(), GpuMatch(address=GPU)], 2),
        ([GpuMatch(uuid="GPU-11111111-2222-3333-4444-555555555555"), GpuMatch(board="10de:2235")], 0),
        ([GpuMatch(board="10de:2235"), GpuMatch()], 0),
        ([GpuMatch(board="L40S")], None),
    ],
)
def test_the_narrowest_entry_counts(entries: list[GpuMatch], kind: int | None) -> None:
    """The entry that counts says passthrough on vfio-pci, the others say nothing that differs."""
    layout = HostLayout(
        tuple(
            GpuLayout(match, PassthroughLayout("vfio-pci" if index == kind else None))
            for index, match in enumerate(entries)
        )
    )
    plan = plan_host(layout, SimulatedHost(SimulatedGpu(A40)).facts())
    assert [planned.step for planned in plan.steps] == ([] if kind is None else [BindDriver((GPU,), "vfio-pci")])


def test_two_entries_as_narrow_as_each_other_are_an_obstacle() -> None:
    layout = HostLayout(
        (
            GpuLayout(GpuMatch(board="A40"), OffLayout(), "a:1"),
            GpuLayout(GpuMatch(board="10de:2235"), OffLayout(), "b:2"),
        )
    )
    (obstacle,) = plan_host(layout, SimulatedHost(SimulatedGpu(A40)).facts()).obstacles
    assert (obstacle.code, obstacle.reason) == (
        "ambiguous",
        f"{GPU} is meant by board A40 (a:1) and board 10de:2235 (b:2)",
    )


def test_a_card_that_hides_its_uuid_since_a_vm_has_it_is_no_drift() -> None:
    facts = SimulatedHost(SimulatedGpu(A40)).facts()
    hidden = replace(facts, gpus=tuple(replace(gpu, uuid=None, driver="vfio-pci") for gpu in facts.gpus))
    named = GpuLayout(GpuMatch(uuid="GPU-00000000-0000-4000-8000-00000000beef"), PassthroughLayout(), "a:1")
    layout = HostLayout(gpus=(named, GpuLayout(GpuMatch(), VgpuLayout(), "a:2")))
    held = lease("gpu1", Share(GPU, Sharing.PASSTHROUGH, "passthrough", GPU))
    assert plan_host(layout, hidden, [held]).is_in_layout
    assert not plan_host(layout, hidden).is_in_layout


def test_a_gpu_that_is_declared_by_address_and_missing_is_said() -> None:
    plan = plan_host(declare(OffLayout(), GpuMatch(address="0000:99:00.0")), SimulatedHost(SimulatedGpu(A40)).facts())
    assert [obstacle.code for obstacle in plan.obstacles] == ["gpu-missing"]
    assert [str(one) for one in plan.differences] == ["host: gpu is missing, declared address 0000:99:00.0"]


def test_a_gpu_that_nobody_declares_is_left_alone() -> None:
    plan = plan_host(declare(OffLayout(), GpuMatch(board="L40S")), SimulatedHost(mig_on(("3g.20gb", 0))).facts())
    assert plan == HostPlan()


def test_a_card_with_its_companions_goes_to_vfio_and_back() -> None:
    facts = replace(SimulatedHost().facts(), gpus=(whole_card(GPU),))
    (planned,) = plan_host(declare(PassthroughLayout("vfio-pci")), facts).steps
    audio = GPU[:-1] + "1"
    assert planned.step == BindDriver((GPU, audio), "vfio-pci")
    assert planned.undo == (BindDriver((GPU,), "nvidia"), BindDriver((audio,), "snd_hda_intel"))


def test_steps_of_all_gpus_go_phase_by_phase_as_at_boot() -> None:
    first, second = SimulatedGpu(A100), SimulatedGpu(A100, "0000:81:00.0")
    layout = replace(
        declare(MigVgpuLayout((WantedInstance("3g.20gb"),))),
        stop_services=("dcgm.service", "nvsm.service"),
    )
    plan = plan_host(layout, SimulatedHost(first, second).facts())
    assert [(planned.phase.name, planned.gpu) for planned in plan.steps] == [
        ("STOP_SERVICES", None),
        ("MIG_MODE", GPU),
        ("MIG_MODE", "0000:81:00.0"),
        ("VIRTUAL_FUNCTIONS", GPU),
        ("VIRTUAL_FUNCTIONS", "0000:81:00.0"),
        ("INSTANCES", GPU),
        ("INSTANCES", "0000:81:00.0"),
        ("START_SERVICES", None),
    ]


def test_programs_that_have_the_card_open_are_named_where_they_hinder() -> None:
    facts = SimulatedHost(SimulatedGpu(A40)).facts()
    user = Holder(812, "nv-hostengine")
    facts = replace(facts, gpus=(replace(facts.gpus[0], users=(user,)),))
    (planned,) = plan_host(declare(VgpuLayout()), facts).steps
    assert (planned.phase, planned.processes) == (Phase.VIRTUAL_FUNCTIONS, (user,))


def _host(**found: object) -> HostFacts:
    return replace(SimulatedHost().facts(), kernel_command_line="quiet intel_iommu=off iommu=pt", **found)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layout", "facts", "said"),
    [
        (HostLayout(kernel_arguments=("iommu=pt",)), _host(), []),
        (
            HostLayout(kernel_arguments=("intel_iommu=on", "pci=realloc")),
            _host(),
            [
                "host: kernel-argument is intel_iommu=off, declared intel_iommu=on",
                "host: kernel-argument is missing, declared pci=realloc",
            ],
        ),
        (HostLayout(hugepages=((2048, 8),)), _host(), ["host: hugepages is 0, declared 8 of 2 MiB"]),
        (HostLayout(uplinks=(("a", "ens1"),)), _host(), []),
        (HostLayout(uplinks=(("a", "ens9"),)), _host(), ["host: uplink is no such interface, declared a on ens9"]),
    ],
)
def test_the_host_around_is_compared(layout: HostLayout, facts: HostFacts, said: list[str]) -> None:
    assert [str(one) for one in plan_host(layout, facts).differences] == said


def test_what_was_not_read_is_a_note_and_not_a_difference() -> None:
    layout = HostLayout(hugepages=((2048, 8),), uplinks=(("a", "ens1"),))
    plan = plan_host(layout, _host(hugepages=None, network_interfaces=None, services=None))
    assert plan.notes == ("the pools of huge pages were not read", "the network interfaces were not read")
    assert plan.is_in_layout


def test_huge_pages_that_vms_use_are_not_taken_away() -> None:
    facts = SimulatedHost().facts()
    assert facts.hugepages is not None
    facts = replace(facts, hugepages=(replace(facts.hugepages[0], total=8, free=2),))
    obstacles = plan_host(HostLayout(hugepages=((64, 1), (2048, 4))), facts).obstacles
    assert [one.code for one in obstacles] == ["no-such-hugepages", "hugepages-in-use"]
    assert obstacles[0].reason == "the kernel has no huge pages of 64 KiB; it has 2 MiB"


def test_the_vgpu_manager_is_started_where_vgpus_are_declared() -> None:
    host = SimulatedHost(SimulatedGpu(T4))
    host.services["nvidia-vgpu-mgr.service"] = False
    assert [planned.step for planned in plan_host(declare(VgpuLayout()), host.facts()).steps] == [
        SetServiceActive("nvidia-vgpu-mgr.service", True)
    ]
    assert not plan_host(declare(PassthroughLayout()), host.facts()).steps


def test_shares_that_a_boot_took_are_not_in_the_way_of_the_layout_that_serves_them() -> None:
    """With another layout than theirs they are: its VM would have nowhere to come back to."""
    facts = SimulatedHost(SimulatedGpu(A40)).facts()
    assert facts.gpus[0].vfs == ()
    kept = [lease("gpu1", Share(GPU, Sharing.VF_PROFILE, "A40-2Q", "0000:41:00.4", "559"))]
    served, other = declare(VgpuLayout()), declare(PassthroughLayout())
    assert any(plan_host(served, facts, kept).disturbed_by_gpu().values())
    assert leases_in_the_way(served, facts, kept) == []
    assert leases_in_the_way(other, facts, kept) == kept
    coming = [replace(one, state=LeaseState.RESERVED) for one in kept]
    assert leases_in_the_way(served, facts, coming) == coming, "another run may be making its device"
    assert leases_in_the_way(served, facts, coming, after_boot=True) == []
    whole = lease("gpu1", Share(GPU, Sharing.PASSTHROUGH, "passthrough", GPU))
    assert leases_in_the_way(other, facts, [whole]) == [whole], "the card itself is there"


def test_no_share_of_the_layout_gets_a_function_that_is_promised() -> None:
    host, layout = SimulatedHost(SimulatedGpu(A40)), declare(VgpuLayout(shares=(("A40-8Q", 1),)))

    def given(*promised: str) -> list[str]:
        steps = plan_host(layout, host.facts(), promised=promised).steps
        return [planned.step.address for planned in steps if isinstance(planned.step, SetVfProfile)]

    host.services["dcgm.service"] = False
    for planned in plan_host(layout, host.facts()).steps:
        host.take(planned.step)
    (first,) = given()
    assert given(first) not in ([], [first])


@pytest.mark.parametrize(("board", "needs_reset"), [(A100, True), ("nvidia-h100-pcie-80gb", False)])
def test_a_switch_of_mig_needs_leave_for_a_reset_where_the_driver_resets_the_gpu_for_it(
    board: str, needs_reset: bool
) -> None:
    """A user that the host does not show leaves the mode pending, and only then is it known that a reset is needed."""
    (switch,) = [one for one in plan_with(MigLayout(), board).steps if one.phase is Phase.MIG_MODE]
    assert switch.needs_reset is needs_reset


def test_the_call_off_of_a_pending_mig_mode_needs_no_reset() -> None:
    gpu = SimulatedGpu(A100)
    gpu.mig_pending = True
    pending = plan_host(declare(OffLayout()), SimulatedHost(gpu).facts())
    assert [one.needs_reset for one in pending.steps if one.phase is Phase.MIG_MODE] == [False]


@pytest.mark.parametrize(("board", "needs_reset"), [(A100, True), ("nvidia-h100-pcie-80gb", False)])
def test_the_way_to_a_mig_switch_that_is_known_only_later_needs_the_same_leave(board: str, needs_reset: bool) -> None:
    on_vfio = plan_with(MigLayout(), board, lambda gpu: replace(gpu, driver="vfio-pci", mig=None, sharing=()))
    assert [one.needs_reset for one in on_vfio.steps] == [needs_reset] and len(on_vfio.later) == 1
