# SPDX-License-Identifier: Apache-2.0
"""GPUs that are the host's own: who gets in the way, what containers get, and what leaves the file first."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import lease
from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from vgpuctl.agent.wire.cdi import FILE, CdiFacts, SetContainerGpus
from vgpuctl.agent.wire.facts import Holder, HostFacts, UnreadPart
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.agent.wire.steps import BindDriver, CreateGpuInstance, Step
from vgpuctl.model.layout import (
    ComputeMode,
    GpuLayout,
    GpuMatch,
    HostLayout,
    Layout,
    OffLayout,
    OwnLayout,
    PassthroughLayout,
    TuningLayout,
    VgpuLayout,
    WantedInstance,
)
from vgpuctl.model.lease import LeaseState, Share
from vgpuctl.model.reservation import Reservation
from vgpuctl.planner.layout.manifest import manifest_of
from vgpuctl.planner.layout.plan import plan_host

PROHIBITED = ComputeMode.PROHIBITED
GPU, ORIGIN = "0000:41:00.0", "host_vars/gpu1.yml:4"
SHARE = Share(GPU, Sharing.PASSTHROUGH, "passthrough", GPU)


def declare(layout: Layout | None) -> HostLayout:
    return HostLayout(() if layout is None else (GpuLayout(GpuMatch(), layout, ORIGIN),))


def facts_of(board: str = "nvidia-a40", **cdi: object) -> HostFacts:
    return replace(SimulatedHost(SimulatedGpu(board)).facts(), cdi=CdiFacts(**cdi))  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [state for state in LeaseState if state.holds_device()])
def test_a_gpu_of_a_vm_is_not_the_host_s_own(state: LeaseState) -> None:
    plan = plan_host(declare(OwnLayout()), facts_of(gpus=(GPU,)), [replace(lease("gpu1", SHARE), state=state)])
    (obstacle,) = plan.obstacles
    assert (obstacle.code, obstacle.origin) == ("used-by-vms", ORIGIN)
    assert "cannot be the host's own yet: VM" in obstacle.reason
    assert [one.step for one in plan.steps] == [SetContainerGpus(())], "containers lose it at once"
    assert not plan.is_in_layout


def test_a_vm_that_nobody_knows_keeps_it_too() -> None:
    facts = facts_of()
    held = replace(facts, gpus=(replace(facts.gpus[0], holders=(Holder(4711, "qemu-system-x86"),)),))
    (obstacle,) = plan_host(declare(OwnLayout()), held).obstacles
    assert obstacle.code == "used-by-vms" and "a VM or vGPU that vgpuctl does not know" in obstacle.reason


@pytest.mark.parametrize("given", [(), (GPU,)])
def test_a_reservation_on_it_keeps_it_too(given: tuple[str, ...]) -> None:
    """Containers that have it already keep it: no VM is there yet."""
    booked = Reservation("acme", "night", (), "gpu1", (SHARE,), 100.0, 200.0)
    elsewhere = replace(booked, name="day", shares=(replace(SHARE, gpu="0000:81:00.0"),))
    plan = plan_host(declare(OwnLayout()), facts_of(gpus=given), reserved=[booked, elsewhere])
    (obstacle,) = plan.obstacles
    assert (obstacle.code, obstacle.origin) == ("used-by-vms", ORIGIN)
    assert obstacle.reason == f"{GPU} cannot be the host's own yet: reservation night of acme"
    assert obstacle.remedy == "move, delete or cancel them first: `vgpuctl cancel-reservation`"
    assert not plan.steps
    assert plan_host(declare(OffLayout()), facts_of(), reserved=[booked]).is_in_layout


def test_another_vendor_s_gpu_is_an_obstacle() -> None:
    (obstacle,) = plan_host(declare(OwnLayout()), facts_of("intel-flex-170")).obstacles
    assert obstacle.code == "wrong-vendor"


def test_instances_are_made_before_containers_get_them() -> None:
    layout = OwnLayout((WantedInstance("3g.20gb"), WantedInstance("1g.5gb", None, ())))
    host = SimulatedHost(SimulatedGpu("nvidia-a100-pcie-40gb"))
    steps = [one.step for one in plan_host(declare(layout), host.facts()).steps]
    assert steps[-1] == SetContainerGpus((GPU,))
    made = [one for one in steps if isinstance(one, CreateGpuInstance)]
    assert len(made) == 2 and all(one.compute_instance for one in made)


def test_what_is_no_more_the_host_s_own_leaves_the_file_before_it_is_given_away() -> None:
    plan = plan_host(declare(PassthroughLayout("vfio-pci")), facts_of(gpus=(GPU,)))
    assert [type(one.step) for one in plan.steps] == [SetContainerGpus, BindDriver]
    assert plan.steps[0].undo == (SetContainerGpus((GPU,)),)


@pytest.mark.parametrize("layout", [None, OffLayout()])
def test_the_file_goes_with_the_declaration(layout: Layout | None) -> None:
    plan = plan_host(declare(layout), facts_of(gpus=(GPU,)))
    assert [one.step for one in plan.steps] == [SetContainerGpus(())]
    assert [str(one) for one in plan.differences] == [f"host: containers is {GPU}, declared no GPU"]
    assert plan_host(declare(layout), facts_of()).is_in_layout


@pytest.mark.parametrize(
    "tuning", [TuningLayout(5_000_000), TuningLayout(gpu_clocks_mhz=(1, 2)), TuningLayout(1, compute_mode=PROHIBITED)]
)
def test_a_setting_that_is_refused_takes_nothing_from_containers(tuning: TuningLayout) -> None:
    layout = HostLayout((GpuLayout(GpuMatch(), OwnLayout(), ORIGIN, tuning=tuning),))
    plan = plan_host(layout, facts_of(gpus=(GPU,)))
    assert plan.obstacles and not plan.steps
    first = plan_host(layout, facts_of())
    assert first.obstacles and not first.steps, "it comes into the file as declared alone"
    held = [replace(lease("gpu1", SHARE), state=LeaseState.RUNNING)]
    assert [one.step for one in plan_host(layout, facts_of(gpus=(GPU,)), held).steps] == [SetContainerGpus(())]


def test_a_gpu_that_has_left_its_driver_leaves_the_file_before_it_comes_back() -> None:
    """A file with it cannot be written meanwhile, and another GPU has to leave."""
    read = facts_of(gpus=(GPU,), is_current=False)
    away = replace(read, gpus=(replace(read.gpus[0], driver="vfio-pci", uuid=None),))
    steps = [one.step for one in plan_host(declare(OwnLayout()), away).steps]
    assert steps[0] == SetContainerGpus(()) and isinstance(steps[1], BindDriver)
    assert steps[-1] == SetContainerGpus((GPU,))


def test_what_leaves_the_file_and_what_stays_are_one_step() -> None:
    other = "0000:81:00.0"
    host = SimulatedHost(SimulatedGpu("nvidia-a40"), SimulatedGpu("nvidia-a40", other))
    read = replace(host.facts(), cdi=CdiFacts((GPU, other), is_current=False))
    layout = HostLayout(
        (
            GpuLayout(GpuMatch(address=GPU), OwnLayout(), ORIGIN),
            GpuLayout(GpuMatch(address=other), PassthroughLayout("vfio-pci"), ORIGIN),
        )
    )
    plan = plan_host(layout, read)
    given = [one for one in plan.steps if isinstance(one.step, SetContainerGpus)]
    assert [one.step for one in given] == [SetContainerGpus((GPU,))]
    assert given[0].summary == f"take {other} from containers of the host in {FILE}"
    assert plan.steps[0] is given[0]


def test_a_file_of_another_driver_is_written_again() -> None:
    plan = plan_host(declare(OwnLayout()), facts_of(gpus=(GPU,), is_current=False))
    assert [one.step for one in plan.steps] == [SetContainerGpus((GPU,))]
    assert "an older file" in str(plan.differences[0])


def test_another_file_by_which_containers_get_every_gpu_is_a_difference() -> None:
    path = "/run/cdi/nvidia.yaml"
    plan = plan_host(declare(OwnLayout()), facts_of(gpus=(GPU,), others=(path,)))
    (difference,) = plan.differences
    assert (difference.subject, difference.found, plan.steps) == ("container-devices", f"{path} too", ())
    assert "nvidia-cdi-refresh" in (difference.remedy or "")
    assert plan_host(declare(OffLayout()), facts_of(others=(path,))).is_in_layout, "nobody declared anything"


@pytest.mark.parametrize("layout", [OwnLayout(), OffLayout(), VgpuLayout(), PassthroughLayout("vfio-pci")])
@pytest.mark.parametrize("cdi", [None, CdiFacts(unknown="EIO")])
def test_a_gpu_that_containers_may_have_unseen_gets_no_step(layout: Layout, cdi: CdiFacts | None) -> None:
    unread = replace(facts_of(), cdi=cdi, unread=(UnreadPart("cdi", "EIO"),) if cdi is None else ())
    plan = plan_host(declare(layout), unread)
    (obstacle,) = plan.obstacles
    assert (obstacle.code, obstacle.origin) == ("containers-unknown", ORIGIN)
    assert obstacle.reason == f"nobody knows whether containers have {GPU}: EIO"
    assert not plan.steps and not plan.is_in_layout


@pytest.mark.parametrize("layout", [OwnLayout(), OwnLayout((WantedInstance("3g.20gb"),))])
def test_another_s_vgpuctl_json_is_told_before_any_step(layout: Layout) -> None:
    host = SimulatedHost(SimulatedGpu("nvidia-a100-pcie-40gb"))
    foreign = replace(host.facts(), cdi=CdiFacts(others=(FILE,)))
    plan = plan_host(declare(layout), foreign)
    assert [one.code for one in plan.obstacles] == ["foreign-file"] and not plan.steps
    assert plan_host(declare(OffLayout()), foreign).is_in_layout


def test_other_files_that_were_not_read_are_a_note_and_change_no_manifest() -> None:
    read = facts_of(gpus=(GPU,))
    unread = facts_of(gpus=(GPU,), unread=("/etc/cdi/dir.json cannot be read: EISDIR",))
    plan = plan_host(declare(OwnLayout()), unread)
    assert plan.notes == ("a file of container engines was not read: /etc/cdi/dir.json cannot be read: EISDIR",)
    assert not plan.steps and plan.is_in_layout
    assert manifest_of(declare(OwnLayout()), unread) == manifest_of(declare(OwnLayout()), read)
    assert plan_host(declare(OffLayout()), facts_of(unread=unread.cdi.unread if unread.cdi else ())).notes == ()


def test_files_at_which_an_older_agent_did_not_look_are_a_note() -> None:
    plan = plan_host(declare(OwnLayout()), replace(facts_of(), cdi=None))
    assert plan.notes == ("the files of container engines were not read: the agent did not look",) and not plan.steps


def test_a_boot_writes_the_file_again_for_what_containers_had() -> None:
    def last(layout: Layout, facts: HostFacts) -> list[Step]:
        return [one.step for one in manifest_of(declare(layout), facts).steps][-1:]

    assert last(OwnLayout(), facts_of(gpus=(GPU,))) == [SetContainerGpus((GPU,))]
    assert SetContainerGpus not in map(type, last(OwnLayout(), facts_of()))
    assert SetContainerGpus not in map(type, last(OffLayout(), facts_of(gpus=(GPU,))))
