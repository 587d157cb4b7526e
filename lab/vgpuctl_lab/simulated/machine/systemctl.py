# SPDX-License-Identifier: Apache-2.0
"""`systemctl` of a simulated host: list-units, show, start, stop, restart, enable, reload, daemon-reload."""

from collections.abc import Sequence

from vgpuctl_lab.simulated.machine import fabric_manager, usage
from vgpuctl_lab.simulated.machine.distribution import Distribution, distribution_of
from vgpuctl_lab.simulated.machine.network_functions import UNIT_PREFIX
from vgpuctl_lab.simulated.machine.shape import Shape
from vgpuctl_lab.simulated.machine.state import FABRIC_MANAGER, MachineFolder, State

_NOT_FOUND_STATUS = 5


def run(machine: MachineFolder, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run it: (exit status, stdout, stderr)."""
    words = [word for word in arguments if not word.startswith("-")]
    verb, names = (words[0], words[1:]) if words else ("list-units", [])
    names = [name if "." in name else f"{name}.service" for name in names]
    if verb == "list-units":
        state = machine.state()
        lines = [
            f"{name} loaded {'active running' if _is_active(state, name) else 'inactive dead'} {name.partition('.')[0]}"
            for name in sorted(state.services)
            if name.endswith(".service")
        ]
        return 0, "".join(f"{line}\n" for line in lines), ""
    if verb == "daemon-reload":
        _load_timers(machine)
    if verb == "kill":
        return (0, "", "") if _is_active(machine.state(), words[-1]) else (1, "", f"Unit {words[-1]} not loaded.\n")
    if verb in ("daemon-reload", "reload"):
        return 0, "", ""
    if verb == "show":
        return 0, "\n".join(_shown(machine.shape, machine.state(), name) for name in names), ""
    if len(names) != 1:
        return 1, "", f"Too few or too many arguments for {verb}.\n"
    if verb == "enable":
        distribution = distribution_of(machine.shape)
        with machine.change() as state:
            if not _is_known(distribution, state, names[0]):
                return 1, "", f"Failed to enable unit: Unit {names[0]} does not exist\n"
            if names[0] not in (*state.enabled, *distribution.static):
                state.enabled.append(names[0])
        return 0, "", ""
    if verb in ("start", "stop", "restart"):
        with machine.change() as state:
            if names[0] not in state.services:
                return _NOT_FOUND_STATUS, "", f"Failed to {verb} {names[0]}: Unit {names[0]} not found.\n"
            if names[0] == FABRIC_MANAGER:
                return fabric_manager.control(machine, state, verb)
            if verb == "stop":
                usage.stop_service(state, names[0])
            elif not state.services[names[0]]:
                usage.start_service(machine.shape, state, names[0])
        return 0, "", ""
    return 1, "", f"Unknown command verb {verb}.\n"


def _load_timers(machine: MachineFolder) -> None:
    """Know the timers and programs of network functions in the administrator's folder; forget those that are gone."""
    folder = machine.root / "etc/systemd/system"
    patterns = ("*.timer", f"{UNIT_PREFIX}*.service")
    there = {path.name for one in patterns for path in folder.glob(one)} if folder.is_dir() else set()
    with machine.change() as state:
        known = [one for one in state.services if one.endswith(".timer") or one.startswith(UNIT_PREFIX)]
        for name in [name for name in known if name not in there]:
            del state.services[name]
        for name in sorted(there):
            state.services.setdefault(name, False)


def _shown(shape: Shape, state: State, name: str) -> str:
    distribution = distribution_of(shape)
    is_known = _is_known(distribution, state, name)
    file_state = "enabled" if name in state.enabled else "static" if name in distribution.static else "disabled"
    shown = {
        "Id": name,
        "LoadState": "loaded" if is_known else "not-found",
        "ActiveState": "active" if _is_active(state, name) else "inactive",
        "Result": "success",
        "UnitFileState": file_state if is_known else "",
        "User": "",
        "Environment": "",
        "InactiveExitTimestampMonotonic": str(_begun_us(state, name)),
    }
    files = [path for path in distribution.files if name == distribution.controller]
    lines = [f"{key}={value}" for key, value in shown.items()]
    return "".join(
        f"{line}\n" for line in (*lines, *(f"EnvironmentFiles={path} (ignore_errors=yes)" for path in files))
    )


def _begun_us(state: State, name: str) -> int:
    """When Fabric Manager was started last, as microseconds since the boot; files know no skipped time."""
    if name != FABRIC_MANAGER:
        return 0
    return max(1, int((state.fabric.started_at - state.booted_at + state.skipped_s) * 1_000_000))


def _is_active(state: State, name: str) -> bool:
    return fabric_manager.is_running(state) if name == FABRIC_MANAGER else state.services.get(name, False)


def _is_known(distribution: Distribution, state: State, name: str) -> bool:
    return name in state.services or name in distribution.enabled
