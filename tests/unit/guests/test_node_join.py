# SPDX-License-Identifier: Apache-2.0
"""The script that lets a guest join its cluster, run with programs that note their calls, below a folder."""

import email
import os
import stat
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.unit.guests.cases import REQUEST, vm
from tests.unit.node_config.pools import MUNGE_KEY, TOKEN, VM_UUID, pool_of
from vgpuctl.guests.seed.image import node_script, seed_files
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.licence import Edition
from vgpuctl.model.node_pool import NodePool, NodeRole
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit
from vgpuctl.node_config.join.files import Joining
from vgpuctl.node_config.join.setup import NodeSetup, node_setup, write_for_guest
from vgpuctl.node_config.labels import template_labels

READY = '{"failures": []}'
LICENSED = "echo '    License Status                    : Licensed (Expiry: 2026-12-1 0:0:0 GMT)'"


def setup_of(pool: NodePool) -> NodeSetup:
    return node_setup(Joining(pool, "gpu-001", VM_UUID, template_labels(pool)), write_for_guest)


def with_driver(pool: NodePool, *, licence: Edition | None = None) -> NodePool:
    driver = GuestDriver(DriverSource.IMAGE)
    return replace(pool, request=replace(pool.request, guest_driver=driver, licence=licence))


@dataclass
class Guest:
    """A guest's files below a folder, and its programs, which note their calls."""

    root: Path

    def program(self, name: str, body: str = "") -> None:
        path = self.root / "bin" / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.root}/calls\n{body}\n')
        path.chmod(0o755)

    def run(self, setup: NodeSetup) -> subprocess.CompletedProcess[str]:
        script = node_script(setup)
        for folder in ("/etc/", "/var/", "/dev/console"):
            script = script.replace(folder, f"{self.root}{folder}")
        environment = {**os.environ, "PATH": f"{self.root}/bin:/usr/bin:/bin"}
        return subprocess.run(
            ["sh", "-c", script], capture_output=True, text=True, check=False, timeout=60, env=environment
        )

    @property
    def calls(self) -> list[str]:
        return [] if not (self.root / "calls").exists() else (self.root / "calls").read_text().splitlines()

    def mode(self, path: str) -> int:
        return stat.S_IMODE((self.root / path).stat().st_mode)


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    for folder in ("bin", "etc/udev/rules.d", "var/log", "var/lib/vgpuctl", "dev"):
        (tmp_path / folder).mkdir(parents=True)
    made = Guest(tmp_path)
    for name in ("systemctl", "udevadm", "chown"):
        made.program(name)
    made.program("sleep")
    return made


@pytest.mark.parametrize("role", list(NodeRole))
def test_it_is_a_script_of_a_posix_shell(role: NodeRole) -> None:
    script = node_script(setup_of(with_driver(pool_of(role), licence=Edition.VWS)))
    assert script.startswith("#!/bin/sh\n"), "cloud-init goes by the first line"
    checked = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False, timeout=10)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(("role", "service"), [(NodeRole.K3S, "k3s-agent"), (NodeRole.RKE2, "rke2-agent")])
def test_an_agent_is_started_with_its_files(guest: Guest, role: NodeRole, service: str) -> None:
    ran = guest.run(setup_of(pool_of(role)))
    assert (ran.returncode, ran.stderr) == (0, "")
    token = f"etc/rancher/{role}/vgpuctl-token"
    assert (guest.root / token).read_text() == f"{TOKEN}\n"
    assert guest.mode(token) == guest.mode(f"etc/rancher/{role}/config.yaml.d/50-vgpuctl.yaml") == 0o600
    assert guest.mode(f"etc/rancher/{role}/config.yaml.d") == 0o755
    assert guest.calls[-2:] == [
        f"systemctl enable {service}.service",
        f"systemctl restart --no-block {service}.service",
    ]
    assert "node gpu-001 of acme/gpu" in (guest.root / "dev/console").read_text()
    assert TOKEN not in ran.stdout + (guest.root / "var/log/vgpuctl-join.log").read_text()


def test_only_root_reads_the_seed_that_holds_the_secrets(guest: Guest) -> None:
    guest.run(setup_of(pool_of()))
    rule = (guest.root / "etc/udev/rules.d/72-vgpuctl-seed.rules").read_text()
    assert 'ENV{ID_FS_LABEL}=="cidata", GROUP="root", MODE="0600"' in rule


def test_kubeadm_joins_after_the_runtime_is_set_up_and_its_token_is_deleted(guest: Guest) -> None:
    guest.program("nvidia-ctk")
    guest.program("containerd")
    guest.program("kubeadm", f"cat {guest.root}/etc/vgpuctl/kubeadm-join.yaml >{guest.root}/joined")
    ran = guest.run(setup_of(pool_of(NodeRole.KUBEADM)))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert TOKEN in (guest.root / "joined").read_text()
    assert not (guest.root / "etc/vgpuctl/kubeadm-join.yaml").exists()
    calls = [one.replace(str(guest.root), "") for one in guest.calls if not one.startswith(("udevadm", "chown"))]
    assert calls == [
        "nvidia-ctk runtime configure --runtime=containerd --set-as-default --cdi.enabled",
        "systemctl restart containerd.service",
        "systemctl restart nvidia-cdi-refresh.service",
        "systemctl enable kubelet.service",
        "kubeadm join --config /etc/vgpuctl/kubeadm-join.yaml",
    ]


def test_kubeadm_that_fails_is_tried_three_times(guest: Guest) -> None:
    guest.program("kubeadm", '[ "$1" = reset ]')
    ran = guest.run(setup_of(pool_of(NodeRole.KUBEADM)))
    assert ran.returncode == 1
    assert "node not joined: kubeadm join ended with an error" in ran.stdout
    assert [one.split()[1] for one in guest.calls if one.startswith("kubeadm")] == ["join", "reset"] * 2 + ["join"]


def test_slurm_gets_its_key_before_munge_and_slurmd_start(guest: Guest) -> None:
    ran = guest.run(setup_of(pool_of(NodeRole.SLURM)))
    assert (ran.returncode, ran.stderr) == (0, "")
    key = guest.root / "etc/munge/munge.key"
    assert key.read_bytes() == bytes(range(256)) * 4
    assert guest.mode("etc/munge/munge.key") == 0o400
    assert f"chown munge:munge {key}.vgpuctl" in guest.calls
    assert guest.calls[-3:] == [
        "systemctl restart munge.service",
        "systemctl enable slurmd.service",
        "systemctl restart --no-block slurmd.service",
    ]
    assert MUNGE_KEY not in ran.stdout


def test_a_guest_whose_gpu_is_not_ready_does_not_join(guest: Guest) -> None:
    setup = setup_of(with_driver(pool_of()))
    assert "its GPU was not set up" in guest.run(setup).stdout
    ready = guest.root / "var/lib/vgpuctl/guest-ready"
    ready.write_text('{"failures": ["driver: no"]}')
    ran = guest.run(setup)
    assert (ran.returncode, "its GPU is not ready" in ran.stdout) == (1, True)
    assert not (guest.root / "etc/rancher").exists(), "no secret is written"
    ready.write_text(READY)
    assert guest.run(setup).returncode == 0


def test_a_guest_without_its_licence_does_not_join(guest: Guest) -> None:
    setup = setup_of(with_driver(pool_of(), licence=Edition.VWS))
    (guest.root / "var/lib/vgpuctl/guest-ready").write_text(READY)
    guest.program("nvidia-smi", "echo '    License Status                    : Unlicensed (Restricted)'")
    ran = guest.run(setup)
    assert (ran.returncode, "got no licence" in ran.stdout) == (1, True)
    assert guest.calls.count("nvidia-smi -q") == 60
    guest.program("nvidia-smi", LICENSED)
    assert guest.run(setup).returncode == 0


def test_an_image_without_the_service_says_so(guest: Guest) -> None:
    guest.program("systemctl", '[ "$1" != cat ]')
    ran = guest.run(setup_of(pool_of()))
    assert (ran.returncode, "the image has no k3s-agent.service" in ran.stdout) == (1, True)


def test_a_seed_has_the_script_beside_the_users_own_document() -> None:
    own = CloudInit(user_data=SecretText.of("#cloud-config\nwrite_files: []\nruncmd: [[touch, /x]]\n"))
    files = seed_files(own, vm(), join=setup_of(pool_of()))
    assert own.user_data is not None
    assert files["user-data"] == own.user_data.reveal(), "the user's lists stay as they are"
    assert files["vendor-data"] == node_script(setup_of(pool_of()))
    assert "vendor-data" not in seed_files(own, vm())


def test_a_seed_with_a_driver_has_both_scripts_in_the_order_of_their_names() -> None:
    request = replace(REQUEST, guest_driver=GuestDriver(DriverSource.IMAGE))
    setup = setup_of(with_driver(pool_of()))
    text = seed_files(CloudInit(), vm(request), join=setup)["vendor-data"]
    assert text == seed_files(CloudInit(), vm(request), join=setup)["vendor-data"], "equal bytes for equal input"
    document = email.message_from_string(text)
    parts = list(document.walk())[1:]
    assert [(one.get_content_type(), one.get_filename()) for one in parts] == [
        ("text/x-shellscript", "10-vgpuctl-guest-setup.sh"),
        ("text/x-shellscript", "20-vgpuctl-node-join.sh"),
    ]
    contents = [one.get_payload(decode=True) for one in parts]
    assert contents[1] == node_script(setup).encode()
    assert contents[0] == seed_files(CloudInit(), vm(request))["vendor-data"].encode()
