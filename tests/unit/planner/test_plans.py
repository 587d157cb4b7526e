# SPDX-License-Identifier: Apache-2.0
"""Steps per sharing kind: build, its undo, release, release again, and release without facts."""

from dataclasses import replace

import pytest

from tests.unit.emulated_gpu import EmulatedGpu, with_audio
from tests.unit.fleet_factory import (
    a40_host,
    host,
    host_facts,
    intel_vf_host,
    passthrough_host,
    t4_host,
    vm,
    whole_card,
)
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.sharing import CreateMdev, DeleteMdev, SetVfParams, SetVfProfile
from vgpuctl.agent.wire.steps import BindDriver, ResetFunction, SetVirtualFunctions, Step
from vgpuctl.model.lease import Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.planner.plan import plan_release, plan_share, with_first_drivers
from vgpuctl.scheduler.place import place
from vgpuctl.sharing.kinds import kind_of

UUID = "5f1f9a0e-0000-4000-8000-000000000001"
CARD = "0000:81:00.0"
AUDIO = "0000:81:00.1"
VF = "0000:9a:00.4"


def share_of(text: str, capacity: HostCapacity) -> Share:
    chosen = place(vm(text), [capacity], []).shares[0]
    named = kind_of(chosen.sharing).named(chosen, UUID)
    return with_first_drivers(named, capacity.facts)


def on_vf(name: str) -> EmulatedGpu:
    gpu = EmulatedGpu(catalog.board("nvidia-a40"), "0000:41:00.0", "mdev-vf", vf_count=32)
    gpu.create(name, "0000:41:00.4", UUID)
    return gpu


@pytest.mark.parametrize(
    ("text", "capacity", "steps", "undo"),
    [
        (
            "T4-4Q",
            t4_host(),
            [CreateMdev("0000:3b:00.0", "nvidia-232", UUID, profile="T4-4Q")],
            [DeleteMdev(UUID)],
        ),
        (
            "A40-8Q",
            a40_host(sharing="mdev-vf"),
            [CreateMdev("0000:41:00.4", "nvidia-562", UUID, profile="A40-8Q")],
            [DeleteMdev(UUID)],
        ),
        (
            "A40-8Q",
            a40_host(),
            [SetVfProfile("0000:41:00.4", "562", profile="A40-8Q")],
            [SetVfProfile("0000:41:00.4", "0")],
        ),
        (
            "passthrough",
            passthrough_host(),
            [],
            [BindDriver((CARD,), "nvidia"), BindDriver((AUDIO,), "snd_hda_intel")],
        ),
        ("vf", intel_vf_host(), [], []),
    ],
    ids=["mdev", "mdev-vf", "vf-profile", "passthrough", "vf"],
)
def test_building_a_share_takes_these_steps(
    text: str, capacity: HostCapacity, steps: list[Step], undo: list[Step]
) -> None:
    plan = plan_share(share_of(text, capacity), capacity.facts)
    assert (list(plan.steps), list(plan.undo)) == (steps, undo)
    assert plan.summary


@pytest.mark.parametrize("text", ["A40-8Q", "A40-24Q"])
def test_a_share_kept_over_a_reboot_gets_its_vfs_back_first(text: str) -> None:
    kept = share_of(text, a40_host())
    after_reboot = host_facts([replace(a40_host().facts.gpus[0], vfs=(), types=())])
    plan = plan_share(kept, after_reboot)
    again = SetVfProfile(kept.function, kept.type_id or "", profile=kept.profile)
    assert plan.steps == (SetVirtualFunctions("0000:41:00.0", 32), again)
    assert plan.undo == (SetVfProfile(kept.function, "0"),)


@pytest.mark.parametrize(
    ("share", "facts"),
    [
        (share_of("A40-8Q", a40_host()), a40_host(vgpus=["A40-8Q"]).facts),
        (share_of("A40-8Q", a40_host(sharing="mdev-vf")), host_facts([on_vf("A40-8Q").facts()])),
    ],
    ids=["vf-profile", "mdev-vf"],
)
def test_a_start_that_is_rolled_back_leaves_the_vgpu_that_the_vm_kept(share: Share, facts: HostFacts) -> None:
    plan = plan_share(share, facts)
    assert len(plan.steps) == 1 and plan.undo == ()


def test_a_vf_with_a_first_driver_is_bound_back_to_it() -> None:
    gpu = intel_vf_host().facts.gpus[0]
    bound = replace(gpu, vfs=tuple(replace(one, driver="xe") for one in gpu.vfs))
    capacity = host("gpu1", bound)
    assert plan_share(share_of("vf", capacity), capacity.facts).undo == (BindDriver((VF,), "xe"),)


def test_first_drivers_are_those_of_card_and_companions() -> None:
    chosen = share_of("passthrough", passthrough_host())
    assert chosen.first_drivers == ((CARD, "nvidia"), (AUDIO, "snd_hda_intel"))
    without = host("gpu1", with_audio(replace(whole_card(), companions=()), driver=None))
    assert share_of("passthrough", without).first_drivers == ((CARD, "nvidia"),)


def test_kinds_that_libvirt_does_not_rebind_have_no_first_drivers() -> None:
    assert share_of("A40-8Q", a40_host()).first_drivers == ()
    assert share_of("T4-4Q", t4_host()).first_drivers == ()


def left_on(driver: str | None, audio: str | None = "vfio-pci", **changes: object) -> HostFacts:
    gpu = replace(with_audio(whole_card(), driver=audio), driver=driver)
    return host_facts([replace(gpu, **changes)])  # type: ignore[arg-type]  # the tests name real fields


BIND_CARD = BindDriver((CARD,), "nvidia")
TO_VFIO = BindDriver((CARD,), "vfio-pci")
BIND_AUDIO = BindDriver((AUDIO,), "snd_hda_intel")


@pytest.mark.parametrize(
    ("facts", "steps"),
    [
        (left_on("vfio-pci"), [ResetFunction(CARD), BIND_CARD, BIND_AUDIO]),
        (left_on(None, None), [ResetFunction(CARD), BIND_CARD, BIND_AUDIO]),
        (left_on("vfio-pci", "snd_hda_intel"), [ResetFunction(CARD), BIND_CARD]),
        (left_on("vfio-pci", reset_methods=()), [BIND_CARD, BIND_AUDIO]),
        (left_on("vfio-pci", vfs=intel_vf_host().facts.gpus[0].vfs), [BIND_CARD, BIND_AUDIO]),
        (left_on("nvidia"), [TO_VFIO, ResetFunction(CARD), BIND_CARD, BIND_AUDIO]),
        (left_on("nvidia", "snd_hda_intel"), [TO_VFIO, ResetFunction(CARD), BIND_CARD]),
        (left_on("nvidia", "snd_hda_intel", reset_methods=()), []),
        (None, [TO_VFIO, ResetFunction(CARD), BIND_CARD, BIND_AUDIO]),
        (host_facts([]), []),
    ],
    ids=[
        "on vfio-pci",
        "on nothing",
        "audio back",
        "no reset",
        "VFs on",
        "card back",
        "all back",
        "all back, no reset",
        "unread",
        "card gone",
    ],
)
def test_releasing_a_whole_card_resets_it_off_the_hosts_driver_and_binds_it_back(
    facts: HostFacts | None, steps: list[Step]
) -> None:
    plan = plan_release(share_of("passthrough", passthrough_host()), facts)
    assert list(plan.steps) == steps
    assert plan.undo == ()
    assert plan.summary


def test_a_card_that_was_on_vfio_pci_first_is_reset_and_stays_there() -> None:
    dedicated = host("gpu1", replace(whole_card(), driver="vfio-pci"))
    held = share_of("passthrough", dedicated)
    assert plan_release(held, dedicated.facts).steps == (ResetFunction(CARD),)


def test_an_adopted_card_goes_back_to_the_driver_that_libvirt_gave_it() -> None:
    adopted = replace(share_of("passthrough", passthrough_host()), first_drivers=())
    assert plan_release(adopted, left_on("nvidia")).steps == (TO_VFIO, ResetFunction(CARD), BIND_CARD)
    assert plan_release(adopted, left_on(None)).steps == (ResetFunction(CARD),)


def vf_on(driver: str | None) -> HostFacts:
    gpu = intel_vf_host().facts.gpus[0]
    return host_facts([replace(gpu, vfs=(replace(gpu.vfs[0], driver=driver), *gpu.vfs[1:]))])


@pytest.mark.parametrize(
    ("facts", "steps"),
    [
        (vf_on("vfio-pci"), [ResetFunction(VF), BindDriver((VF,), "xe")]),
        (vf_on("xe"), [BindDriver((VF,), "vfio-pci"), ResetFunction(VF), BindDriver((VF,), "xe")]),
        (None, [BindDriver((VF,), "vfio-pci"), ResetFunction(VF), BindDriver((VF,), "xe"), SetVfParams(VF, "")]),
        (host_facts([replace(intel_vf_host().facts.gpus[0], vfs=())]), []),
    ],
    ids=["on vfio-pci", "back", "unread", "VF gone"],
)
def test_releasing_a_plain_vf_resets_it_off_the_hosts_driver_and_binds_it_back(
    facts: HostFacts | None, steps: list[Step]
) -> None:
    held = share_of("vf", HostCapacity("gpu1", vf_on("xe")))
    assert list(plan_release(held, facts).steps) == steps


@pytest.mark.parametrize(
    ("facts", "steps"),
    [
        (a40_host(vgpus=["A40-8Q"]).facts, [SetVfProfile("0000:41:00.4", "0")]),
        (a40_host().facts, []),
        (a40_host(vgpus=["A40-4Q"]).facts, []),
        (host_facts([replace(a40_host().facts.gpus[0], vfs=())]), []),
        (host_facts([]), []),
        (None, [SetVfProfile("0000:41:00.4", "0")]),
    ],
    ids=["set", "free already", "another's type", "VFs gone", "GPU gone", "unread"],
)
def test_releasing_a_vf_profile_takes_away_only_its_own_type(facts: HostFacts | None, steps: list[Step]) -> None:
    plan = plan_release(share_of("A40-8Q", a40_host()), facts)
    assert list(plan.steps) == steps
    assert plan.summary


@pytest.mark.parametrize(
    ("facts", "steps"),
    [
        (host_facts([on_vf("A40-8Q").facts()]), [DeleteMdev(UUID)]),
        (a40_host(sharing="mdev-vf").facts, []),
        (a40_host(sharing="mdev-vf", vgpus=["A40-8Q"]).facts, []),
        (host_facts([]), []),
        (None, [DeleteMdev(UUID)]),
    ],
    ids=["exists", "gone", "another's mdev", "GPU gone", "unread"],
)
def test_releasing_an_mdev_deletes_only_its_own(facts: HostFacts | None, steps: list[Step]) -> None:
    assert list(plan_release(share_of("A40-8Q", a40_host(sharing="mdev-vf")), facts).steps) == steps


def test_an_mdev_share_without_uuid_was_never_made() -> None:
    nameless = replace(share_of("T4-4Q", t4_host()), mdev_uuid=None)
    assert plan_release(nameless, None).steps == ()
    with pytest.raises(ValueError, match="UUID"):
        plan_share(nameless, t4_host().facts)


def test_a_share_of_a_gpu_that_is_not_there_cannot_be_planned() -> None:
    with pytest.raises(ValueError, match="no GPU at"):
        plan_share(share_of("T4-4Q", t4_host()), host_facts([]))
