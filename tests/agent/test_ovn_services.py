# SPDX-License-Identifier: Apache-2.0
"""OVN on hosts of other distributions: the services' names, the user that reads the key, what starts at boot."""

import os
from pathlib import Path

import pytest

from tests.agent.simulated import Machine
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.facts.ovn import read_diagnostics
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem, Reply, Request
from vgpuctl.agent.wire.ovn import FOLDER, KEY, CertificateFiles
from vgpuctl.agent.wire.steps import Chassis, SetOvnChassis, SetOvnDaemon, SetUplinkBridge, TakeOutUplink

START = (SetOvnDaemon("switch", True), SetOvnDaemon("controller", True))
FILES = CertificateFiles("certificate", "authority", "key")
CHASSIS = Chassis("gpu1", "ssl:192.0.2.1:6642", "geneve", "10.84.0.1", "", uses_tls=True)


@pytest.fixture
def rhel(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "gpu1", "t4@rhel")


@pytest.fixture
def debian(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "gpu2", "t4")


def certified(machine: Machine) -> Reply:
    return answer(machine.host, Request("certificate", certificate=FILES))


def test_services_are_started_by_the_host_s_own_names_and_start_at_boot_by_themselves(rhel: Machine) -> None:
    assert rhel.ovn().not_enabled == ("switch", "controller")
    for step in START:
        assert [rhel.done(step), rhel.done(step)] == [True, False]
    found = rhel.ovn()
    assert (found.switch_active, found.controller_active, found.not_enabled) == (True, True, ())
    rhel.files.reboot()
    found = rhel.ovn()
    assert (found.switch_active, found.controller_active) == (True, True)


def test_a_service_that_runs_and_does_not_start_at_boot_is_enabled(rhel: Machine) -> None:
    rhel.done(*START)
    with rhel.files.change() as state:
        state.enabled.clear()
    assert rhel.ovn().not_enabled == ("switch", "controller")
    (change,) = rhel.take(START[0]).changes
    assert (change.before, change.after) == ("active, not started at boot", "active")
    assert rhel.ovn().not_enabled == ("controller",)


def test_where_the_service_itself_cannot_be_enabled_the_one_that_starts_it_is(debian: Machine) -> None:
    assert debian.ovn().not_enabled == ()
    with debian.files.change() as state:
        state.enabled.remove("ovn-host.service")
    assert debian.ovn().not_enabled == ("controller",)
    debian.done(*START)
    assert debian.ovn().not_enabled == ()
    assert debian.files.state().enabled == ["openvswitch-switch.service", "ovn-host.service"]


def test_ovn_controller_can_read_the_key_whoever_it_runs_as(rhel: Machine) -> None:
    rhel.done(*START)
    assert certified(rhel).changes[0].before == "none"
    rhel.done(SetOvnChassis(CHASSIS))
    diagnostics = read_diagnostics(rhel.host)
    assert diagnostics is not None and diagnostics.connection == "connected"
    assert rhel.ovn().has_certificate and rhel.files.state().owners[KEY] == 985
    assert not certified(rhel).changes[0].changed
    with rhel.files.change() as state:
        state.owners.clear()
    diagnostics = read_diagnostics(rhel.host)
    assert diagnostics is not None and diagnostics.connection == "not connected"
    assert not rhel.ovn().has_certificate
    again = certified(rhel).changes[0]
    assert (again.before, again.changed) == ("not readable by ovn-controller", True)
    assert rhel.ovn().has_certificate


def test_root_s_key_stays_root_s_where_ovn_controller_is_root(debian: Machine) -> None:
    debian.done(*START)
    certified(debian)
    debian.done(SetOvnChassis(CHASSIS))
    diagnostics = read_diagnostics(debian.host)
    assert diagnostics is not None and diagnostics.connection == "connected"
    assert debian.ovn().has_certificate


def test_a_user_that_is_not_there_is_a_refusal(rhel: Machine) -> None:
    with pytest.raises(Problem, match="no user nobody-here"):
        rhel.host.user_id("nobody-here")
    with pytest.raises(Problem, match="no user nobody-here"):
        Host().user_id("nobody-here")


def test_network_manager_is_kept_from_an_uplink_as_long_as_it_is_in_the_bridge(rhel: Machine) -> None:
    rhel.done(*START)
    place = rhel.files.root / "etc/NetworkManager/conf.d/90-vgpuctl-eno2.conf"
    for inside, outside in (
        (SetUplinkBridge("br-provider", "eno2"), SetUplinkBridge("br-provider", None)),
        (SetUplinkBridge("br-provider", "eno2"), TakeOutUplink("br-provider", "eno2")),
    ):
        assert [rhel.done(inside), rhel.done(inside)] == [True, False]
        assert "interface-name:=eno2" in place.read_text() and rhel.ovn().managed == ()
        place.unlink()
        assert rhel.ovn().managed == ("eno2",)
        assert [rhel.done(inside), rhel.done(inside)] == [True, False]
        assert rhel.done(outside) and not place.exists()


def test_a_host_without_network_manager_gets_no_file_of_it(debian: Machine) -> None:
    debian.done(*START, SetUplinkBridge("br-provider", "eno2"))
    assert not (debian.files.root / "etc/NetworkManager").exists()


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_and_folders_have_their_modes_whatever_root_s_umask_is(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        Host(str(tmp_path)).put_file(f"{FOLDER}/certificate.pem", b"text", 0o644)
    finally:
        os.umask(before)
    place = tmp_path / FOLDER[1:]
    modes = [one.stat().st_mode & 0o777 for one in (place / "certificate.pem", place, place.parent)]
    assert modes == [0o644, 0o755, 0o755]
