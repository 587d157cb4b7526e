# SPDX-License-Identifier: Apache-2.0
"""The checks of the NVSwitch fabric and of Fabric Manager."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.planner.doctor.test_checks import GPU, HEALTHY_UNITS, VGPU, behind_switch, seen
from vgpuctl import catalog
from vgpuctl.agent.wire.diagnostics import UnitDiagnostics
from vgpuctl.agent.wire.fabric import FabricManagerFacts
from vgpuctl.agent.wire.facts import Gpu, GpuTopology, Holder, NvLinks
from vgpuctl.model.layout import PassthroughLayout
from vgpuctl.planner.doctor import Examined, Severity, examine

FABRIC_UNIT = "nvidia-fabricmanager.service"


@pytest.mark.parametrize(
    ("gpu", "mode", "severity", "words"),
    [
        (behind_switch("completed"), 2, None, ""),
        (behind_switch("completed", status=999), 2, Severity.ERROR, "status 999"),
        (behind_switch("completed", status=3), 0, Severity.ERROR, "status 3"),
        (behind_switch("in-progress"), 0, Severity.ERROR, "wait for `completed`"),
        (behind_switch("in-progress"), None, Severity.ERROR, "wait for `completed`"),
        # It gets its partition with the start of a VM.
        (behind_switch("in-progress"), 1, None, ""),
        (behind_switch("in-progress"), 2, None, ""),
        (replace(behind_switch("in-progress"), holders=(Holder(7, "qemu"),)), 1, Severity.ERROR, "vgpuctl repair"),
        (behind_switch("not-started"), 2, Severity.ERROR, "start nvidia-fabricmanager"),
        (behind_switch("not-started"), 1, Severity.ERROR, "start nvidia-fabricmanager"),
        (behind_switch("completed", faults=("unhealthy route",)), 2, Severity.WARNING, "unhealthy route"),
    ],
)
def test_the_fabric_is_told_as_it_is_in_each_mode(gpu: Gpu, mode: int | None, severity: Severity, words: str) -> None:
    layout = PassthroughLayout() if mode != 2 else VGPU
    found = [one for one in examine(seen(gpu, layout, fabric_mode=mode)) if one.check == "fabric"]
    found = [one for one in found if one.subject == gpu.address]
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    assert all(words in f"{one.read}; {one.fix}" for one in found)


def hgx(version: str | None = None, unit: tuple[str, str] = ("loaded", "active"), **manager: Any) -> Examined:
    """A host whose Fabric Manager works, but for what is given."""
    found = FabricManagerFacts(1, "127.0.0.1:6666", **{"is_active": True, "needs_restart": False, **manager})
    units = (*HEALTHY_UNITS[:2], UnitDiagnostics(FABRIC_UNIT, *unit, "success"))
    facts = {"fabric_manager": found, "nvidia_driver": "570.133.20", "distribution": ("ubuntu", "debian")}
    gpu = behind_switch("completed")
    return seen(gpu, PassthroughLayout(), facts=facts, units=units, fabric_mode=1, fabric_version=version)


def without_manager(*distribution: str) -> Examined:
    found = hgx()
    return replace(found, facts=replace(found.facts, fabric_manager=None, distribution=distribution))


@pytest.mark.parametrize(
    ("host", "read", "fix"),
    [
        (hgx("570.133.20"), None, None),
        (hgx("570.86.15"), "of version 570.86.15, the driver of version 570.133.20", "of version 570.133.20"),
        (hgx(unit=("loaded", "failed")), f"{FABRIC_UNIT} is failed", f"systemctl start {FABRIC_UNIT}"),
        (hgx(problem="it is still starting (code -8); try again"), "it is still starting (code -8)", "try again"),
        (hgx(needs_restart=True, problem="it does not do this; no"), "restart is pending", "apply-hosts --disrupt"),
        (
            hgx(unit=("not-found", "inactive")),
            "is not installed,",
            "nvidia-fabricmanager-570 nvidia-fabricmanager-dev-570",
        ),
        (
            without_manager("debian"),
            "has no configuration, or is not installed",
            "nvidia-fabricmanager-570 nvidia-fabricmanager-dev-570",
        ),
        (
            without_manager("rocky", "rhel"),
            "has no configuration, or is not installed",
            "dnf install -y nvidia-fabric-manager-570.133.20 nvidia-fabric-manager-devel-570.133.20",
        ),
        (
            without_manager("sles", "suse"),
            "has no configuration, or is not installed",
            "zypper --non-interactive install nvidia-fabric-manager-570",
        ),
        (without_manager("void"), "has no configuration, or is not installed", "nvidia-fabricmanager-dev-570"),
    ],
)
def test_one_thing_is_told_of_fabric_manager(host: Examined, read: str | None, fix: str | None) -> None:
    found = [one for one in examine(host) if one.check == "fabric-manager"]
    assert len(found) == (0 if read is None else 1)
    for one in found:
        assert (one.severity, one.subject) == (Severity.ERROR, "host")
        assert str(read) in one.read and str(fix) in one.fix


def test_gpus_that_are_joined_without_nvswitch_need_no_fabric_manager() -> None:
    board = EmulatedGpu(catalog.board("nvidia-a100-sxm4-40gb"), GPU, "vf-profile").facts()
    links = (NvLinks((0, 1, 2, 3), True, "0000:42:00.0", "gpu", 3),)
    for topology, missing in ((None, 1), (GpuTopology(nvlinks=links), 0), (GpuTopology(nvlinks=()), 0)):
        host = seen(replace(board, topology=topology), PassthroughLayout())
        assert sum("not installed" in one.read for one in examine(host)) == missing
