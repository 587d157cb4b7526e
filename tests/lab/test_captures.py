# SPDX-License-Identifier: Apache-2.0
"""Every capture in the tree is replayed: this vgpuctl still reads of each host what it read when it was recorded."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agent.captures import replayed
from vgpuctl.agent.dispatch import answer, read_facts
from vgpuctl.agent.wire.envelope import Request
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.model.anonymous import Anonymiser, NameKind
from vgpuctl.model.capture import SUFFIX, Capture, read_capture
from vgpuctl.model.layout import HostLayout
from vgpuctl.planner.layout.plan import plan_host
from vgpuctl_lab.simulated.machine.replayed_host import ReplayedHost

FOLDER = Path(__file__).parents[1] / "data" / "captures"
FILES = sorted(FOLDER.glob(f"*{SUFFIX}"))


def _name(file: Path) -> str:
    return file.name.removesuffix(SUFFIX)


@pytest.fixture(params=FILES, ids=_name)
def file(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_there_are_captures() -> None:
    kinds = {board.sharing for file in FILES for board in read_capture(file).manifest.boards}
    assert {kind for sharing in kinds for kind in sharing} >= {"vf-profile", "mdev-vf", "mdev", "vf", "passthrough"}


def test_a_captured_host_is_read_as_before(file: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    capture = read_capture(file)
    facts = read_facts(replayed(capture, tmp_path / "replay"))
    found = _summary(capture, facts)
    golden = file.with_name(f"{_name(file)}.summary.json")
    if request.config.getoption("--regenerate"):
        golden.write_text(json.dumps(found, indent=2) + "\n")
    assert found == json.loads(golden.read_text())


ASKED_SINCE = (
    "digest /etc/vgpuctl/",
    "exists /boot/config-",
    "read_optional /etc/libvirt/qemu.conf",
    "listdir_optional /etc/cdi",
    "listdir_optional /run/cdi",
    "read_optional /etc/vgpuctl/kept-limits.json",
)
"""Questions that are newer than the captures of the tree."""
ASKED_OF_PROCESSES_SINCE = re.compile(r"read_optional /proc/\d+/stat")


def test_every_call_is_answered_without_a_gap(file: Path, tmp_path: Path) -> None:
    host = replayed(read_capture(file), tmp_path / "replay")
    for call in read_capture(file).manifest.calls:
        reply = answer(host, Request(call))
        assert reply.problem is None, (call, reply.problem)
        gaps = re.findall(r"not in this capture: (\w+ [^'\s]+)", repr(reply))
        old = [one for one in gaps if not ASKED_OF_PROCESSES_SINCE.fullmatch(one)]
        assert [one for one in old if not one.startswith(ASKED_SINCE)] == [], call


# Without these nothing that is read can be compared, and no GPU be told missing: the whole call is refused.
NEEDED = {"read_optional /proc/sys/kernel/random/boot_id", "listdir_optional /sys/bus/pci/devices"}


# None of these keeps anything from being used: unknown is a value of each, and nobody has to be told.
PREFERENCES = (
    "/run/vgpuctl/vf-uses.json",
    "nvmlDeviceGetUtilizationRates",
    "nvmlVgpuTypeGetNumDisplayHeads",
    "nvmlVgpuTypeGetResolution",
    "nvmlVgpuTypeGetFrameRateLimit",
    "/usr/share/OVMF/OVMF_VARS",
)


_LARGE = pytest.mark.long("tests/lab/test_captures.py::test_one_missing_answer_loses_itself_alone")
_LARGE_ONES = ("lab-kernel", "lab-kernel-mig", "simulated-mdev-vf")


@pytest.mark.parametrize(
    "file", [pytest.param(one, id=_name(one), marks=_LARGE if _name(one) in _LARGE_ONES else ()) for one in FILES]
)
def test_one_missing_answer_loses_itself_alone(file: Path, tmp_path: Path) -> None:
    """A capture that is older than a question, and a host with one file that cannot be read."""
    capture = read_capture(file)
    whole = read_facts(replayed(capture, tmp_path / "whole"))
    machine = capture.machine
    for number, key in enumerate(_one_of_each(machine["answers"])):
        answers = {name: one for name, one in machine["answers"].items() if name != key}
        told = _struck(replace(capture, machine={**machine, "answers": answers}), tmp_path / str(number), key)
        if key not in NEEDED:
            _is_named(whole, told, key)
    for number, key in enumerate(_one_of_each(machine["nvml"]["answers"])):
        answers = {name: one for name, one in machine["nvml"]["answers"].items() if name != key}
        nvml = {**machine["nvml"], "answers": answers}
        told = _struck(replace(capture, machine={**machine, "nvml": nvml}), tmp_path / f"nvml-{number}", key)
        _is_named(whole, told, key)


def test_a_host_that_was_recorded_before_containers_were_asked_for_still_takes_vms(file: Path, tmp_path: Path) -> None:
    facts = read_facts(replayed(read_capture(file), tmp_path / "replay"))
    assert facts.cdi is not None and (facts.cdi.unknown, facts.cdi.gpus) == (None, ())


def _one_of_each(answers: Mapping[str, object]) -> list[str]:
    """One question of each shape: a host has hundreds of VFs, of which one is like the other."""
    found: dict[str, str] = {}
    for key in answers:
        shape = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?:[0-9a-f]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-f]{2}\.[0-7]|\d+", "#", key)
        found.setdefault(shape, key)
    return list(found.values())


def _struck(capture: Capture, folder: Path, key: str) -> HostFacts | None:
    """Every call of a capture without one answer; the facts, None where the whole call was refused."""
    facts = None
    for call in capture.manifest.calls:
        reply = answer(ReplayedHost(str(folder), capture.machine), Request(call))
        facts = reply.facts or facts
        if reply.problem is not None:
            assert key in NEEDED and key in reply.problem.message, (call, key, reply.problem)
    return facts


def _is_named(whole: HostFacts, told: HostFacts | None, key: str) -> None:
    """Each fact that changed is named as unread."""
    assert told is not None, key
    if any(one in key for one in PREFERENCES):
        return
    unread = {one.name for one in told.unread}
    for name in HostFacts.__dataclass_fields__:
        if name in ("read_at", "unread", "nvml_problem") or getattr(told, name) == getattr(whole, name):
            continue
        if name == "gpus":
            assert len(told.gpus) == len(whole.gpus) or told.unread_functions or told.nvml_problem, key
            # An unknown fact of a move is a limit of the move (planner/moves), and an unread setting is marked as such.
            before = {one.address: one for one in whole.gpus}
            known, now = ([replace(one, migration=None, tuning=None) for one in facts.gpus] for facts in (whole, told))
            changed = [one for one in now if one not in known]
            retuned = [one for one in told.gpus if one.tuning is not None and one.tuning != before[one.address].tuning]
            assert all(one.tuning is None or one.tuning.unread for one in retuned), key
            is_told = all(one.unread or one.problems for one in changed) or told.nvml_problem
            assert is_told, (key, [one.address for one in changed])
        elif name != "unread_functions":
            assert name in unread or (name.startswith("nv") and told.nvml_problem), (key, name)


def test_a_layout_is_planned_for_a_captured_host(file: Path, tmp_path: Path) -> None:
    facts = read_facts(replayed(read_capture(file), tmp_path / "replay"))
    plan = plan_host(HostLayout(gpus=()), facts, (), frozenset())
    assert plan.differences == ()


def test_no_capture_names_its_site(file: Path) -> None:
    """Every value in the file is a replacement, or is the same everywhere."""
    capture = read_capture(file)
    anonymiser = Anonymiser({})
    anonymiser.look_at([capture.machine, capture.libvirt], with_names=False)
    left = [
        (kind, value)
        for kind, value, _ in anonymiser.replaced()
        if not value.startswith(("198.18.", "2001:db8:", "02:00:00:")) and "-0000-4000-8000-0000" not in value
        if not (kind == NameKind.MACHINE_ID and "0000000000000000" in value)
        if kind != NameKind.SECRET
    ]
    assert left == []


def _summary(capture: Capture, facts: HostFacts) -> dict[str, Any]:
    return {
        "is_emulated": capture.manifest.is_emulated,
        "kernel": facts.kernel,
        "driver": facts.nvidia_driver,
        "libvirt": facts.libvirt_version,
        "unread_functions": [one.problem for one in facts.unread_functions],
        "gpus": [_gpu(gpu) for gpu in facts.gpus],
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "address": gpu.address,
        "ids": f"{gpu.vendor_id}:{gpu.device_id} {gpu.subsystem_id}",
        "name": gpu.name,
        "driver": gpu.driver,
        "sharing": list(gpu.sharing),
        "memory_mib": gpu.memory_mib,
        "vfs": dict(Counter(f"{vf.driver} {'taken' if vf.current_type or vf.mdev_uuid else 'free'}" for vf in gpu.vfs)),
        "types": {one.name: one.creatable for one in gpu.types},
        "instances": [f"{one.profile}@{one.start}" for one in gpu.mig.instances] if gpu.mig else None,
        "companions": len(gpu.companions),
        "problems": list(gpu.problems),
    }
