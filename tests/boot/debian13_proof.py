# SPDX-License-Identifier: Apache-2.0
"""The reboot contract where systemd is process 1: Debian 13, its units, its reboot; emulated GPUs, OVN, NetworkManager.

`make test-boot` runs it; it takes minutes under TCG, so it is not among the tests of every change. The tests build on
one another, in their order.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.boot.debian13 import NAME, STAND_INS, Debian13, ensure_root
from tests.e2e.operator import Operator

pytestmark = pytest.mark.timeout(1800)
CARD = "0000:01:00.0"
UNIT = "vgpuctl-restore.service"
LAYOUT = {
    "version": 1,
    "gpus": [{"match": {"address": CARD}, "kind": "vgpu", "shares": {"A40-4Q": 1}}],
    # Two that the unit would wait for, which made a cycle of the boot.
    "stop_services": [STAND_INS[1], STAND_INS[3]],
    "uplinks": {"provider": "eth1"},
    "network": {"southbound": "tcp:127.0.0.1:6642", "tunnels": "10.0.2.0/24"},
}
# A guest that libvirt starts at boot, and what the host was like right before its start.
DOMAIN = """<domain type="qemu"><name>early</name><memory unit="MiB">32</memory><vcpu>1</vcpu>
<os><type arch="x86_64" machine="q35">hvm</type></os><on_crash>preserve</on_crash></domain>"""
HOOK = f"""#!/bin/sh
[ "$2" = prepare ] || exit 0
vfs=$(cat /sys/bus/pci/devices/{CARD}/sriov_numvfs)
vgpus=$(grep -lv '^0' /sys/bus/pci/devices/*/nvidia/current_vgpu_type | wc -l)
logger -t early "starts with $vfs VFs and $vgpus vGPUs"
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Debian13]:
    """The host, up; its files go with it, what was built stays."""
    folder = Path(__file__).parents[2] / "build" / "boot-lab"
    host = Debian13(folder, ensure_root())
    try:
        host.start()
        yield host
    finally:
        host.end()


@pytest.fixture(scope="module")
def operator(host: Debian13) -> Iterator[Operator]:
    """An operator of the host with its layout."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "inventory"
        (folder / "host_vars").mkdir(parents=True)
        (Path(home) / "known_hosts").write_text(host.known_host)
        ways = f"-o UserKnownHostsFile={home}/known_hosts"
        variables = {
            "ansible_host": "127.0.0.1",
            "ansible_port": host.port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(host.private_key),
            "ansible_ssh_common_args": ways,
        }
        (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {NAME: variables}}}))
        (folder / "host_vars" / f"{NAME}.yml").write_text(yaml.safe_dump({"vgpu": LAYOUT}))
        yield Operator(Path(home), folder, f"sqlite:///{home}/store.db")


def test_apply_hosts_installs_a_unit_that_systemd_takes(host: Debian13, operator: Operator) -> None:
    host.does("ovn-sbctl set-connection ptcp:6642:127.0.0.1")
    host.does(f"mkdir -p /etc/libvirt/hooks; cat >/etc/libvirt/hooks/qemu <<'END'\n{HOOK}\nEND")
    host.does(
        f"chmod +x /etc/libvirt/hooks/qemu; systemctl restart libvirtd; cat >/tmp/early.xml <<'END'\n{DOMAIN}\nEND"
    )
    host.does("virsh define /tmp/early.xml; virsh autostart early")
    (first,) = operator.json("apply-hosts")["hosts"]
    assert first["error"] is None, first
    installed = [line for line in first["lines"] if UNIT in line["text"]]
    assert [line["after"] for line in installed] == ["installed"], "systemd verified it"
    (second,) = operator.json("apply-hosts")["hosts"]
    assert (second["changed"], second["writes"]) == (0, 0)
    operator.run("check-hosts", "--snapshot")


def test_a_cycle_on_the_host_is_refused_in_systemd_s_words(host: Debian13, operator: Operator) -> None:
    folder = f"/etc/systemd/system/{STAND_INS[0]}.d"
    host.does(f"mkdir -p {folder}; printf '[Unit]\\nAfter={STAND_INS[3]}\\n' >{folder}/order.conf")
    refused = operator.run("apply-hosts")
    assert refused.code != 0 and "ordering cycle" in refused.out + refused.err, refused
    host.does(f"rm -r {folder}; systemctl daemon-reload")


def test_after_a_reboot_the_layout_is_back_before_libvirt_starts_its_guests(host: Debian13) -> None:
    host.reboot()
    journal = host.does(f"journalctl -b --no-pager -u {UNIT}")
    assert "the layout is restored" in journal
    assert host.does(f"systemctl show --property=Result --value {UNIT}").strip() == "success"
    dropped = host.run("journalctl -b --no-pager | grep -e 'ordering cycle' -e 'deleted to break'")[1]
    assert dropped == ""
    times = host.does(
        f"systemctl show --property=ExecMainExitTimestampMonotonic --value {UNIT};"
        "systemctl show --property=ExecMainStartTimestampMonotonic --value libvirtd.service"
    ).split()
    assert 0 < int(times[0]) < int(times[1]), times
    assert host.does(f"cat /sys/bus/pci/devices/{CARD}/sriov_numvfs").strip() == "32"
    # libvirt asks QEMU for its abilities before it starts anything, which takes a minute here.
    host.wait_for(lambda: "starts with" in host.does("journalctl -b --no-pager -t early"), "libvirt starts its guest")
    assert "starts with 32 VFs and 1 vGPUs" in host.does("journalctl -b --no-pager -t early")
    assert host.does("virsh list --name").split() == ["early"]


def test_ovn_runs_by_its_own_services_and_the_uplink_is_the_bridge_s_alone(host: Debian13) -> None:
    units = "openvswitch-switch.service ovn-host.service"
    assert host.does(f"systemctl is-enabled {units}").split() == ["enabled", "enabled"]
    assert host.does(f"systemctl is-active {units} ovn-controller.service").split() == ["active"] * 3
    assert host.does("ovs-vsctl port-to-br eth1").strip() == "br-provider"
    assert "unmanaged" in host.does("nmcli -g GENERAL.STATE device show eth1")
    assert host.does("ip -4 -brief address show dev eth1").split()[2:] == []


def test_check_hosts_finds_the_host_as_it_was(operator: Operator) -> None:
    (found,) = json.loads(operator.run("check-hosts", "--after-reboot", "--json").out)
    assert found["error"] is None, found
    errors = [one for one in found["findings"] if one["severity"] == "error"]
    assert [one for one in errors if one["check"] in ("boot-contract", "ovn", "tunnel-down")] == []
    (again,) = operator.json("apply-hosts")["hosts"]
    assert (again["error"], again["changed"], again["writes"]) == (None, 0, 0)


FAR_END = """set -e
ip netns add far
ip link add near0 type veth peer name far0 netns far
ip address add 10.99.0.1/24 dev near0
ip link set near0 up
ip -n far address add 10.99.0.2/24 dev far0
ip -n far link set far0 up
tunnel="type=geneve options:remote_ip=10.99.0.2 options:key=flow"
ovs-vsctl add-port br-int probe0 -- set Interface probe0 $tunnel
"""
SEND = "from vgpuctl.agent.tunnel_probe import send; print(send(['10.99.0.1'], 'geneve', 6081))"
FIREWALL = "iptables {0} INPUT -p udp --dport 6081 -j {1}"


def test_open_vswitch_counts_a_tunnel_s_packets_and_a_firewall_is_seen(host: Debian13) -> None:
    host.does(FAR_END)

    def received() -> int:
        host.does("sleep 2")
        number = host.does("ovs-vsctl get Interface probe0 ofport").strip()
        return int(host.does(f"ovs-ofctl dump-ports br-int {number} | sed -n 's/.*rx pkts=\\([0-9]*\\).*/\\1/p'"))

    def sent() -> str:
        return host.does(f'PYTHONPATH=/etc/vgpuctl/agent.pyz ip netns exec far python3 -S -c "{SEND}"').strip()

    before = received()
    assert (sent(), received()) == ("{}", before + 3)
    host.does(FIREWALL.format("-A", "DROP"))
    assert (sent(), received()) == ("{}", before + 3), "only the counters tell"
    reject = "REJECT --reject-with icmp-host-prohibited"
    host.does(f"{FIREWALL.format('-D', 'DROP')}; {FIREWALL.format('-A', reject)}")
    assert sent() == "{'10.99.0.1': 'No route to host'}", "as firewalld refuses"
    host.does(FIREWALL.format("-D", reject))
    host.does("ovs-vsctl del-port br-int probe0; ip netns delete far")
