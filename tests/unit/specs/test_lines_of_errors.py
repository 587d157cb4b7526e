# SPDX-License-Identifier: Apache-2.0
"""Every reader of a user's file says FILE:LINE for a wrong key, a wrong type and a wrong value."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vgpuctl
from vgpuctl.errors import VgpuctlError
from vgpuctl.inventory import load_inventory
from vgpuctl.inventory.exchange import import_mig_parted, import_vgpu_device_manager
from vgpuctl.inventory.exchange.kubernetes import read_tool_file
from vgpuctl.inventory.owners_file import read_owners
from vgpuctl.model.network import Backend
from vgpuctl.specs.configuration import read_configuration
from vgpuctl.specs.job_times_table import read_job_times_table
from vgpuctl.specs.performance_table import read_performance_table
from vgpuctl.specs.tenant import read_tenant_files
from vgpuctl.specs.vm import read_vm_file
from vgpuctl.specs.web_config import read_web_config
from vgpuctl.trusted_files import NAMED
from vgpuctl_lab.lab_file import read_lab_file

PACKAGE = Path(vgpuctl.__file__).parent
Read = Callable[[Path], object]
HEAD = "version: 1\ntenant: acme\n"
LAYOUT = "vgpu:\n  version: 1\n  gpus:\n  - match: all\n    kind: vgpu\n"
JSON_LAYOUT = '{\n\t"vgpu": {\n\t\t"version": 1,\n\t\t"gpus": [{"match": "all", "kind": "vgpu"}],\n\t\t%s\n\t}\n}\n'
MIG = "version: v1\nmig-configs:\n  one:\n  - devices: all\n"
VGPU = "version: v1\nvgpu-configs:\n  one:\n  - devices: all\n"
TABLE = "workload,profile,throughput\n"

READING = (
    "specs/vm.py",
    "specs/tenant.py",
    "specs/job_times_table.py",
    "specs/performance_table.py",
    "specs/configuration.py",
    "specs/web_config.py",
    "inventory/ansible_source.py",
    "inventory/sources.py",
    "inventory/ini_source.py",
    "inventory/variable_files.py",
    "inventory/owners_file.py",
    "inventory/exchange/kubernetes.py",
    "inventory/exchange/mdevctl.py",
    "clusters/kubernetes/gpu_api.py",
    "clusters/kubernetes/kubeconfig.py",
)
"""Modules that read files of users. ansible_source reads the output of a program. mdevctl's needs a host; its tests are
in test_exchange.py. A tenant's kubeconfig is a secret by then, without a file, and gpu_api hands its own to a library,
whose words tests/e2e/kubernetes/test_serve_extender.py reads."""


def test_every_module_that_reads_a_file_is_known() -> None:
    """A new reader gets a row in CASES."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(
            r"from vgpuctl\.specs\.document import .*\b(read_document|read_documents|parse_document|decode)\b",
            path.read_text(encoding="utf-8"),
        )
    }
    assert found == set(READING)


def _variables(folder: str, name: str) -> Read:
    def read(path: Path) -> object:
        (path.parent / "hosts.ini").write_text("[g]\ngpu1\n")
        target = path.parent / folder / name
        target.parent.mkdir()
        path.rename(target)
        inventory = load_inventory([path.parent / "hosts.ini"])
        inventory.verify("gpu1")
        return inventory.target("gpu1")

    return read


def _inventory(path: Path) -> object:
    inventory = load_inventory([path])
    for host in inventory.hosts():
        inventory.verify(host)
        inventory.target(host)
    return inventory


def _mig(path: Path) -> object:
    return import_mig_parted(read_tool_file(path), None, None)


def _vgpu(path: Path) -> object:
    return import_vgpu_device_manager(read_tool_file(path), None, None)


def _tenant(path: Path) -> object:
    return read_tenant_files(path, default_backend=Backend.OVN)


def _vms(path: Path) -> object:
    return read_vm_file(path, tenant="acme")


GROUP, HOST = _variables("group_vars", "g.yml"), _variables("host_vars", "gpu1.json")
# Reader, the file's name, and texts with the line that is wrong: a key, a type, a value.
CASES: list[tuple[str, Read, str, list[tuple[str, int]]]] = [
    (
        "VM file",
        _vms,
        "vms.yml",
        [
            ("name: a\n---\nname: b\ncpus: 2\n", 4),
            ("vms:\n- name: a\n  memory: [1]\n", 3),
            ("name: a\ndisk:\n  size: 1GiB\n  bus: ide\n", 4),
        ],
    ),
    (
        "VM file in JSON",
        _vms,
        "vms.json",
        [
            ('{\n\t"name": "a",\n\t"cpus": 2\n}\n', 3),
            ('{\n "name": "a",\n "disk":\n  {"size": "1GiB",\n   "base_image": 7}\n}\n', 5),
            ('{"vms": [\n {"name": "a",\n  "memory": "much"}]}\n', 3),
        ],
    ),
    (
        "tenant's file",
        _tenant,
        "acme.yml",
        [
            (f"{HEAD}quota: {{gpus: 1}}\n", 3),
            (f"{HEAD}vms: web-1\n", 3),
            (f"{HEAD}---\nversion: 1\ntenant: b\npriority: urgent\n", 6),
        ],
    ),
    (
        "objects of a tenant's file",
        _tenant,
        "acme.yml",
        [
            (f"{HEAD}networks:\n  front:\n    cidr: 10.0.0.0/24\n    dnss: []\n", 6),
            (f"{HEAD}security_groups:\n  web:\n    - any\n    - {{protocol: tcp, ports: [80]}}\n", 6),
            (f"{HEAD}load_balancers:\n  shop: {{network: front, vms: [a],\n    port: 70000}}\n", 5),
        ],
    ),
    (
        "lists of a tenant's file",
        _tenant,
        "acme.yml",
        [
            (f"{HEAD}port_forwards:\n- {{port: 22, vm: a}}\n- protocol: tcp\n  ports: 22\n", 6),
            (f"{HEAD}floating_ips:\n- web-1\n- 7\n", 5),
            (f"{HEAD}quotas:\n  vms: 2\n  vcpus: some\n", 5),
        ],
    ),
    (
        "node pools of a tenant's file",
        _tenant,
        "acme.yml",
        [
            (f"{HEAD}node_pools:\n- name: p\n  role: k3s\n  max: 2\n  join_token: x\n", 7),
            (f"{HEAD}node_pools:\n- name: p\n  role: k3s\n  max: two\n", 6),
            (f"{HEAD}node_pools:\n- name: p\n  role: k3s\n  max: 2\n  vm:\n    memory: huge\n", 8),
        ],
    ),
    (
        "secrets of a tenant's file",
        _tenant,
        "acme.yml",
        [
            (f"{HEAD}secrets:\n  token: {{file: x}}\n", 4),
            (f"{HEAD}secrets:\n  licence_token: x\n", 4),
            (f"{HEAD}secrets:\n  licence_token:\n    file: nowhere.tok\n", 5),
        ],
    ),
    (
        "YAML inventory",
        _inventory,
        "hosts.yml",
        [
            ("all:\n  hosts:\n    gpu1:\n      vgpu: {version: 1,\n        gpu: []}\n", 5),
            ("all:\n  hosts:\n    gpu1:\n      ansible_host: 7\n", 4),
            ("all:\n  hosts:\n    gpu1:\n  vars:\n    ansible_port: 99999\n", 5),
        ],
    ),
    (
        "INI inventory",
        _inventory,
        "hosts.ini",
        [
            ("[g]\ngpu1 vgpu=\"{'version': 1, 'gpu': []}\"\n", 2),
            ("[g]\ngpu1\n[g:vars]\nansible_host=7\n", 4),
            ("[g]\ngpu1 ansible_become=perhaps\n", 2),
        ],
    ),
    (
        "layout in group_vars",
        GROUP,
        "g.yml",
        [
            (f"{LAYOUT}    size-modes: mixed-size\n", 6),
            (f"{LAYOUT}    types: A40-8Q\n", 6),
            (f"{LAYOUT}  hugepages:\n    3MiB: 4\n", 7),
        ],
    ),
    (
        "layout in host_vars as JSON",
        HOST,
        "gpu1.json",
        [
            (JSON_LAYOUT % '"uplink": {}', 5),
            (JSON_LAYOUT % '"stop_services": "gdm"', 5),
            (JSON_LAYOUT % '"telemetry": {"textfile": "here"}', 5),
        ],
    ),
    (
        "placing, health and fencing",
        GROUP,
        "g.yml",
        [
            ("a: 1\nvgpu_placing:\n  gpus:\n  - match: all\n    speeds: 1\n", 5),
            ("vgpu_fencing:\n  command: 7\n", 2),
            ("vgpu_health:\n  drain: sometimes\n", 2),
        ],
    ),
    (
        "performance table as CSV",
        read_performance_table,
        "t.csv",
        [
            ("# mine\nworkload,profile,througput\n", 2),
            (f"{TABLE}training,A40-8Q\n", 2),
            (f"{TABLE}training,A40-8Q,1\ntraining,A40-8Q,fast\n", 3),
        ],
    ),
    (
        "performance table as YAML",
        read_performance_table,
        "t.yml",
        [
            ("- workload: a\n  profile: A40-8Q\n  throughput: 1\n  speed: 2\n", 4),
            ("- workload: a\n  profile: A40-8Q\n  throughput: 1\n- 7\n", 4),
            ("- workload: a\n  profile: A40-8Q\n  throughput: 99\n", 3),
        ],
    ),
    (
        "table of job times",
        read_job_times_table,
        "t.csv",
        [
            ("# mine\nsize,A41\n", 2),
            ("size,A40\n1024\n", 2),
            ("size,A40\n1024,1\n\n2048,nan\n", 4),
        ],
    ),
    (
        "web configuration",
        read_web_config,
        "web.yml",
        [
            ("tls_server_config:\n  cert_file: a\n  key_file: b\n  cert: c\n", 4),
            ("tls_server_config:\n  cert_file: 7\n  key_file: b\n", 2),
            ("basic_auth_users:\n  alice: secret\n", 2),
        ],
    ),
    (
        "configuration file",
        lambda path: read_configuration(path, NAMED),
        "config.yaml",
        [
            ("forks: 3\ntennant: acme\n", 2),
            ("contexts:\n  prod:\n    forks: many\n", 3),
            ("contexts:\n  prod:\n    output: loud\n", 3),
        ],
    ),
    (
        "owners",
        lambda path: read_owners(str(path)),
        "owners.yml",
        [("web-1: acme\n7: acme\n", 2), ("web-1: [acme]\n", 1), ("web-1: acme\nweb-2: ''\n", 2)],
    ),
    (
        "mig-parted",
        _mig,
        "mig.yml",
        [
            (f"{MIG}    mig-enable: true\n", 5),
            (f"{MIG}    mig-enabled: maybe\n", 5),
            (f"{MIG}    mig-enabled: true\n    mig-devices:\n      1g.5gb: -1\n", 7),
        ],
    ),
    (
        "vGPU device manager",
        _vgpu,
        "vgpu.yml",
        [
            (f"{VGPU}    vgpus: 1\n", 5),
            (f"{VGPU}    vgpu-devices: A40-8Q\n", 5),
            (f"{VGPU}    vgpu-devices:\n      A40-8Q: -1\n", 6),
        ],
    ),
    (
        "lab file",
        read_lab_file,
        "lab.yml",
        [
            ("hosts: {gpu1: [a40]}\nmemmory: 4GiB\n", 2),
            ("hosts:\n  gpu1: [a40]\n  gpu2: [7]\n", 3),
            ("hosts:\n  gpu1: [a40]\n  gpu2: [b52]\n", 3),
        ],
    ),
]


@pytest.mark.parametrize(
    ("read", "name", "text", "line"),
    [
        pytest.param(read, name, text, line, id=f"{subject}: {what}")
        for subject, read, name, texts in CASES
        for what, (text, line) in zip(("key", "type", "value"), texts, strict=True)
    ],
)
def test_every_reader_names_file_and_line(read: Read, name: str, text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(VgpuctlError) as refused:
        read(path)
    error: Any = refused.value
    assert f"{name}:{line}: " in error.message, f"{error.message} | {error.hint}"
