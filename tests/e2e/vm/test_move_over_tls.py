# SPDX-License-Identifier: Apache-2.0
"""Moves over TLS: apply-hosts gives QEMU its certificates, and without them no VM moves live."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.small_vms import ACME, SEEDED
from vgpuctl.agent.wire.pki import FILES, KEYS, MARK

HOSTS = ("sim-001", "sim-002")
PKI = "etc/pki/qemu"
CHECK = ("move-vm", "web", *ACME, "--check")
YEARS_S = 3 * 365 * 86_400


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LayoutFleet]:
    """Two hosts in their layout, which declare TLS for moves, and a running VM on the first."""
    made = layout_fleet(tmp_path, len(HOSTS), "a40")
    try:
        vgpu = {"gpus": [{"match": "all", "kind": "vgpu"}]}
        made.declare(sim_001=vgpu, sim_002=vgpu)
        made.operator.does("apply-hosts", "--no-boot", "--reset")
        made.operator.does("create-tenant", "acme")
        made.operator.does("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
        folder = made.operator.inventory / "group_vars"
        folder.mkdir()
        (folder / "all.yml").write_text(yaml.safe_dump({"vgpu_moves": {"network": "tls"}}))
        yield made
    finally:
        lab.simulated.down(folder=made.folder)


def _limit(fleet: LayoutFleet, *, after_s: float = 0) -> tuple[list[str], str]:
    operator = fleet.operator.later(after_s) if after_s else fleet.operator
    (found,) = operator.json(*CHECK)["verdicts"]
    limits = found["verdict"]["limits"]
    return [one["code"] for one in limits], "".join(one["limit"] + one["remedy"] for one in limits)


def test_apply_hosts_gives_qemu_certificates_without_which_no_vm_moves_live(fleet: LayoutFleet) -> None:
    operator = fleet.operator
    codes, text = _limit(fleet)
    assert codes == ["move-certificates"]
    assert "sim-002: ca-cert.pem, server-cert.pem, client-cert.pem" in text
    assert "`vgpuctl apply-hosts --limit sim-001,sim-002`" in text
    assert operator.is_refused("move-vm", "web", *ACME, "--live-only")["exit_code"] == 6

    planned = operator.run("plan-hosts", "--no-boot", "--limit", "sim-001")
    assert "install: certificate of sim-001 for moves of VMs" in planned.out
    assert not (fleet.machine("sim-001").root / PKI).exists()
    operator.does("apply-hosts", "--no-boot")
    for host in HOSTS:
        machine = fleet.machine(host)
        folder = machine.root / PKI
        assert sorted(one.name for one in folder.iterdir()) == sorted(FILES)
        for name in KEYS:
            assert (folder / name).stat().st_mode & 0o777 == 0o600
            assert machine.state().owners[f"/{PKI}/{name}"] == 64055
        for purpose, certificate in (("sslserver", "server-cert.pem"), ("sslclient", "client-cert.pem")):
            words = ["-CAfile", str(folder / "ca-cert.pem"), "-purpose", purpose, "-verify_ip", "127.0.0.1"]
            subprocess.run(["openssl", "verify", *words, str(folder / certificate)], check=True)
        words = ["--verify", "--load-ca-certificate", str(folder / "ca-cert.pem"), "--verify-hostname", host]
        subprocess.run(["certtool", *words, "--infile", str(folder / "server-cert.pem")], check=True)
    assert "for moves" not in operator.run("plan-hosts", "--no-boot").out

    assert _limit(fleet) == ([], "")
    moves = operator.inventory / "host_vars" / "sim-002.yml"
    own = moves.read_text()
    moves.write_text(own + yaml.safe_dump({"vgpu_moves": {"network": "tls", "address": "10.9.9.9"}}))
    codes, text = _limit(fleet)
    assert codes == ["move-certificates"] and "sim-002: QEMU's certificate in /etc/pki/qemu is for sim-002, " in text
    assert "127.0.0.1, and not for 10.9.9.9" in text
    moves.write_text(own)
    codes, text = _limit(fleet, after_s=YEARS_S)
    assert codes == ["move-certificates"] and "QEMU's certificate in /etc/pki/qemu ended on" in text
    assert operator.json("move-vm", "web", *ACME, "--live-only")["to"] == "sim-002"


def test_an_operators_own_certificates_stay_as_they_are(fleet: LayoutFleet) -> None:
    operator = fleet.operator
    operator.does("apply-hosts", "--no-boot")
    folder = fleet.machine("sim-001").root / PKI
    for name in FILES:
        file = folder / name
        file.write_text(file.read_text().removeprefix(MARK))
    (folder / "client-key.pem").unlink()
    before = {one.name: one.read_bytes() for one in folder.iterdir()}
    operator.does("apply-hosts", "--no-boot")
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == before
    codes, text = _limit(fleet)
    assert codes == ["move-certificates"] and "sim-001: client-key.pem of QEMU are not in /etc/pki/qemu" in text
