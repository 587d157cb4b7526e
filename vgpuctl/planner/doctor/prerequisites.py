# SPDX-License-Identifier: Apache-2.0
"""Prerequisites of a host, read by plain sh before the agent can run there, for `check-hosts --prepare`.

A check with an id of table.py finds the same problem; if the agent runs, the agent's finding is used.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.model.distribution import Family, Package, family_of, install
from vgpuctl.model.host_target import AUTO_PYTHON
from vgpuctl.model.layout import HostLayout
from vgpuctl.model.preparation import PYTHON_FLOOR, Preparation
from vgpuctl.planner.doctor.finding import Finding, Severity

HOST = "host"
SUPPORTED_MACHINE = "x86_64"


@dataclass(frozen=True)
class FailedAttempt:
    """Failure of an attempt: the error's message and its hint."""

    message: str
    hint: str = ""


@dataclass(frozen=True)
class Newcomer:
    """One host before its first use. interpreter, user, becomes: as the inventory has them.

    sudo: the refusal when a command was tried as root; None if it worked or was not tried. agent: why the agent did
    not start. lacks_python: the reason was the interpreter. networks: libvirt's, by name, with whether each is active;
    None where libvirt was not asked.
    """

    there: Preparation
    layout: HostLayout | None = None
    interpreter: str = "/usr/bin/python3"
    user: str = ""
    becomes: bool = False
    sudo: FailedAttempt | None = None
    agent: FailedAttempt | None = None
    lacks_python: bool = False
    networks: dict[str, bool] | None = None

    @property
    def family(self) -> Family:
        """The family whose package names and tools the host has."""
        return family_of(self.there.distribution)


@dataclass(frozen=True)
class Prerequisite:
    """One thing that a host must have. id: stable, as a check's. worst: of its findings."""

    id: CheckId
    find: Callable[[Newcomer], Iterator[Finding]]
    worst: Severity = Severity.ERROR


def machine(host: Newcomer) -> Iterator[Finding]:
    """The processor is not x86-64."""
    if host.there.machine != SUPPORTED_MACHINE:
        read = f"the machine is {host.there.machine or 'unknown'}; guests are defined for {SUPPORTED_MACHINE}"
        yield Finding(CheckId.MACHINE, Severity.ERROR, HOST, read, f"use a host with {SUPPORTED_MACHINE}")


def distribution(host: Newcomer) -> Iterator[Finding]:
    """The distribution is of no known family, so its package names are not known."""
    if host.family is Family.UNKNOWN:
        read = f"{host.there.operating_system} is of no known family (Debian, RHEL, SUSE)"
        yield Finding(CheckId.DISTRIBUTION, Severity.NOTE, HOST, read, "the fixes below have the names of each family")


def sudo(host: Newcomer) -> Iterator[Finding]:
    """The login cannot become root."""
    if not host.there.needs_become:
        return
    if not host.becomes:
        read = f"{_login(host)} is not root, and the inventory does not say ansible_become"
        fix = "set `ansible_become: true` in the inventory, or log in as root with `ansible_user: root`"
        yield Finding(CheckId.SUDO, Severity.ERROR, HOST, read, fix)
    elif "sudo" not in host.there.programs:
        fix = "as root: " + install([Package.SUDO], host.family)
        yield Finding(CheckId.SUDO, Severity.ERROR, HOST, "sudo is not installed", fix)
    elif host.sudo is not None:
        fix = host.sudo.hint or "give the user a rule in /etc/sudoers.d"
        if host.user:
            rule = f"echo '{host.user} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/vgpuctl"
            fix = f"{fix}; as root, for example: {rule}"
        yield Finding(CheckId.SUDO, Severity.ERROR, HOST, host.sudo.message, fix)


def python(host: Newcomer) -> Iterator[Finding]:
    """There is no Python that the agent runs on."""
    if not host.lacks_python or host.agent is None:
        return
    floor = ".".join(map(str, PYTHON_FLOOR))
    fit = max((one for one in host.there.pythons if one.is_new_enough), key=lambda one: one.version, default=None)
    if fit is not None:
        fix = f"set `ansible_python_interpreter: {fit.path}` in the inventory"
        yield Finding(CheckId.PYTHON, Severity.ERROR, HOST, host.agent.message, fix)
        return
    there = ", ".join(f"{one.path} {'.'.join(map(str, one.version))}" for one in host.there.pythons) or "none"
    command = install([Package.PYTHON], host.family)
    read = f"no Python {floor} or newer; there is {there}"
    is_found = host.family is Family.DEBIAN or host.interpreter == AUTO_PYTHON
    fix = command if is_found else f"{command}, and name it in `ansible_python_interpreter`"
    yield Finding(CheckId.PYTHON, Severity.ERROR, HOST, read, fix, _runnable(command, host))


def agent(host: Newcomer) -> Iterator[Finding]:
    """The agent does not start, for a reason other than Python."""
    if host.agent is not None and not host.lacks_python and host.sudo is None:
        fix = host.agent.hint or "see what the host's shell prints at a login without terminal"
        yield Finding(CheckId.AGENT, Severity.ERROR, HOST, host.agent.message, fix)


def proxmox(host: Newcomer) -> Iterator[Finding]:
    """Proxmox VE runs its VMs without libvirt."""
    if host.there.is_proxmox:
        read = "this is a host of Proxmox VE, on which vgpuctl was not tried"
        yield Finding(CheckId.PROXMOX, Severity.WARNING, HOST, read, "use a separate host for vgpuctl")


def installing(package: Package, host: Newcomer, check: CheckId, read: str) -> Finding:
    """The finding of a missing package, with the command that installs it."""
    command = install([package], host.family, host.there.release)
    return Finding(check, Severity.ERROR, HOST, read, command, _runnable(command, host))


def _runnable(command: str, host: Newcomer) -> str | None:
    """A command that names every family's form is a text, not a line for a shell."""
    return None if host.family is Family.UNKNOWN else command


def _login(host: Newcomer) -> str:
    return f"the login {host.user}" if host.user else "the login"
