# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any

import pytest

from vgpuctl.agent.wire import decode, envelope
from vgpuctl.agent.wire.cdi import SetContainerGpus
from vgpuctl.agent.wire.decode import WireError
from vgpuctl.agent.wire.fabric import ActivatePartition, DeactivatePartition, RestorePartitions, UsedPartition
from vgpuctl.agent.wire.facts import (
    Gpu,
    GpuInstance,
    Holder,
    HostFacts,
    Mdev,
    MigFacts,
    MigProfileFacts,
    SchedulerFacts,
    ServiceFacts,
    VgpuType,
    VirtualFunction,
)
from vgpuctl.agent.wire.memory import HugepageFacts, NumaNode
from vgpuctl.agent.wire.network_function import (
    FunctionCommand,
    FunctionFile,
    FunctionPort,
    FunctionProgram,
    FunctionQuery,
    FunctionRoute,
    NetworkFunction,
    SetNetworkFunction,
)
from vgpuctl.agent.wire.ovn import CertificateFiles
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import (
    CreateMdev,
    DeleteMdev,
    SetFunctionParams,
    SetVfParams,
    SetVfProfile,
    StopFunction,
)
from vgpuctl.agent.wire.steps import (
    BindDriver,
    Change,
    Chassis,
    CreateGpuInstance,
    DestroyGpuInstance,
    HashRom,
    ResetFunction,
    ResetGpu,
    SetHeterogeneousMode,
    SetHugepages,
    SetMigMode,
    SetOvnChassis,
    SetOvnDaemon,
    SetServiceActive,
    SetUplinkBridge,
    SetVgpuScheduler,
    SetVirtualFunctions,
    Step,
    TakeOutUplink,
)
from vgpuctl.agent.wire.tuning import (
    ClockRun,
    GpuTuning,
    KeepPowerLimit,
    SetComputeMode,
    SetEccMode,
    SetGpuClocks,
    SetMemoryClocks,
    SetPowerLimit,
    UnreadSetting,
)

UUID = "c2177883-f1bb-47f0-914d-32a22e3a8804"
HOLDER = Holder(7, "qemu-system-x86_64", UUID)
GPU = Gpu(
    address="0000:41:00.0",
    vendor_id="10de",
    device_id="2235",
    subsystem_id=None,
    pci_class="030200",
    name="NVIDIA A40",
    uuid=None,
    driver="nvidia",
    iommu_group=14,
    iommu_group_members=("0000:41:00.0",),
    numa_node=None,
    local_cpus="0-3",
    companions=(),
    sharing=("mdev-vf",),
    total_vfs=1,
    vfs=(VirtualFunction("0000:41:00.4", 0, "nvidia", 20, mdev_uuid=UUID, holders=(HOLDER,)),),
    types=(VgpuType("nvidia-558", "A40-2Q", "NVIDIA A40-2Q", 2048, 24, 23),),
    mdevs=(Mdev(UUID, "0000:41:00.4", "nvidia-558", 21, (HOLDER,)),),
    bars_bytes=(1 << 24, 1 << 36),
    reset_methods=("flr",),
    memory_mib=46068,
    mig_mode=None,
    mig=MigFacts(
        current=True,
        pending=False,
        instances=(GpuInstance(3, "2g.10gb", 4, 2, True, 1, (HOLDER,)),),
        profiles=(MigProfileFacts("2g.10gb", 14, 2, (0, 2, 4), 2, 3),),
    ),
    heterogeneous=False,
    scheduler=SchedulerFacts("fixed-share", 2000),
    tuning=GpuTuning(
        power_limits_mw=(100_000, 300_000),
        locked_clocks_mhz=(0, 0),
        clocks=(ClockRun(210, 1740, 15),),
        ecc=True,
        unread=(UnreadSetting("power_limit_mw", "NVML does not tell it"),),
    ),
)
FACTS = HostFacts(
    "gpu1", "boot", "6.1", "quiet", "Debian", "3.11.2", 5, 8192, 4096, (NumaNode(0, "0-3", 8192),),
    True, True, "9.0.0", None, None, None, "no NVML", (GPU,), 1.5,
    (ServiceFacts("nvidia-vgpu-mgr.service", True),), (HugepageFacts(2048, 8, 4),), ("lo", "ens1"),
)  # fmt: skip
PARTITION = UsedPartition(("0000:41:00.0", "0000:43:00.0"), ("0000:41:00.4", "0000:43:00.4"), UUID)
STEPS: tuple[Step, ...] = (
    SetVirtualFunctions("0000:41:00.0", 32),
    CreateMdev("0000:41:00.4", "nvidia-558", UUID),
    DeleteMdev(UUID),
    SetVfProfile("0000:41:00.4", "558"),
    SetVfParams("0000:41:00.4", "exec_quantum_ms=20"),
    SetFunctionParams("0000:41:00.0", None, "exec_quantum_ms=20,sched_priority=normal"),
    SetFunctionParams("0000:41:00.0", 3, "vram_quota=4294967296"),
    StopFunction("0000:41:00.4"),
    BindDriver(("0000:41:00.0", "0000:41:00.1"), None),
    ResetFunction("0000:41:00.0"),
    HashRom("0000:41:00.0"),
    SetMigMode("0000:41:00.0", True),
    ResetGpu("0000:41:00.0"),
    CreateGpuInstance("0000:41:00.0", "2g.10gb", None, count=2),
    CreateGpuInstance("0000:41:00.0", "1g.5gb+me", 6, compute_instance=True),
    DestroyGpuInstance("0000:41:00.0", "2g.10gb", 4),
    SetHeterogeneousMode("0000:41:00.0", True, gpu_instance_start=6),
    SetVgpuScheduler("0000:41:00.0", "equal-share", 2000),
    SetPowerLimit("0000:41:00.0", None),
    SetGpuClocks("0000:41:00.0", (1200, 1740)),
    SetMemoryClocks("0000:41:00.0", (0, 0)),
    SetEccMode("0000:41:00.0", False),
    SetComputeMode("0000:41:00.0", "prohibited"),
    KeepPowerLimit("0000:41:00.0", 275_000),
    SetServiceActive("nvidia-dcgm.service", False),
    SetHugepages(1 << 20, 16),
    SetOvnDaemon("switch", True),
    SetOvnChassis(Chassis("gpu1", "ssl:192.0.2.1:6642", "geneve", "10.83.0.1", "provider:br-provider", True)),
    SetUplinkBridge("br-provider", None),
    TakeOutUplink("br-provider", "eno2"),
    SetContainerGpus(("0000:41:00.0",)),
    ActivatePartition(PARTITION),
    DeactivatePartition(PARTITION),
    RestorePartitions((PARTITION,)),
    SetNetworkFunction(
        "vgn_0123456789ab",
        NetworkFunction(
            "load-balancer",
            (
                FunctionPort(
                    "vgf0123456789a",
                    "vgn_0123456789ab",
                    "0a:00:00:00:00:01",
                    ("10.9.0.250/24",),
                    1442,
                    (FunctionRoute("default", "10.9.0.1"),),
                ),
            ),
            (FunctionFile("haproxy.cfg", "global\n"), FunctionFile("shop.pem", "secret", is_secret=True)),
            (FunctionCommand(("ip", "link", "show"), "File exists"),),
            (FunctionProgram("haproxy", ("haproxy", "-W"), ("haproxy", "-c"), "SIGUSR2"),),
            (FunctionQuery("stat", socket="{run}/stats.sock", text="show stat"),),
            needs=("haproxy",),
        ),
    ),
    SetNetworkFunction("vgn_0123456789ab", None),
)


def test_facts_come_back_as_they_went() -> None:
    text = json.dumps(decode.to_json(FACTS))
    assert decode.from_json(HostFacts, json.loads(text)) == FACTS


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.op)
def test_steps_come_back_as_they_went(step: Step) -> None:
    assert decode.step_from_json(json.loads(json.dumps(decode.step_to_json(step)))) == step


def test_a_reply_comes_back_with_its_problem() -> None:
    problem = envelope.Problem(ProblemCode.VGPU_REFUSED, "no", "/sys/x", "EIO", "0x56", ("NVRM: no",), "look")
    reply = envelope.Reply("0.1.0", 3, changes=(Change("mdev.create", UUID, None, "x", True),), problem=problem)
    back = envelope.reply_from_json(json.loads(json.dumps(envelope.reply_to_json(reply))))
    assert back.problem is not None
    assert vars(back.problem) == vars(problem)
    assert back.problem.code is ProblemCode.VGPU_REFUSED
    assert (back.writes, back.changes) == (3, reply.changes)


def test_a_problem_with_an_unknown_code_is_refused() -> None:
    wire = envelope.reply_to_json(envelope.Reply("0.1.0", problem=envelope.Problem(ProblemCode.HELD, "no")))
    wire["problem"]["code"] = "made-up"
    with pytest.raises(WireError, match=r"problem\.code: 'made-up' is no ProblemCode"):
        envelope.reply_from_json(wire)


@pytest.mark.parametrize(
    "request_",
    [
        envelope.Request("ping"),
        envelope.Request("facts"),
        envelope.Request("apply", STEPS, dry_run=True),
        envelope.Request("holders", target=UUID),
        envelope.Request("image", target="/srv/debian.qcow2", with_digest=True),
        envelope.Request("certificate", certificate=CertificateFiles("certificate", "authority", "key")),
    ],
    ids=lambda request: request.call,
)
def test_requests_come_back_as_they_went(request_: envelope.Request) -> None:
    assert envelope.request_from_json(envelope.request_to_json(request_)) == request_


def _gpu(**changed: object) -> dict[str, Any]:
    return {**decode.to_json(GPU), **changed}


@pytest.mark.parametrize(
    ("gpu", "path"),
    [
        (_gpu(total_vfs="3"), "total_vfs"),
        (_gpu(total_vfs=True), "total_vfs"),
        (_gpu(total_vfs=None), "total_vfs"),
        (_gpu(surprise=1), "surprise"),
        (_gpu(vfs=[{"address": "a"}]), "vfs[0].number"),
        (_gpu(vfs=[1]), "vfs[0]"),
        (_gpu(bars_bytes=[1, 2.5]), "bars_bytes[1]"),
        (_gpu(bars_bytes=7), "bars_bytes"),
        (_gpu(types=[{**decode.to_json(GPU.types[0]), "creatable": "many"}]), "types[0].creatable"),
        ([], ""),
    ],
)
def test_a_wrong_field_is_named(gpu: object, path: str) -> None:
    with pytest.raises(WireError) as caught:
        decode.from_json(Gpu, gpu)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        ({"call": "ping"}, "protocol"),
        ({"protocol": 2, "call": "ping"}, "protocol"),
        ({"protocol": True, "call": "ping"}, "protocol"),
        ({"protocol": 1, "call": "shell"}, "call"),
        ({"protocol": 1, "call": "ping", "steps": []}, "steps"),
        ({"protocol": 1, "call": "apply"}, "steps"),
        ({"protocol": 1, "call": "apply", "steps": [], "dry_run": 1}, "dry_run"),
        ({"protocol": 1, "call": "apply", "steps": [{"op": "format-disk"}]}, "steps[0].op"),
        ({"protocol": 1, "call": "apply", "steps": [{"op": "sriov.set", "address": "x"}]}, "steps[0].count"),
        ({"protocol": 1, "call": "holders"}, "target"),
        ({"protocol": 1, "call": "image", "target": "/a", "with_digest": 1}, "with_digest"),
        ("facts", ""),
    ],
)
def test_a_wrong_request_is_named(request_: object, path: str) -> None:
    with pytest.raises(WireError) as caught:
        envelope.request_from_json(request_)
    assert caught.value.path == path


def test_typed_getters_name_the_field_and_the_type() -> None:
    with pytest.raises(WireError, match=r"count: must be a whole number, not text"):
        decode.get_int({"count": "1"}, "count")
    with pytest.raises(WireError, match=r"name: is missing"):
        decode.get_str({}, "name")
    with pytest.raises(WireError, match=r"list: must be a list, not null"):
        decode.get_list({"list": None}, "list")
