# SPDX-License-Identifier: Apache-2.0
"""Every reader of text from outside, with texts to begin from. A reader refuses by an error that it declares."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.host_targets import host_target
from tests.unit.guests.cases import facts
from vgpuctl.agent.wire.decode import WireError
from vgpuctl.agent.wire.envelope import Reply, reply_from_json, reply_to_json
from vgpuctl.agent.wire.strict_json import JsonRefused, read_strict_json
from vgpuctl.errors import VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState, domain_fact, guest_pci_devices
from vgpuctl.guests.facts.domain_shape import domain_shape
from vgpuctl.guests.libvirtd.networks import read_bridge, read_entries
from vgpuctl.guests.libvirtd.port_filter import read_networks
from vgpuctl.guests.seed.image import seed_files
from vgpuctl.hosts.facts_check import check_facts
from vgpuctl.hosts.preparation_probe import read_preparation
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.hosts.ssh_config import resolve
from vgpuctl.hosts.ssh_program import Answer, SshProgram, read_answer
from vgpuctl.inventory import load_inventory
from vgpuctl.inventory.exchange import Left, import_mdevctl, import_mig_parted, import_vgpu_device_manager
from vgpuctl.inventory.owners_file import read_owners
from vgpuctl.model.constraints import read_constraints
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.guest_memory import parse_page_size
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.network import Backend, parse_address, parse_cidr, parse_cidr6, parse_reachable, parse_resolver
from vgpuctl.model.policy import parse_policy
from vgpuctl.model.priority import parse_priority
from vgpuctl.model.rule_text import parse_rule, parse_source
from vgpuctl.model.security_decisions import parse_traffic
from vgpuctl.model.times import parse_duration, parse_time
from vgpuctl.model.units import parse_mib
from vgpuctl.model.vm import CloudInit, check_name
from vgpuctl.model.vpc_text import parse_forwarded, parse_ports
from vgpuctl.ovn.security import SecurityAcl
from vgpuctl.ovn.tracing import read_trace
from vgpuctl.quota.resources import parse_assignment
from vgpuctl.specs.configuration import parse_configuration
from vgpuctl.specs.document import read_document
from vgpuctl.specs.ssh_keys import parse_ssh_key
from vgpuctl.specs.tenant import read_tenant_files
from vgpuctl.specs.user_data import check_user_data, check_windows_user_data
from vgpuctl.specs.vm import read_vm_file
from vgpuctl.store.address import parse_url
from vgpuctl.trusted_files import NAMED
from vgpuctl.usecases.layout.rollout import batches, parse_serial
from vgpuctl_lab.cards import parse_host
from vgpuctl_lab.lab_file import read_lab_file
from vgpuctl_lab.simulated.mix import parse_mix

DATA = Path(__file__).parents[1] / "data"
INVENTORIES = Path(__file__).parents[2] / "inventory"
LISTS = (read_entries, read_bridge, domain_shape)


@dataclass(frozen=True)
class Reader:
    """read: takes the content and a folder of its own, returns what the user would see. refusals: what it may raise."""

    read: Callable[[bytes, Path], Any]
    seeds: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = (VgpuctlError,)


def _inventory(content: bytes, folder: Path, *, name: str) -> Any:
    path = folder / name
    path.write_bytes(content)
    return _listed(path)


def _listed(*sources: Path | str) -> Any:
    inventory = load_inventory(list(sources))
    for host in inventory.hosts()[:20]:
        for ask in (inventory.target, inventory.layout, inventory.constraints):
            try:
                ask(host)
            except VgpuctlError:
                continue
    return inventory.as_ansible_list()


def _variables(content: bytes, folder: Path) -> Any:
    (folder / "hosts.ini").write_text("[g]\ngpu1\n")
    (folder / "host_vars").mkdir(exist_ok=True)
    (folder / "host_vars" / "gpu1.yml").write_bytes(content)
    return _listed(folder / "hosts.ini")


def _file(content: bytes, folder: Path, *, read: Callable[[Path], Any]) -> Any:
    path = folder / "file.yml"
    path.write_bytes(content)
    return read(path)


def _mdevctl(content: bytes, folder: Path) -> Any:
    path = folder / "c2177883-f1bb-47f0-914d-32a22e3a8804"
    path.write_bytes(content)
    return import_mdevctl(path, facts(), Left(partial=True))


def _reply(content: bytes, _folder: Path) -> Any:
    reply = reply_from_json(read_strict_json(content.decode()))
    if reply.facts is not None:
        check_facts(reply.facts)
    return reply


def _domain(content: bytes, _folder: Path) -> Any:
    text = content.decode("utf-8", "surrogateescape")
    fact = domain_fact(text, DomainState.RUNNING)
    for read in LISTS:
        try:
            read(text)
        except VgpuctlError:
            continue
    return fact, fact.metadata.request_fields() if fact.metadata is not None else None, read_networks([text])


class _NoSsh(SshProgram):
    """Answers as the text says, whatever it is asked: the program itself reads ssh_config."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._answer = read_answer(text)

    def ask(
        self, arguments: Sequence[str], address: str, *, name: str, user: str | None = None, port: int | None = None
    ) -> Answer:
        assert all("\0" not in word and "\n" not in word for word in arguments), "ssh takes one line"
        return self._answer


def _ssh_answer(text: str) -> Any:
    return resolve(HostTarget("gpu1", "gpu1.example"), SshSettings(ssh=_NoSsh(text)))


def _common_args(text: str) -> Any:
    return resolve(host_target("gpu1", "gpu1.example", common_args=text), SshSettings(ssh=_NoSsh("user root\n"))).host


def _target(text: str) -> Any:
    ssh = _NoSsh(f"user {text}\nhostname {text}\nproxycommand nc %h %p %r %n\n")
    return resolve(HostTarget(text, text, user=text), SshSettings(ssh=ssh)).proxy_command


def _limit(text: str, folder: Path) -> Any:
    path = folder / "hosts.ini"
    path.write_text("[rack1]\ngpu[01:05]\n[rack2]\ngpu[06:09]\n")
    return load_inventory([path]).select(text)


def _seed(text: str, _folder: Path) -> Any:
    key = parse_ssh_key(text)
    files = seed_files(CloudInit(ssh_authorized_keys=(key,)), _VM)
    assert yaml.safe_load(files["meta-data"])["public-keys"] == [key], "the key reached the guest otherwise"
    return key


def _value(content: bytes, folder: Path, *, read: Callable[..., Any], with_folder: bool = False) -> Any:
    text = content.decode("utf-8", "surrogateescape")
    return read(text, folder) if with_folder else read(text)


def values(read: Callable[..., Any], *seeds: str, with_folder: bool = False) -> Reader:
    """A reader of one value's text."""
    return Reader(partial(_value, read=read, with_folder=with_folder), tuple(seed.encode() for seed in seeds))


def _files(read: Callable[[Path], Any], *seeds: str) -> Reader:
    return Reader(partial(_file, read=read), tuple(seed.encode() for seed in seeds))


def read_all(*paths: Path) -> tuple[bytes, ...]:
    """The contents of files, by path."""
    return tuple(path.read_bytes() for path in sorted(paths))


def _vm() -> Any:
    from tests.unit.guests.cases import vm

    return vm()


_VM = _vm()
_FACTS = replace(facts(), gpus=())
_REPLY = json.dumps(reply_to_json(Reply("1", 0, facts=_FACTS))).encode()
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGDQW0C9oeNpkDFrkDHTtAnbGUFhmBTvA2ZwOlYkVqMv me@hére 🖥"
_ACLS = (SecurityAcl("out", "from-lport", 1001, "allow-related", "inport == @vgp_4c && ip4"),)
_TRACE = """ingress(dp="vgs_e5", inport="22c9a0")
---
 8. ls_in_acl (northd.c:6445): reg0[7] == 1 && (inport == @vgp_4c && ip4), priority 2001, uuid b45e14b9
    output;
    /* output to "22c9a0", type "" */

tcp_reset
---
    outport <-> inport;
"""
_VM_FILE = """name: web-1
tenant: acme
gpus: [A40-8Q, "2*L40S-48Q", "memory>=16GiB,series=Q"]
vcpus: 4
memory: 8GiB
hugepages: 2MiB
disk: {size: 20GiB, base_image: debian-12, pool: default}
network: front
os: win11
firmware: uefi
secure_boot: on
tpm: on
data_disks: [{name: data, size: 64MiB, bus: scsi, cache: none, iops: 100, keep: true}, "more,size=1GiB"]
nics: [{network: back, model: e1000e, bandwidth_mbps: 100}]
install: {iso: win11-iso, drivers: virtio-win}
display: {kind: spice, vgpu: on}
vgpu_params: [frame_rate_limiter=0]
guest_driver: {source: image, version: "17.5"}
licence: vws
licence_pool: desktops
spare_ports: 2
cloud_init: {ssh_authorized_keys: [KEY], hostname: web, user_data: "#cloud-config\\nhostname: a\\n"}
priority: high
preemptible: stop
require_labels: [rack=r1]
group: web:apart
duration: 1d12h
---
vms:
- &a {name: a, tenant: acme}
- <<: *a
  name: b
""".replace("[KEY]", f"[{_KEY}]")
_TENANT_FILE = """version: 1
tenant: acme
contact: ops@example.com
quotas: {vms: 4, memory: 96GiB}
host_pools: [fast]
networks: {front: {cidr: 10.0.0.0/24, cidr6: 'fd00:1::/64', backend: ovn, dns: [192.0.2.53], isolated: true}}
address_groups: {mail: [192.0.2.25]}
egress_policy: deny
security_groups:
  web:
  - {protocol: tcp, ports: 80-443, from: 0.0.0.0/0}
  - {}
  - {action: deny, type: echo-request, protocol: icmp, to: "group:web", log: true, priority: 9}
load_balancers: {lb: {network: front, port: 80, vms: [web-1], vm_port: 8080}}
routes: {10.66.0.0/16: [web-1, 10.0.1.9], 'fd00:66::/48': [discard]}
port_forwards: [{port: 22, vm: web-1, vm_port: 22}]
vms: [{name: web-1, gpus: [A40-8Q], priority: 500}]
"""
_LAYOUT = """ansible_host: 10.0.0.4
ansible_port: 22
ansible_user: root
vgpu:
  version: 1
  hugepages: {1GiB: 4}
  uplinks: {a: ens1}
  network: {southbound: "ssl:192.0.2.1:6642", tunnels: 10.0.0.0/24}
  gpus:
  - {match: {board: A40}, kind: vgpu, scheduler: {policy: equal-share, time_slice_ms: 2}, shares: {A40-8Q: 6}}
  - {match: {address: "0000:41:00.0"}, kind: mig, geometry: {1g.10gb: 2}, placements: {1g.10gb: [0, 1]}}
vgpu_placing: {labels: {a: b}, maintenance: true, policy: spread, cpus: {pinned: 1}, gpus: [{match: all, speed: 1}]}
"""
_PROJECT_FILE = """inventory: [hosts.yml, "more,"]
inventory_reader: ansible
database: postgresql://u@h/db
forks: 8
context: lab
contexts:
  lab: {database: "sqlite:///lab.db", command_timeout: 30}
  prod: {inventory: prod.yml, known_hosts: ~/known}
"""
_SSH_ANSWER = """user root
hostname gpu1.example
port 2222
identityfile ~/.ssh/%r_%h
identityfile ${HOME}/key
certificatefile ~root/%u-cert.pub
identityagent $SSH_AGENT
userknownhostsfile /a b/known_hosts /dev/null
knownhostscommand /bin/keys "%H" %I %%
connecttimeout 60
proxycommand nc %h %p
"""
_MDEVCTL = json.dumps(
    [{"0000:41:00.4": [{"c2177883-f1bb-47f0-914d-32a22e3a8804": {"mdev_type": "nvidia-558", "start": "auto"}}]}]
).encode()
_FUNCTION = {"bus": 0, "slot": 1, "function": 0, "id": {"vendor": 4318, "device": 1}, "class_info": {"class": 768}}
_QUERY_PCI = json.dumps({"return": [{"devices": [_FUNCTION | {"qdev_id": "ua-gpu0", "regions": [{"size": 4096}]}]}]})
READERS: dict[str, Reader] = {
    "YAML inventory": Reader(
        partial(_inventory, name="hosts.yml"),
        read_all(INVENTORIES / "hosts.yml", *(DATA / "inventory").glob("*/*.yml")),
    ),
    "INI inventory": Reader(
        partial(_inventory, name="hosts.ini"),
        (b"[rack1]\ngpu[01:03] ansible_host=10.0.0.4 n=8080 l=\"['a', 1]\"\n[all:vars]\nx='y'\n[a:children]\nrack1\n",),
    ),
    "an inventory of any kind": Reader(
        partial(_inventory, name="hosts"), (b"gpu1\n", b'{"all": {"hosts": {"h": {}}}}')
    ),
    "variable file": Reader(_variables, (_LAYOUT.encode(), json.dumps(yaml.safe_load(_LAYOUT)).encode())),
    "VM file": _files(lambda path: read_vm_file(path, tenant="acme"), _VM_FILE),
    "tenant file": _files(lambda path: read_tenant_files(path, default_backend=Backend.LIBVIRT), _TENANT_FILE),
    "lab file": _files(
        read_lab_file, "hosts: {gpu1: [a40, l40s@1]}\nmemory: 4GiB\nsimulated: {count: 3, latency_ms: 2}\n"
    ),
    "what plain sh prints of a host": values(
        read_preparation,
        'user_id=0\nos_release=ID="rocky"\nmount=x /p hugetlbfs rw,pagesize=2M 0 0\npages=2048kB 7\ndefault_page=2048\n'
        "python=/usr/bin/python3 3.6\ncard=0000:41:00.0 0x10de 0x2235 10de:145a nvidia 32 1\n"
        "bar=0000:41:00.0 0x0 0x1 0x200\n",
    ),
    "project file": Reader(
        lambda content, folder: parse_configuration(folder / "vgpuctl.yaml", content), (_PROJECT_FILE.encode(),)
    ),
    "owners file": _files(lambda path: read_owners(str(path)), "web-1: acme\ndb: acme/db-1\n"),
    "mig-parted": _files(
        lambda path: import_mig_parted(read_document(str(path), NAMED), "all", None),
        "version: v1\nmig-configs:\n  all:\n  - {devices: all, device-filter: ['0x20B010DE'], mig-enabled: true, "
        "mig-devices: {1g.5gb: 7}}\n",
    ),
    "vgpu-device-manager": _files(
        lambda path: import_vgpu_device_manager(read_document(str(path), NAMED), None, None),
        "version: v1\nvgpu-configs:\n  all:\n  - {devices: all, vgpu-devices: {A40-8Q: 6}}\n",
    ),
    "mdevctl": Reader(_mdevctl, (_MDEVCTL,)),
    "agent's reply": Reader(_reply, (_REPLY,), (WireError, JsonRefused, UnicodeDecodeError)),
    "domain XML": Reader(_domain, read_all(*(DATA / "domains").glob("*.xml"))),
    "QEMU's answer": values(guest_pci_devices, _QUERY_PCI),
    "an answer of ssh -G": values(
        _ssh_answer, _SSH_ANSWER, _SSH_ANSWER.replace("proxycommand nc %h %p", "proxyjump a@b:22,c")
    ),
    "ansible_ssh_common_args": values(_common_args, "-o Port=22 -J me@a:22,b -i ~/k"),
    "a host's name": values(_target, "gpu1.example.com", "fe80::1%eth0", "user"),
    "-i": values(_listed, "gpu1,gpu2:22,"),
    "--limit": values(_limit, "rack1:!gpu03", "gpu*:&rack2", "~gpu0[12]", "rack1[0:2]", with_folder=True),
    "--gpu": values(parse_gpu_request, "A40-8Q", "2*L40S-48Q", "passthrough:H100*4", "memory>=16GiB,series=Q", "vf:x"),
    "a size": values(partial(parse_mib, what="--memory"), "2GiB", "1.5G", "512M", "64 MiB"),
    "a page size": values(partial(parse_page_size, what="--hugepages"), "2MiB", "64KiB", "1GiB"),
    "a duration": values(partial(parse_duration, what="--for"), "1d12h", "90m", "1.5w"),
    "a time": values(partial(parse_time, what="--since"), "2026-11-01T14:00+01:00", "2026-11", "2026-11-01"),
    "a priority": values(partial(parse_priority, what="--priority"), "high", "500"),
    "a policy": values(parse_policy, "spread", "least-utilised@80", "spread:0.3+binpack:0.7"),
    "labels": values(lambda text: read_constraints(required=[text]), "rack=r1"),
    "a group": values(lambda text: read_constraints(group=text), "web:apart"),
    "a network": values(parse_cidr, "10.0.0.0/24"),
    "an IPv6 network": values(parse_cidr6, "fd00:1::/64", "2001:db8::/64"),
    "a resolver": values(partial(parse_resolver, what="--dns"), "192.0.2.53", "fd00::53"),
    "an open network": values(parse_reachable, "10.0.0.0/8"),
    "an address": values(partial(parse_address, what="--dns"), "192.0.2.53"),
    "ports": values(parse_ports, "80-443", "22"),
    "a source": values(parse_source, "0.0.0.0/0", "fd00::/8", "group:web", "any"),
    "a rule": values(
        parse_rule, "tcp:80-443@10.0.0.0/8", "icmp", "egress:deny:icmp:type-8@addresses:a,priority=9,log=5"
    ),
    "traffic": values(parse_traffic, "tcp/443", "icmp/echo-request"),
    "a trace of OVN": values(lambda text: read_trace(text, _ACLS), _TRACE),
    "a forwarded port": values(parse_forwarded, "tcp/80", "53"),
    "a quota": values(partial(parse_assignment, what="--quota"), "vms=4", "framebuffer=96GiB", "shares:A40-8Q=2"),
    "a name": values(partial(check_name, what="VM name"), "web-1"),
    "--serial": values(lambda text: batches(["a", "b", "c"], parse_serial(text)), "1,50%,100%", "3"),
    "--database": values(parse_url, "sqlite:////tmp/x.db", "postgresql://u:p@h:5432/db?sslmode=require"),
    "an emulated host": values(parse_host, "gpu1=a40,l40s@1"),
    "a mix of hosts": values(parse_mix, "a40*2+t4:10,l40s:1"),
    "an SSH key": values(_seed, _KEY, with_folder=True),
    "user-data for Windows": values(check_windows_user_data, "#cloud-config\nusers: []\n", "#ps1\nls\n", "rem cmd\n"),
    "user-data": values(check_user_data, "#cloud-config\na: 1\n", "#!/bin/sh\n"),
}
