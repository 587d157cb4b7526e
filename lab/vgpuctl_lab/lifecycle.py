# SPDX-License-Identifier: Apache-2.0
"""The life of the emulated hosts: up, down, status, reboot, and a command inside."""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vgpuctl.errors import LabError
from vgpuctl_lab.builds import ensure_empty_disk, ensure_guest, ensure_module, ensure_nvml, ensure_shim
from vgpuctl_lab.cards import DEFAULT_HOST, HostShape, parse_host
from vgpuctl_lab.folder import LabFolder, built, default_folder, write_private
from vgpuctl_lab.identity import LOGIN_USER, host_files, host_uuid
from vgpuctl_lab.initramfs import initramfs
from vgpuctl_lab.kernel import Kernel, ensure_kernel
from vgpuctl_lab.machine import Machine, probed_accelerator
from vgpuctl_lab.network import address_with_prefix, end_switch, ensure_switch
from vgpuctl_lab.process import RecordedProcess, needed_program
from vgpuctl_lab.records import (
    HostRecord,
    LabHost,
    number_for,
    read_process,
    read_record,
    write_inventory,
    write_record,
)

Say = Callable[[str], None]
LEAST_MEMORY_MIB = 1024
_READY = "vgpulab: ready"
_SIGNS_OF_DEATH = ("Kernel panic", "vgpulab: stuck")
_READY_LIMIT_S = {"tcg": 600.0, "kvm": 90.0}


def _silent(_line: str) -> None:
    return


def up(
    shapes: Sequence[HostShape] = (), *, folder: LabFolder | None = None, memory_mib: int = 4096, say: Say = _silent
) -> list[LabHost]:
    """Start the hosts that are not up; the default host when none is named. Returns once SSH and libvirt answer.

    say: receives one line of progress at a time. A host that is up with other cards is refused.
    Raises LabError when something is missing or a host does not come up; what was started is ended then.
    """
    lab = folder or default_folder()
    wanted = list(shapes) or [parse_host(DEFAULT_HOST)]
    if memory_mib < LEAST_MEMORY_MIB:
        raise LabError(f"{memory_mib} MiB are too little for an emulated host", hint=f"at least {LEAST_MEMORY_MIB} MiB")
    with lab.locked():
        waiting: list[tuple[HostRecord, Machine, float]] = []
        started: list[RecordedProcess] = []
        try:
            missing = [shape for shape in wanted if not _is_up(lab, shape, say)]
            if missing:
                lab.check_space()
                kernel = ensure_kernel(lab)
                ensure_switch(lab)
                for shape in missing:
                    began = time.monotonic()
                    machine = _prepared(lab, shape, kernel, memory_mib, say)
                    record = _started_as_before(lab, machine, read_record(lab, shape.name), started)
                    say(f"{shape.name}: starting ({record.accelerator}, {memory_mib} MiB), port {record.port}")
                    waiting.append((record, machine, began))
                write_inventory(lab)
            for record, machine, began in waiting:
                _wait_until_ready(lab, machine, record, began, say)
        except BaseException:
            for process in started:
                process.end(grace_s=1)
            raise
        return [host for host in status(folder=lab) if host.name in {shape.name for shape in wanted}]


def down(names: Sequence[str] = (), *, folder: LabFolder | None = None, purge: bool = False) -> list[str]:
    """End hosts (all without names) and remove their files; keeps the cache unless `purge`. Returns their names."""
    lab = folder or default_folder()
    if not lab.path.is_dir():
        return []
    with lab.locked():
        there = lab.host_names()
        for name in names:
            if name not in there:
                raise _unknown(lab, name)
        ended = [name for name in there if not names or name in names]
        for name in ended:
            process = read_process(lab, name)
            if process:
                process.end(grace_s=5)
            shutil.rmtree(lab.host(name))
        write_inventory(lab)
        if not lab.host_names():
            end_switch(lab)
            lab.remove(purge=purge)
        elif purge:
            shutil.rmtree(lab.cache, ignore_errors=True)
    return ended


def status(*, folder: LabFolder | None = None) -> list[LabHost]:
    """Every host that has something left on this machine, by name."""
    lab = folder or default_folder()
    hosts = []
    for name in lab.host_names():
        record = read_record(lab, name)
        if record:
            hosts.append(record.as_host(lab, name))
    return hosts


def reboot(name: str, *, folder: LabFolder | None = None, say: Say = _silent) -> LabHost:
    """Switch a host off and on and wait until it answers: VFs and vGPUs are gone; disk, keys and port are kept.

    Not a reset inside the same QEMU: under TCG that start is four times as slow.
    """
    lab = folder or default_folder()
    with lab.locked():
        before = _running(lab, name)
        began = time.monotonic()
        # As on `reboot` of a real host: what programs handed to the file system is on the disk.
        with suppress(LabError):
            run(name, "sync", folder=lab, timeout_s=20)
        before.process.end(grace_s=10)
        say(f"{name}: switched off")
        ensure_switch(lab)
        machine = _prepared(lab, parse_host(before.shape), ensure_kernel(lab), before.memory_mib, say)
        started: list[RecordedProcess] = []
        try:
            record = _started_as_before(lab, machine, before, started)
            write_inventory(lab)
            _wait_until_ready(lab, machine, record, began, say)
        except BaseException:
            for process in started:
                process.end(grace_s=1)
            raise
        return _running(lab, name).as_host(lab, name)


def shell_command(name: str, command: Sequence[str] = (), *, folder: LabFolder | None = None) -> list[str]:
    """The `ssh` command line that runs `command` (words) as root on a host, or a root shell without one."""
    lab = folder or default_folder()
    record = _running(lab, name)
    if command:
        return _ssh(lab, record, [shlex.join(["sudo", "-n", "--", *command])])
    line = _ssh(lab, record, ["sudo", "-n", "-i"])
    return [line[0], "-t", *line[1:]]


def run(
    name: str, shell_text: str, *, folder: LabFolder | None = None, timeout_s: float = 60, root: bool = True
) -> tuple[int, str, str]:
    """Run a shell text in a host as root (or as the login user): exit code, stdout, stderr.

    Raises LabError when the host is not up or the text does not end within timeout_s.
    """
    lab = folder or default_folder()
    return _run(lab, _running(lab, name), name, shell_text, timeout_s=timeout_s, root=root)


def console_log(name: str, *, folder: LabFolder | None = None) -> Path:
    """The file with everything the host's kernel and start-up wrote to its console. Raises LabError without one."""
    lab = folder or default_folder()
    path = lab.host(name) / "console.log"
    if not path.is_file():
        raise _unknown(lab, name)
    return path


def _is_up(lab: LabFolder, shape: HostShape, say: Say) -> bool:
    record = read_record(lab, shape.name)
    if record is None or not record.process.is_running():
        return False
    if record.shape != shape.text:
        raise LabError(
            f"{shape.name} is up with other cards: {record.shape}",
            hint=f"`vgpuctl lab down {shape.name}` first, or choose another name",
        )
    if record.seconds is None:
        # An earlier `lab up` was killed while it waited; nobody knows what became of the start.
        record.process.end(grace_s=2)
        return False
    say(f"{shape.name}: already up, port {record.port}")
    return True


def _prepared(lab: LabFolder, shape: HostShape, kernel: Kernel, memory_mib: int, say: Say) -> Machine:
    """Build what is missing and write the host's files."""
    say(f"{shape.name}: kernel {kernel.release}, module, disk")
    module, shim, empty = ensure_module(lab, kernel), ensure_shim(lab), ensure_empty_disk(lab)
    nvml, guest = ensure_nvml(lab), ensure_guest(lab)
    accelerator = probed_accelerator(lab, kernel)
    home = lab.host(shape.name)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    disk = home / "disk.qcow2"
    if not disk.exists():
        shutil.copy(empty, home / "disk.qcow2.new")
        (home / "disk.qcow2.new").rename(disk)
    number = number_for(lab, shape.name)
    files = host_files(lab, shape, module, shim, nvml, guest, _libvirt_cache(lab, kernel.release))
    files["network-address"] = (address_with_prefix(number).encode(), 0o644)
    write_private(home / "initramfs", initramfs(kernel, files))
    return Machine(home, shape, kernel, memory_mib, accelerator, str(host_uuid(lab, shape.name)), number)


def _started_as_before(
    lab: LabFolder, machine: Machine, before: HostRecord | None, started: list[RecordedProcess]
) -> HostRecord:
    """Start a host with the port it had, where nobody took it in between."""
    if before is not None and before.port:
        with suppress(LabError):
            return _started(lab, replace(machine, port=before.port), started)
    return _started(lab, machine, started)


def _started(lab: LabFolder, machine: Machine, started: list[RecordedProcess]) -> HostRecord:
    record: HostRecord | None = None

    def on_started(process: RecordedProcess) -> None:
        nonlocal record
        started.append(process)
        record = HostRecord(
            process, 0, machine.shape.text, machine.memory_mib, machine.accelerator, machine.number, None
        )
        write_record(lab, machine.shape.name, record)

    machine.start(on_started)
    assert record is not None
    record = replace(record, port=machine.forwarded_port())
    write_record(lab, machine.shape.name, record)
    return record


def _wait_until_ready(lab: LabFolder, machine: Machine, record: HostRecord, began: float, say: Say) -> None:
    """Wait for the start-up's last word on the console, then ask SSH and libvirt themselves."""
    name = machine.shape.name
    limit_s = _READY_LIMIT_S[record.accelerator]
    shown: set[str] = set()
    while True:
        text = _console_text(machine)
        for line in text.splitlines():
            if line.startswith("vgpulab: ") and line not in shown:
                shown.add(line)
                say(f"{name}: {line.removeprefix('vgpulab: ')}")
        if _says(text, _READY):
            break
        failure = next((sign for sign in _SIGNS_OF_DEATH if sign in text), None)
        if not record.process.is_running():
            failure = "its QEMU ended"
        if failure or time.monotonic() - began > limit_s:
            said = (machine.folder / "qemu.log").read_text(errors="replace").splitlines()[-5:]
            raise LabError(
                f"{name} did not come up: {failure or f'not ready after {limit_s:.0f} s'}",
                context=[*text.splitlines()[-15:], *said],
                hint=f"the whole console is in {machine.console_log}",
            )
        time.sleep(0.1)
    code, _out, err = _run(lab, record, name, "virsh -q -c qemu:///system uri", timeout_s=60, root=False)
    if code != 0:
        raise LabError(f"{name} is up, but its libvirt does not answer", context=err.splitlines()[-5:])
    write_record(lab, name, replace(record, seconds=round(time.monotonic() - began, 1)))
    _keep_libvirt_cache(lab, record, name, say)


def _says(text: str, word: str) -> bool:
    return any(
        line.startswith("vgpulab: ") and line.endswith(word.removeprefix("vgpulab:")) for line in text.splitlines()
    )


def _console_text(machine: Machine) -> str:
    return machine.console_log.read_text(errors="replace").replace("\r", "")


def _libvirt_cache(lab: LabFolder, release: str) -> Path:
    return lab.cache / "libvirt" / release


def _keep_libvirt_cache(lab: LabFolder, record: HostRecord, name: str, say: Say) -> None:
    """Keep what libvirt finds out about QEMU, half a minute under TCG: later hosts start with it. libvirt checks it."""
    code, release, _err = _run(lab, record, name, "uname -r", timeout_s=30, root=False)
    target = _libvirt_cache(lab, release.strip())
    if code != 0 or not release.strip() or target.exists():
        return
    say(f"{name}: letting libvirt look at QEMU, once")
    with built(target) as building:
        if building:
            _run(lab, record, name, "virsh -q -c qemu:///system domcapabilities", timeout_s=180, root=False)
            command = _ssh(lab, record, ["sudo", "tar", "-C", "/var/cache/libvirt", "-cf", "-", "qemu/capabilities"])
            archive = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
            if archive.returncode == 0:
                subprocess.run(["tar", "-C", str(building), "-xf", "-"], input=archive.stdout, timeout=60, check=False)


def _running(lab: LabFolder, name: str) -> HostRecord:
    record = read_record(lab, name)
    if record is None:
        raise _unknown(lab, name)
    if not record.process.is_running():
        raise LabError(
            f"{name} is not running", hint=f"`vgpuctl lab up --host {record.shape}` starts it again from its disk"
        )
    return record


def _unknown(lab: LabFolder, name: str) -> LabError:
    there = ", ".join(lab.host_names()) or "none"
    return LabError(f"there is no emulated host {name!r} in {lab.path}", hint=f"hosts there: {there}; see `lab status`")


def _ssh(lab: LabFolder, record: HostRecord, command: Sequence[str]) -> list[str]:
    return [
        needed_program("ssh", package="openssh-client"),
        *("-F", "none", "-i", str(lab.private_key), "-p", str(record.port)),
        *("-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"),
        *("-o", f'UserKnownHostsFile="{lab.known_hosts}"', "-o", "StrictHostKeyChecking=yes"),
        *("-o", "GlobalKnownHostsFile=none", "-o", "ConnectTimeout=20", f"{LOGIN_USER}@127.0.0.1"),
        *command,
    ]


def _run(
    lab: LabFolder, record: HostRecord, name: str, shell_text: str, *, timeout_s: float, root: bool
) -> tuple[int, str, str]:
    words = ["sudo", "-n", "sh", "-c", shell_text] if root else ["sh", "-c", shell_text]
    try:
        ended = subprocess.run(
            _ssh(lab, record, [shlex.join(words)]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env={key: value for key, value in os.environ.items() if not key.startswith("LC_")},
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{name}: a command did not end within {timeout_s:.0f} s: {shell_text[:200]}") from error
    return ended.returncode, ended.stdout, ended.stderr
