# SPDX-License-Identifier: Apache-2.0
"""The life of the simulated hosts: up, down, status, reboot."""

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpuctl.errors import LabError, UsageError
from vgpuctl.model.plural import counted
from vgpuctl_lab.builds import ensure_program_client
from vgpuctl_lab.folder import LabFolder, default_folder, write_private
from vgpuctl_lab.identity import KEY_EXCHANGE, ensure_key
from vgpuctl_lab.process import needed_program
from vgpuctl_lab.records import HostAccess
from vgpuctl_lab.simulated import interpreter
from vgpuctl_lab.simulated.layout import ADDRESS, SimulatedFolder, simulated_folder
from vgpuctl_lab.simulated.machine import shape as shapes
from vgpuctl_lab.simulated.machine.programs import PROGRAMS
from vgpuctl_lab.simulated.machine.state import make
from vgpuctl_lab.simulated.mix import DEFAULT_MIX, parse_mix, shape_of, share_out

Say = Callable[[str], None]
LIBVIRT_VERSION = "libvirtd (libvirt) 10.0.0"
QEMU_VERSION = "QEMU emulator version 8.2.2"
MOST_HOSTS = 1000
_START_LIMIT_S = 30.0
_CALL_LIMIT_S = 300.0
_END_LIMIT_S = 30.0
_PACKAGE = Path(__file__).parent.parent

# The options before -u take no argument, those of -u, -p and -g do; an assignment is an option too.
_SUDO = """\
#!/bin/sh
# Every login of a simulated host may change it, so sudo only runs the command.
while [ $# -gt 0 ]; do
    case $1 in
    --) shift; break ;;
    -u | -p | -g) shift 2 ;;
    -* | *=*) shift ;;
    *) break ;;
    esac
done
# Like sudo's own answer; the shell's words would mean that sudo is missing.
command -v "$1" >/dev/null || { echo "sudo: $1: command not found" >&2; exit 1; }
exec "$@"
"""

_NODE = """\
<node>
  <cpu><mhz>2000</mhz><model>x86</model><active>64</active><nodes>2</nodes><sockets>1</sockets><cores>32</cores>\
<threads>1</threads></cpu>
  <memory>536870912</memory>
  <network>
    <name>default</name>
    <bridge name="virbr0"/>
    <ip address="192.168.122.1" netmask="255.255.255.0"/>
  </network>
  <pool type="dir">
    <name>default</name>
    <target><path>/var/lib/libvirt/images</path></target>
  </pool>
</node>
"""


@dataclass(frozen=True)
class SimulatedHostStatus(HostAccess):
    """One simulated host. sessions: logins; vms: running domains. uptime_s: None for a host that does not run.

    state: `up`, `off` (the fault power-off), or `dead` when the lab daemon is gone.
    """

    cards: tuple[str, ...]
    latency_ms: float
    sessions: int
    vms: int
    uptime_s: float | None


def up(
    hosts: int,
    *,
    mix: str = DEFAULT_MIX,
    latency_ms: float = 0.0,
    with_vfs: bool = True,
    folder: LabFolder | None = None,
    say: Say | None = None,
) -> list[SimulatedHostStatus]:
    """Bring `hosts` simulated hosts up, named sim-001 and so on; those that are there stay as they are.

    latency_ms: added to every round trip to them. with_vfs: their VFs are enabled, once; a reboot loses them.
    Raises UsageError, LabError.
    """
    if not 0 < hosts <= MOST_HOSTS:
        raise UsageError(f"{hosts} simulated hosts", hint=f"1 to {MOST_HOSTS}")
    if latency_ms < 0:
        raise UsageError(f"a latency of {latency_ms:g} ms")
    parts = share_out(parse_mix(mix), hosts)
    named = {f"sim-{number:03}": part for number, part in enumerate(parts, start=1)}

    def make_hosts(lab: SimulatedFolder, new: Sequence[str]) -> None:
        versions = _versions() if new else {}
        for name in new:
            shape = shape_of(name, named[name], versions, with_vfs=with_vfs)
            make_host(lab, name, named[name].text, shape, latency_ms)

    return bring_up(list(named), make_hosts, folder=folder, say=say)


def bring_up(
    wanted: Sequence[str],
    make_hosts: Callable[[SimulatedFolder, Sequence[str]], None],
    *,
    folder: LabFolder | None,
    say: Say | None,
) -> list[SimulatedHostStatus]:
    """Bring hosts up by their names. make_hosts: writes the folders of those that are new. Raises LabError."""
    parent = folder or default_folder()
    parent.claim()
    lab = simulated_folder(parent)
    tell = say or (lambda _line: None)
    with lab.locked():
        began = time.monotonic()
        new = [name for name in wanted if not (lab.host(name) / "state.json").exists()]
        _prepare(parent, lab)
        make_hosts(lab, new)
        tell(f"{len(new)} new hosts written ({time.monotonic() - began:.1f} s)")
        _ensure_daemon(lab)
        try:
            _ask(lab, {"call": "add", "hosts": lab.host_names()})
        except LabError:
            if len(new) == len(lab.host_names()):
                _end_processes(lab)
            raise
        _write_inventory(lab)
    found = [host for host in status(folder=folder) if host.name in wanted]
    off = [host.name for host in found if host.state == "off"]
    tell(f"{counted(len(found) - len(off), 'host')} up ({time.monotonic() - began:.1f} s)")
    if off:
        tell(f"{', '.join(off)} without power: `vgpuctl lab fault HOST power-off --clear` ends that")
    return found


def down(hosts: Sequence[str] = (), *, folder: LabFolder | None = None) -> list[str]:
    """End hosts (all without names) and remove their files, also what a crash left. Returns their names."""
    lab = simulated_folder(folder or default_folder())
    if not lab.path.is_dir():
        return []
    with lab.locked():
        there = lab.host_names()
        for name in hosts:
            if name not in there:
                raise _unknown(lab, name)
        ended = [name for name in there if not hosts or name in hosts]
        if len(ended) < len(there):
            if _is_kept(lab):
                _ask(lab, {"call": "remove", "hosts": ended})
            for name in ended:
                shutil.rmtree(lab.host(name))
            _write_inventory(lab)
            return ended
        _end_processes(lab)
        shutil.rmtree(lab.path)
    return ended


def status(*, folder: LabFolder | None = None) -> list[SimulatedHostStatus]:
    """Every simulated host of the lab, by name."""
    lab = simulated_folder(folder or default_folder())
    alive: Mapping[str, Any] = _ask(lab, {"call": "status"}) if _is_kept(lab) else {}
    user = pwd.getpwuid(os.geteuid()).pw_name
    found = []
    for name in lab.host_names():
        if not (lab.host(name) / "state.json").exists():
            continue
        proxy = alive.get(name)
        found.append(
            SimulatedHostStatus(
                name=name,
                state="dead" if proxy is None else "off" if proxy["is_off"] else "up",
                address=ADDRESS,
                port=proxy["port"] if proxy else lab.read_port(name),
                user=user,
                private_key=lab.private_key,
                known_hosts=lab.known_hosts,
                inventory=lab.inventory,
                cards=tuple((lab.host(name) / "cards").read_text().split()),
                latency_ms=lab.read_latency_s(name) * 1000,
                sessions=proxy["sessions"] if proxy else 0,
                vms=proxy["vms"] if proxy else 0,
                uptime_s=round(time.time() - proxy["booted_at"], 1) if proxy and not proxy["is_off"] else None,
            )
        )
    return found


def reboot(name: str, *, folder: LabFolder | None = None) -> None:
    """Restart a host: VMs, vGPUs, VFs and driver bindings are gone, libvirt's definitions stay. Raises LabError."""
    lab = simulated_folder(folder or default_folder())
    if name not in lab.host_names():
        raise _unknown(lab, name)
    with lab.locked():
        _ask(lab, {"call": "reboot", "hosts": [name]})


def heed_faults(name: str, *, folder: LabFolder | None = None) -> None:
    """Let the lab daemon bring a host into the state that its faults say. Raises LabError."""
    lab = simulated_folder(folder or default_folder())
    with lab.locked():
        _ask(lab, {"call": "faults", "hosts": [name]})


def shell_command(name: str, command: Sequence[str] = (), *, folder: LabFolder | None = None) -> list[str]:
    """The `ssh` command line that logs in to a host, with `command`. Raises LabError."""
    host = next((one for one in status(folder=folder) if one.name == name), None)
    if host is None:
        raise _unknown(simulated_folder(folder or default_folder()), name)
    return [
        needed_program("ssh", package="openssh-client"),
        *("-F", "none", "-i", str(host.private_key), "-p", str(host.port)),
        *("-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"),
        *("-o", f'UserKnownHostsFile="{host.known_hosts}"', "-o", "StrictHostKeyChecking=yes"),
        *("-o", "GlobalKnownHostsFile=none", "-o", "ConnectTimeout=20", f"{host.user}@{host.address}"),
        *command,
    ]


def kernel_log(name: str, *, folder: LabFolder | None = None) -> Path:
    """The file with what the host's simulated kernel said since its last start. Raises LabError."""
    lab = simulated_folder(folder or default_folder())
    path = lab.host(name) / "root/dev/kmsg"
    if not path.is_file():
        raise _unknown(lab, name)
    return path


def names(*, folder: LabFolder | None = None) -> list[str]:
    """The names of the simulated hosts that have a folder."""
    return simulated_folder(folder or default_folder()).host_names()


def _prepare(parent: LabFolder, lab: SimulatedFolder) -> None:
    """Write what all hosts share: the login key and the programs on their PATH."""
    for folder in (lab.hosts, lab.programs):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ensure_key(lab.private_key, f"vgpuctl lab {lab.path.parent.name}")
    for program, package in (("sshd", "openssh-server"), ("setpriv", "util-linux"), ("libvirtd", "libvirt-daemon")):
        needed_program(program, package=package)
    client = ensure_program_client(parent).read_bytes()
    for program in ("python3", "virt-ssh-helper", "sh", *PROGRAMS):
        write_private(lab.programs / program, client, 0o700)
    write_private(lab.programs / "sudo", _SUDO, 0o700)
    if os.geteuid() == 0:
        # sshd refuses to start without it; Debian makes it when its own sshd starts.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def make_host(
    lab: SimulatedFolder,
    name: str,
    cards: str,
    shape: shapes.Shape,
    latency_ms: float,
    *,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write a host's folder; `state.json` comes last and says that it is complete. files: others in it, by name."""
    folder = lab.host(name)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "home").mkdir(parents=True, mode=0o700)
    for file, content in (files or {}).items():
        write_private(folder / file, content)
    ensure_key(folder / "host_key", name)
    write_private(folder / "latency_ms", f"{latency_ms}\n")
    write_private(folder / "cards", " ".join(cards.split("+")) + "\n")
    write_private(folder / "node.xml", _NODE)
    write_private(folder / "sshd_config", _sshd_config(lab, name))
    shapes.write(shape, folder / "machine.json")
    make(folder, shape)


def _sshd_config(lab: SimulatedFolder, name: str) -> str:
    folder = lab.host(name)
    environment = {
        interpreter.HOST_VARIABLE: str(folder),
        "PATH": f"{lab.programs}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(folder / "home"),
        # bash reads ~/.bashrc for a command of sshd, unless it is nested; the machine's own is none of the host's.
        "SHLVL": "1",
    }
    variables = " ".join(f'"{key}={value}"' for key, value in environment.items())
    return f"""\
# SPDX-License-Identifier: Apache-2.0
HostKey "{folder}/host_key"
AuthorizedKeysFile "{lab.private_key}.pub"
SetEnv {variables}
PidFile none
UsePAM no
KexAlgorithms {KEY_EXCHANGE}
PermitRootLogin yes
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
MaxSessions 64
LogLevel ERROR
"""


def _versions() -> dict[str, str]:
    """Versions that can move VMs with vGPUs, as Ubuntu 24.04 has them."""
    return {"libvirtd": LIBVIRT_VERSION, "qemu-system-x86_64": QEMU_VERSION}


def _ensure_daemon(lab: SimulatedFolder) -> None:
    if _is_kept(lab):
        return
    _end_processes(lab)
    lab.control_socket.unlink(missing_ok=True)
    with lab.daemon_log.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "vgpuctl_lab.simulated.daemon", str(lab.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=lab.path,
            env={**os.environ, "PYTHONPATH": str(_PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
        )
    limit = time.monotonic() + _START_LIMIT_S
    while True:
        if _is_kept(lab):
            with suppress(LabError):
                _ask(lab, {"call": "status"})
                with warnings.catch_warnings():
                    # It goes on after this process, which Python warns of.
                    warnings.simplefilter("ignore", ResourceWarning)
                    del child
                return
        if child.poll() is not None or time.monotonic() > limit:
            child.kill()
            child.wait()
            said = lab.daemon_log.read_text(errors="replace").splitlines()[-10:]
            raise LabError("the daemon of the simulated hosts does not start", context=said)
        time.sleep(0.02)


def _is_kept(lab: SimulatedFolder) -> bool:
    """True if the lab daemon runs and listens."""
    processes = lab.read_processes()
    return processes is not None and processes[0].is_running() and lab.control_socket.exists()


def _end_processes(lab: SimulatedFolder) -> None:
    """End the lab daemon, which ends everything else, and libvirtd if the lab daemon could not."""
    for process in lab.read_processes() or ():
        process.end(grace_s=_END_LIMIT_S)
    (lab.path / "processes.json").unlink(missing_ok=True)


def _ask(lab: SimulatedFolder, request: Mapping[str, object]) -> Any:
    """Ask the lab daemon. Raises LabError."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_CALL_LIMIT_S)
            # Through /proc, because a socket's path has at most 107 bytes.
            descriptor = os.open(lab.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                connection.connect(f"/proc/self/fd/{descriptor}/{lab.control_socket.name}")
            finally:
                os.close(descriptor)
            with connection.makefile("rb") as answers:
                connection.sendall(json.dumps(request).encode() + b"\n")
                answer = json.loads(answers.readline())
    except (OSError, ValueError) as error:
        raise LabError(
            f"the daemon of the simulated hosts does not answer: {error}",
            hint="`vgpuctl lab up` starts it again; a restart is a power cut for every host",
        ) from error
    if "error" in answer:
        raise LabError(f"the simulated hosts cannot {request['call']}: {answer['error']}")
    return answer["answer"]


def _write_inventory(lab: SimulatedFolder) -> None:
    """Write the inventory and the known host keys of every host."""
    user = pwd.getpwuid(os.geteuid()).pw_name
    shared = {
        "ansible_host": ADDRESS,
        "ansible_user": user,
        "ansible_become": True,
        "ansible_ssh_private_key_file": str(lab.private_key),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile='{lab.known_hosts}' -o IdentitiesOnly=yes",
        "ansible_python_interpreter": str(lab.programs / "python3"),
    }
    # JSON's strings, numbers and booleans are YAML's too.
    lines = ["# Written by `vgpuctl lab`; every `lab up` and `lab down` writes it anew.", "simulated_hosts:", "  vars:"]
    lines += [f"    {key}: {json.dumps(value)}" for key, value in shared.items()]
    lines.append("  hosts:")
    keys = []
    for name in lab.host_names():
        port = lab.read_port(name)
        lines += [f"    {name}:", f"      ansible_port: {port}"]
        public = (lab.host(name) / "host_key.pub").read_text().split()
        keys.append(f"[{ADDRESS}]:{port} {public[0]} {public[1]}\n")
    write_private(lab.known_hosts, "".join(keys))
    write_private(lab.inventory, "\n".join(lines) + "\n")


def _unknown(lab: SimulatedFolder, name: str) -> LabError:
    there = ", ".join(lab.host_names()) or "none"
    return LabError(f"there is no simulated host {name!r} in {lab.path}", hint=f"hosts there: {there}")
