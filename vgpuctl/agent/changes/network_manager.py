# SPDX-License-Identifier: Apache-2.0
"""Make NetworkManager ignore uplinks that are in a bridge: it would give them addresses and routes.

One file for each interface, removed when the interface leaves the bridge (NetworkManager.conf(5), section `device`).
"""

from vgpuctl.agent.facts import network_manager as facts
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

_TIMEOUT_S = 60.0
_TEXT = """\
# Written by vgpuctl: {0} is the uplink of a bridge of Open vSwitch.
[device-vgpuctl-{0}]
match-device=interface-name:={0}
managed=0
"""


def ensure_unmanaged(host: Host, interface: str) -> None:
    """Have NetworkManager leave an interface alone, now and after a boot. Raises Problem `uplink-managed`."""
    if not facts.is_active(host):
        return
    host.put_file(facts.path_of(interface), _TEXT.format(interface).encode(), 0o644)
    said = _tell(host, interface, "no")
    state = facts.state_of(host, interface)
    if state is not None and "unmanaged" not in state:
        raise Problem(
            ProblemCode.UPLINK_MANAGED,
            f"NetworkManager still manages {interface} ({state}): {said or 'it said nothing'}",
            path=facts.path_of(interface),
            hint=f"run `nmcli device set {interface} managed no` on the host, or delete the connection that has it",
        )


def release(host: Host, interface: str) -> None:
    """Give an interface back to NetworkManager where `ensure_unmanaged` took it. Raises Problem `write-refused`."""
    if host.remove_file(facts.path_of(interface)) and facts.is_active(host):
        _tell(host, interface, "yes")


def _tell(host: Host, interface: str, managed: str) -> str:
    """Let it read its files again, and apply it to the device at once. Returns what it said."""
    said = []
    for argv in (
        ["systemctl", "reload", facts.SERVICE],
        [facts.PROGRAM, "device", "set", interface, "managed", managed],
    ):
        if host.find_program(argv[0]) is not None:
            done = host.run(argv, timeout_s=_TIMEOUT_S, changes=True)
            said.append((done.errors + done.output).strip())
    return "; ".join(one for one in said if one)
