# SPDX-License-Identifier: Apache-2.0
"""Playing a scenario on a host of the lab: its curves file is written, and removed again."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from vgpuctl.agent.wire.measures import GPU, INSTANCE, VGPU, VM
from vgpuctl.errors import LabError
from vgpuctl_lab import lifecycle
from vgpuctl_lab.faults import is_simulated
from vgpuctl_lab.folder import LabFolder, default_folder
from vgpuctl_lab.scenarios import Scenario, Target, compile_scenario
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.curves import CURVES, Curves, parse, read, render
from vgpuctl_lab.simulated.machine.state import MachineFolder, is_nvidia

_MIB = 1 << 20
# Where an emulated host has the program that logs a scenario's Xids, with the module that it imports.
_XIDS_FOLDER = "/run/vgpulab-scenario"
_XIDS_PROGRAM = "in_host/play_xids.py"
_XIDS_MODULE = "simulated/machine/curves.py"


@dataclass(frozen=True)
class Played:
    """The curves that a host plays now: (target, measure, number of points) of each."""

    curves: tuple[tuple[str, str, int], ...]


def play(host: str, scenario: Scenario, *, folder: LabFolder | None = None) -> Played:
    """Play a scenario on a host from now on, in place of another one. Raises LabError, UsageError."""
    lab = folder or default_folder()
    if is_simulated(host, lab):
        machine = _machine(lab, host)
        curves = compile_scenario(scenario, _simulated_targets(machine), started_at=machine.state().now())
        path = machine.root / CURVES.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(render(curves))
        temporary.replace(path)
        return _played(curves)
    now, targets = _kernel_targets(lab, host)
    curves = compile_scenario(scenario, targets, started_at=now)
    steps = [_put(f"{CURVES}.new", render(curves)), f"mv {CURVES}.new {CURVES}"]
    if any(measure.startswith("xid/") for _, measure in curves.curves):
        steps += _start_xids()
    _run(lab, host, " && ".join(steps))
    return _played(curves)


def stop(host: str, *, folder: LabFolder | None = None) -> bool:
    """End what a host plays; False if it played nothing. Raises LabError."""
    lab = folder or default_folder()
    if is_simulated(host, lab):
        path = _machine(lab, host).root / CURVES.lstrip("/")
        was_there = path.exists()
        path.unlink(missing_ok=True)
        return was_there
    return "yes" in _run(lab, host, f"[ ! -e {CURVES} ] || echo yes; rm -f {CURVES}")


def playing(host: str, *, folder: LabFolder | None = None) -> Played:
    """Return the curves that a host plays now. Raises LabError."""
    lab = folder or default_folder()
    if is_simulated(host, lab):
        return _played(read(_machine(lab, host).root))
    text = _run(lab, host, f"cat {CURVES} 2>/dev/null || true")
    return _played(parse(text) if text else Curves())


def _put(path: str, content: str) -> str:
    """A shell command that writes a file."""
    text = base64.b64encode(content.encode()).decode()
    return f"mkdir -p $(dirname {path}) && echo {text} | base64 -d >{path}"


def _start_xids() -> list[str]:
    """Shell commands that start the program which logs the Xids; that of the scenario before ends by itself."""
    package = resources.files("vgpuctl_lab")
    program = f"{_XIDS_FOLDER}/play_xids.py"
    return [
        _put(program, (package / _XIDS_PROGRAM).read_text()),
        _put(f"{_XIDS_FOLDER}/vgpuctl_lab/{_XIDS_MODULE}", (package / _XIDS_MODULE).read_text()),
        f"{{ setsid python3 {program} </dev/null >{_XIDS_FOLDER}/log 2>&1 & }}",
    ]


def _played(curves: Curves) -> Played:
    return Played(tuple((target, name, len(one.points)) for (target, name), one in curves.curves.items()))


def _machine(lab: LabFolder, host: str) -> MachineFolder:
    folder = simulated_folder(lab).host(host)
    if not (folder / "state.json").is_file():
        raise LabError(f"the simulated host {host} is not complete", hint="`vgpuctl lab down` removes it")
    return MachineFolder(folder)


def _simulated_targets(machine: MachineFolder) -> list[Target]:
    state = machine.state()
    found: list[Target] = []
    for card in machine.shape.cards:
        if not is_nvidia(card):
            continue
        found.append(Target(GPU, f"gpu:{card.address}", card.address, card.memory_mib * _MIB))
        for one in state.instances_of(card):
            profile = card.mig.profile(one.profile_id) if card.mig else None
            size = profile.memory_mib * _MIB if profile is not None else 0
            found.append(Target(INSTANCE, f"gpu_instance:{card.address}/{one.id}", card.address, size))
        for vgpu in state.vgpus_of(card):
            known = card.type_of(vgpu.type_id)
            if state.holder_of(vgpu) is not None and known is not None:
                name = f"vgpu:{vgpu.uuid or vgpu.function}"
                found.append(Target(VGPU, name, card.address, known.framebuffer_mib * _MIB))
    return found + [Target(VM, f"vm:{uuid}") for uuid in sorted(state.domains)]


def _kernel_targets(lab: LabFolder, host: str) -> tuple[float, list[Target]]:
    """The host's time, and its objects by the kernel module's state and libvirt."""
    now, *lines = _run(
        lab, host, "date +%s.%N; cat /proc/vgpulab/state; virsh --readonly list --uuid 2>/dev/null | sed 's/^/vm /'"
    ).splitlines()
    found: list[Target] = []
    for line in lines:
        words = line.split()
        if len(words) < 2:
            continue
        values = dict(word.split("=", 1) for word in words if "=" in word)
        if words[0] == "card" and "vgpus" in values:
            found.append(Target(GPU, f"gpu:{words[1]}", words[1], _bytes(values.get("framebuffer"))))
        elif words[0] == "gi":
            found.append(Target(INSTANCE, f"gpu_instance:{words[1]}/{values.get('id')}", words[1]))
        elif words[0] == "vgpu" and values.get("in_use") == "1":
            uuid = values.get("uuid", "-")
            name = values.get("function", "") if uuid == "-" else uuid
            found.append(Target(VGPU, f"vgpu:{name}", words[1], _bytes(values.get("framebuffer"))))
        elif words[0] == "vm":
            found.append(Target(VM, f"vm:{words[1]}"))
    return float(now), _by_gpu(found)


def _by_gpu(targets: Sequence[Target]) -> list[Target]:
    return sorted(targets, key=lambda one: (one.gpu, one.kind))


def _bytes(mib: str | None) -> int:
    return int(mib) * _MIB if mib is not None and mib.isdecimal() else 0


def _run(lab: LabFolder, host: str, text: str) -> str:
    status, output, errors = lifecycle.run(host, text, folder=lab)
    if status:
        raise LabError(f"{host}: the scenario cannot be played: exit {status}: {errors.strip()[-200:]}")
    return output
