# SPDX-License-Identifier: Apache-2.0
"""libvirt's daemons on monolithic and modular hosts, and labels of pools under SELinux."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import emulated_a40, host_facts
from vgpuctl.agent.wire.diagnostics import LIBVIRT_DAEMONS, MODULAR_DAEMONS, HostDiagnostics, PoolLabel, UnitDiagnostics
from vgpuctl.planner.doctor import DomainDiagnostics, Examined, Severity, examine
from vgpuctl.planner.doctor.libvirt_checks import daemon_of

MODULAR = {**dict.fromkeys((f"{name}.socket" for name in MODULAR_DAEMONS), True), "virtlogd.socket": True}
MONOLITHIC = {"libvirtd.service": True, "libvirtd.socket": True, "virtlogd.socket": True}


def host(units: dict[str, bool], distribution: tuple[str, ...] = ("rhel",)) -> Examined:
    """A host with these units loaded; the value says whether they are active."""
    names = [f"{daemon}.{kind}" for daemon in LIBVIRT_DAEMONS for kind in ("service", "socket")]
    shown = [
        UnitDiagnostics(
            name, "loaded" if name in units else "not-found", "active" if units.get(name) else "inactive", ""
        )
        for name in names
    ]
    facts = replace(host_facts([emulated_a40().facts()]), distribution=distribution)
    return Examined(facts, HostDiagnostics((), units=tuple(shown)))


def said(seen: Examined) -> list[tuple[str, str, str]]:
    return [(one.severity, one.read, one.fix) for one in examine(seen) if one.check == "libvirt-daemons"]


@pytest.mark.parametrize(
    ("units", "unit"),
    [
        (MONOLITHIC, "libvirtd.socket"),
        ({"libvirtd.service": True, "virtlogd.service": True}, "libvirtd.socket"),
        (MODULAR, "virtqemud.socket"),
        # A modular host that has the old daemon installed too, and the other way round.
        ({**MODULAR, "libvirtd.service": False, "libvirtd.socket": False}, "virtqemud.socket"),
        ({**MONOLITHIC, **dict.fromkeys((f"{name}.socket" for name in MODULAR_DAEMONS), False)}, "libvirtd.socket"),
    ],
    ids=["monolithic", "without sockets", "modular", "modular beside libvirtd", "libvirtd beside modular"],
)
def test_a_host_whose_daemons_listen_has_no_finding(units: dict[str, bool], unit: str) -> None:
    assert said(host(units)) == []
    assert daemon_of(host(units)) == unit


@pytest.mark.parametrize("daemon", [*MODULAR_DAEMONS[1:], "virtlogd"])
def test_a_daemon_of_a_modular_host_that_does_not_listen_is_named(daemon: str) -> None:
    ((severity, read, fix),) = said(host({**MODULAR, f"{daemon}.socket": False}))
    assert severity == (Severity.NOTE if daemon == "virtnodedevd" else Severity.ERROR)
    assert read.startswith(f"{daemon} does not listen")
    assert fix == f"`systemctl enable --now {daemon}.socket`"


def test_a_daemon_that_is_not_installed_is_named_with_its_package() -> None:
    ((_, _, fix),) = said(host({name: True for name in MODULAR if name != "virtstoraged.socket"}))
    assert fix.startswith("dnf install -y libvirt, then `systemctl enable --now virtstoraged.")


def test_a_stopped_libvirtd_is_named_by_the_hosts_own_unit() -> None:
    ((_, read, fix),) = said(host({**MONOLITHIC, "libvirtd.service": False, "libvirtd.socket": False}, ("debian",)))
    assert (read.split()[0], fix) == ("libvirtd", "`systemctl enable --now libvirtd.socket`")


def test_a_host_without_libvirt_is_told_its_package() -> None:
    ((_, read, fix),) = said(host({}, ("sles",)))
    assert read == "no daemon of libvirt is installed"
    assert fix.startswith("zypper ") and "libvirt-daemon-qemu" in fix


def test_both_kinds_at_once_are_named() -> None:
    found = said(host({**MONOLITHIC, **MODULAR}))
    assert [severity for severity, _, _ in found] == [Severity.WARNING]


def test_a_host_without_systemd_is_not_judged() -> None:
    facts = host_facts([emulated_a40().facts()])
    assert said(Examined(facts, HostDiagnostics(()))) == []


@pytest.mark.parametrize(
    ("mode", "label", "is_named"),
    [
        ("enforcing", "default_t", True),
        ("enforcing", None, True),
        ("enforcing", "virt_image_t", False),
        ("enforcing", "nfs_t", False),
        ("permissive", "default_t", False),
    ],
)
def test_a_pool_with_another_label_is_named_where_selinux_enforces(
    mode: str, label: str | None, is_named: bool
) -> None:
    facts = replace(host_facts([emulated_a40().facts()]), selinux=mode)
    seen = Examined(facts, HostDiagnostics((), pool_labels=(PoolLabel("vms", "/srv/vms", label),)))
    found = [one for one in examine(seen) if one.check == "selinux-pool"]
    assert bool(found) is is_named
    if found:
        assert found[0].fix.startswith("`semanage fcontext -a -t virt_image_t '/srv/vms(/.*)?'` and `restorecon -R")


@pytest.mark.parametrize(("is_flagged", "is_known", "count"), [(True, True, 1), (True, False, 0), (False, True, 0)])
def test_a_vm_of_the_store_that_libvirt_itself_starts_is_named(is_flagged: bool, is_known: bool, count: int) -> None:
    uuid = "00000000-0000-4000-8000-000000000001"
    domain = DomainDiagnostics("acme.web", uuid, True, (), is_flagged)
    seen = replace(host(MONOLITHIC), domains=(domain,), vms=(uuid,) if is_known else ())
    found = [one for one in examine(seen) if one.check == "libvirt-autostart"]
    assert len(found) == count
    assert all("virsh autostart --disable acme.web" in one.fix for one in found)


@pytest.mark.parametrize(
    ("is_active", "is_made", "is_here", "place", "severity"),
    [
        (True, True, False, "gpu2", "error"),
        (True, False, False, "gpu2", "error"),
        (False, True, False, "gpu2", "note"),
        (False, True, False, None, "note"),
        (True, True, False, None, "note"),
        (True, True, True, None, None),
        (True, False, False, None, None),
    ],
)
def test_a_vm_that_runs_here_and_is_elsewhere_in_the_store_is_an_error_and_other_leftovers_are_named(
    is_active: bool, is_made: bool, is_here: bool, place: str | None, severity: str | None
) -> None:
    uuid = "00000000-0000-4000-8000-000000000001"
    domain = DomainDiagnostics("acme.web", uuid, is_active, (), is_made=is_made)
    there = {} if place is None else {uuid: place}
    seen = replace(host(MONOLITHIC), domains=(domain,), vms=(uuid,) if is_here else (), elsewhere=there)
    found = [one for one in examine(seen) if one.check == "stray-vm"]
    assert [str(one.severity) for one in found] == ([] if severity is None else [severity])
    assert all("acme.web" in one.read for one in found)
