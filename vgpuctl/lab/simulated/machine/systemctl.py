# SPDX-License-Identifier: Apache-2.0
"""`systemctl` of a simulated host: list-units, show, start, stop, daemon-reload."""

from collections.abc import Sequence

from vgpuctl.lab.simulated.machine import usage
from vgpuctl.lab.simulated.machine.state import MachineFolder, State

_NOT_FOUND_STATUS = 5


def run(machine: MachineFolder, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run it: (exit status, stdout, stderr)."""
    words = [word for word in arguments if not word.startswith("-")]
    verb, names = (words[0], words[1:]) if words else ("list-units", [])
    if verb == "list-units":
        lines = [
            f"{name} loaded {'active running' if active else 'inactive dead'} {name.partition('.')[0]}"
            for name, active in sorted(machine.state().services.items())
        ]
        return 0, "".join(f"{line}\n" for line in lines), ""
    if verb == "daemon-reload":
        return 0, "", ""
    if len(names) != 1:
        return 1, "", f"Too few or too many arguments for {verb}.\n"
    if verb == "show":
        return 0, _shown(machine.state(), names[0]), ""
    if verb in ("start", "stop"):
        with machine.change() as state:
            if names[0] not in state.services:
                return _NOT_FOUND_STATUS, "", f"Failed to {verb} {names[0]}: Unit {names[0]} not found.\n"
            if verb == "stop":
                usage.stop_service(state, names[0])
            elif not state.services[names[0]]:
                usage.start_service(machine.shape, state, names[0])
        return 0, "", ""
    return 1, "", f"Unknown command verb {verb}.\n"


def _shown(state: State, name: str) -> str:
    if name not in state.services:
        return "LoadState=not-found\nActiveState=inactive\nResult=success\n"
    return f"LoadState=loaded\nActiveState={'active' if state.services[name] else 'inactive'}\nResult=success\n"
