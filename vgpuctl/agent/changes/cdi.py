# SPDX-License-Identifier: Apache-2.0
"""Describe the host's own GPUs to its container engines, by the Container Device Interface."""

import contextlib
import json
from typing import Any, Dict, List, Sequence, Tuple

from vgpuctl.agent.facts import cdi
from vgpuctl.agent.facts.cdi import OwnDevice
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import cdi as wire
from vgpuctl.agent.wire.boot import sha256
from vgpuctl.agent.wire.cdi import CdiState, SetContainerGpus
from vgpuctl.agent.wire.decode import to_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change

_TIMEOUT_S = 60.0
_CONTROL_MINOR = 255
_VERSION = "0.5.0"
"""Of the specification: the first with devices whose name begins with a digit, and all that is written here."""


def ensure(host: Host, step: SetContainerGpus, *, dry_run: bool) -> Change:
    """Write the file, or remove it; a second time nothing is written. Missing device nodes are made first.

    NVIDIA's toolkit says what a container needs of the driver, where it is installed; without it the file has the
    device nodes alone. A file of that name that vgpuctl did not write is not touched: Problem `write-refused`. Raises
    Problem `not-found` for a GPU that the driver does not have, `unexpected-value` for what the toolkit or the record
    of the file says.
    """
    state = cdi.read_state(host)
    before = ", ".join(state.gpus) if state is not None and state.gpus else "none"
    wanted = tuple(sorted(step.gpus))
    if state is None and host.exists(wire.FILE):
        raise Problem(
            ProblemCode.WRITE_REFUSED,
            f"{wire.FILE} is there, and vgpuctl has not written it",
            path=wire.FILE,
            hint="look whose it is, and move it away",
        )
    if not wanted:
        if state is not None and not dry_run:
            host.remove_file(wire.FILE)
            host.remove_file(wire.STATE)
        return Change(step.op, wire.FILE, before, "none", changed=state is not None)
    after = ", ".join(wanted)
    devices = cdi.own_devices(host, wanted)
    if not dry_run:
        _make_nodes(host, devices)
    basis = cdi.basis_of(host, devices)
    is_there = state is not None and (state.gpus, state.basis) == (wanted, basis)
    if is_there and state is not None and host.digest(wire.FILE) == state.sha256:
        return Change(step.op, wire.FILE, before, before, changed=False)
    if not dry_run:
        data = json.dumps(_content(host, devices), indent=1, sort_keys=True).encode() + b"\n"
        # The state first: a file without one would be another's.
        made = to_json(CdiState(wanted, basis, sha256(data)))
        host.put_file(wire.STATE, json.dumps(made, sort_keys=True).encode() + b"\n", 0o600)
        host.put_file(wire.FILE, data, 0o644)
    return Change(step.op, wire.FILE, before if before != after else "older", after, changed=True)


def _make_nodes(host: Host, devices: Sequence[OwnDevice]) -> None:
    """Load the driver's module for computing, and make the nodes that are missing, by NVIDIA's program for that.

    Most come only once a program has used the GPU, which is after the restore at a boot, and a container cannot make
    them. The driver's libraries run this program too. Where it is not installed, or fails, as with the vGPU manager,
    which has no such module, the file has the nodes that there are. Sources: nvidia-modprobe(1) and nvidia-modprobe.c;
    NVIDIA MIG User Guide, "Device Nodes and Capabilities" (-f).
    """
    if host.find_program(wire.MODPROBE) is None:
        return
    missing = {path: way for one in devices for path, way in one.made_by if not host.exists(path)}
    missing.update({cdi.CONTROL: f"-c {_CONTROL_MINOR}"} if not host.exists(cdi.CONTROL) else {})
    for ways in (["-u", "-c 0"] if not host.exists(cdi.UVM) else [], sorted(missing.values())):
        if ways:
            with contextlib.suppress(Problem):
                host.run([wire.MODPROBE, *" ".join(ways).split()], timeout_s=_TIMEOUT_S, changes=True)


def _content(host: Host, devices: Sequence[OwnDevice]) -> Dict[str, Any]:
    if host.find_program(cdi.TOOLKIT) is not None:
        return _by_toolkit(host, devices)
    return {
        "cdiVersion": _VERSION,
        "kind": wire.KIND,
        "devices": _with_all([{"name": one.name, "containerEdits": _edits(one.nodes)} for one in devices]),
        "containerEdits": _edits(cdi.driver_nodes(host)),
    }


def _edits(paths: Sequence[str]) -> Dict[str, Any]:
    return {"deviceNodes": [{"path": path} for path in paths]}


def _by_toolkit(host: Host, devices: Sequence[OwnDevice]) -> Dict[str, Any]:
    """The toolkit's file without the devices that are not the host's own.

    The nodes of a device show its GPU: a device stays if all of its GPU nodes are of the host's own GPUs.
    """
    argv = [cdi.TOOLKIT, "cdi", "generate", "--format=json", "--device-name-strategy=uuid"]
    done = host.run(argv, timeout_s=_TIMEOUT_S)
    said = f"`{cdi.TOOLKIT} cdi generate`"
    if done.status:
        raise Problem(ProblemCode.UNEXPECTED_VALUE, f"{said} ended with {done.status}: {done.errors.strip()[-400:]}")
    try:
        made = json.loads(done.output)
        if made["kind"] != wire.KIND:
            raise ValueError(f"its kind is {made['kind']!r}")
        own = {path for one in devices for path in one.nodes}
        kept = [one for one in made["devices"] if one["name"] != "all" and _nodes(one) and _nodes(one) <= own]
    except (ValueError, KeyError, TypeError) as problem:
        raise Problem(ProblemCode.UNEXPECTED_VALUE, f"what {said} writes cannot be used: {problem}") from problem
    if len(kept) != len(devices):
        raise Problem(
            ProblemCode.UNEXPECTED_VALUE,
            f"{said} describes {len(kept)} devices of GPUs that have {len(devices)}",
            hint="compare `nvidia-smi -L` with what it writes",
        )
    return {**made, "devices": _with_all(kept)}


def _nodes(device: Dict[str, Any]) -> "frozenset[str]":
    """The nodes of GPUs and of MIG's capabilities that a device has."""
    paths = [str(one["path"]) for one in device["containerEdits"].get("deviceNodes", ())]
    return frozenset(path for path in paths if path.startswith("/dev/nvidia-caps/") or path[11:].isdigit())


def _with_all(devices: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The devices, and `all`, which is all of these."""
    merged: Dict[str, Any] = {}
    seen: List[Tuple[str, Any]] = []
    for one in devices:
        for key, entries in one["containerEdits"].items():
            for entry in entries if isinstance(entries, list) else ():
                if (key, entry) not in seen:
                    seen.append((key, entry))
                    merged.setdefault(key, []).append(entry)
    return [*devices, {"name": "all", "containerEdits": merged}]
