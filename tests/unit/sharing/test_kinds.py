# SPDX-License-Identifier: Apache-2.0
"""The special rules of a sharing kind stand in its own file: no other compares kinds, and few files name one."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host, passthrough_host, t4_host
from tests.unit.uses_of_names import PACKAGE, files, nodes
from vgpuctl.agent.wire.facts import Gpu, Mdev
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Share
from vgpuctl.sharing.kind import SharingKind, Takes, VgpuKind
from vgpuctl.sharing.kinds import KINDS, VGPU_KINDS, existing_vgpus, kind_of, vgpu_kind_of

UUID = "5f1f9a0e-0000-4000-8000-000000000001"

KINDS_OWN_ROOMS = ("sharing/", "agent/")
"""The rooms that may name a kind. The agent probes a host for each, and has a fact and a change of its own for each."""

WORDS_OF_OTHERS = {
    "guests/facts/domain_facts.py": {"mdev"},
}
"""Comparisons with a word that is also a kind's name: libvirt's hostdev type."""

FILES_OF_VF_PROFILE = {
    "agent/wire/sharing.py",
    "agent/facts/sharing.py",
    "agent/facts/vf_profile.py",
    "agent/changes/vf_profile.py",
    "sharing/kinds.py",
    "sharing/vf_profile.py",
}
"""The list in docs/decisions/sharing-kinds.md."""


def sources() -> Iterator[tuple[str, str]]:
    for path in files():
        yield path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")


def others() -> list[tuple[str, tuple[ast.AST, ...]]]:
    """The nodes of each file that may not name a kind."""
    names = [(path.relative_to(PACKAGE).as_posix(), path) for path in files()]
    return [(name, nodes(path)) for name, path in names if not name.startswith(KINDS_OWN_ROOMS)]


def test_no_file_outside_its_room_names_a_kind() -> None:
    names = {kind.name for kind in Sharing}
    found = [
        f"{file}:{node.lineno} Sharing.{node.attr}"
        for file, inside in others()
        for node in inside
        if isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) == "Sharing"
    ]
    assert not found, f"ask vgpuctl.sharing instead: {', '.join(found)}"


def test_no_file_outside_its_room_compares_with_the_name_of_a_kind() -> None:
    names = {str(kind) for kind in Sharing}
    found = []
    for file, inside in others():
        for compared in (node for node in inside if isinstance(node, ast.Compare)):
            words = {one.value for one in ast.walk(compared) if isinstance(one, ast.Constant)} & names
            if words - WORDS_OF_OTHERS.get(file, set()):
                found.append(f"{file}:{compared.lineno} {ast.unparse(compared)}")
    assert not found, f"ask vgpuctl.sharing instead: {', '.join(found)}"


def test_the_device_of_a_share_is_worked_out_once() -> None:
    found = [
        file
        for file, inside in others()
        for node in inside
        if isinstance(node, ast.BoolOp)
        and [one.attr for one in node.values if isinstance(one, ast.Attribute)] == ["mdev_uuid", "function"]
    ]
    assert found == ["model/lease.py"]


def test_only_the_kind_reads_how_its_vgpu_shows_in_the_facts() -> None:
    found = [
        file
        for file, inside in others()
        for node in inside
        if isinstance(node, ast.Attribute) and node.attr == "current_type"
    ]
    assert not found, f"ask existing_vgpus instead: {found}"


def test_six_files_name_the_kind_vf_profile() -> None:
    spelling = re.compile(r"vf[-_ ]?profile", re.IGNORECASE)
    found = {file for file, text in sources() if spelling.search(text) or spelling.search(file)}
    assert found == FILES_OF_VF_PROFILE
    page = (PACKAGE.parent / "docs" / "decisions" / "sharing-kinds.md").read_text(encoding="utf-8")
    missing = {file for file in found if f"`{file}`".replace("vf_profile", "KIND") not in page}
    assert not missing, f"docs/decisions/sharing-kinds.md leaves out {missing}"


def test_every_kind_of_the_wire_has_one_file() -> None:
    assert sorted(kind.sharing for kind in KINDS) == sorted(Sharing)
    assert all(kind_of(kind.sharing) is kind for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.sharing))
def test_only_shares_that_are_no_vgpus_are_asked_for_by_the_name_of_their_kind(kind: SharingKind) -> None:
    assert kind.sharing.is_asked_for_by_name() is (kind.takes is not Takes.VGPU)


@pytest.mark.parametrize("kind", VGPU_KINDS, ids=lambda kind: str(kind.sharing))
def test_what_a_kind_makes_it_finds_recognises_and_removes(kind: VgpuKind) -> None:
    gpu = _carrying(kind)
    (vgpu,) = existing_vgpus(gpu)
    assert vgpu_kind_of(vgpu) is kind
    assert kind.make(vgpu).device == kind.remove(vgpu).device == vgpu.vfio_device
    assert kind.make(vgpu).made == (vgpu.function, vgpu.type_id)
    assert kind.remove(vgpu).made is None
    share = kind.recognise(vgpu.vfio_device, [vgpu.vfio_device], gpu)
    assert isinstance(share, Share)
    assert (share.device, share.vfio_device) == (vgpu.device, vgpu.vfio_device)
    assert kind.build(share, gpu).steps == (kind.make(vgpu),)
    assert kind.release(share, gpu).steps == (kind.remove(vgpu),)
    assert existing_vgpus(kind.freed(gpu, [share])) == []
    (device,) = kind.guest_devices(share)
    assert (device.mdev_uuid or device.address) == vgpu.vfio_device


def test_a_card_is_recognised_by_its_own_function_with_the_companions_that_the_domain_has() -> None:
    (gpu,) = passthrough_host().facts.gpus
    devices = [gpu.address, *(one.address for one in gpu.companions)]
    share = kind_of(Sharing.PASSTHROUGH).recognise(gpu.address, devices, gpu)
    assert isinstance(share, Share)
    assert share.companions == tuple(devices[1:])
    assert [one.address for one in kind_of(Sharing.PASSTHROUGH).guest_devices(share)] == devices


def _carrying(kind: VgpuKind) -> Gpu:
    """A GPU with one vGPU of the kind."""
    if not kind.has_uuid:
        (gpu,) = a40_host().facts.gpus
        return replace(gpu, vfs=(replace(gpu.vfs[0], current_type=gpu.types[0].type_id), *gpu.vfs[1:]))
    (gpu,) = (a40_host(sharing=str(kind.sharing)) if kind.is_on_vf else t4_host()).facts.gpus
    parent = gpu.vfs[0].address if kind.is_on_vf else gpu.address
    vfs = tuple(replace(vf, mdev_uuid=UUID) if vf.address == parent else vf for vf in gpu.vfs)
    return replace(gpu, vfs=vfs, mdevs=(Mdev(UUID, parent, gpu.types[0].type_id, 7),))
