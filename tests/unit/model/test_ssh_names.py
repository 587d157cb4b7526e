# SPDX-License-Identifier: Apache-2.0
"""Names that a shell would act on are refused as OpenSSH refuses them, wherever they are written."""

import shlex
from pathlib import Path

import pytest

from tests.host_targets import host_target
from vgpuctl.errors import InventoryError
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.hosts.ssh_config import resolve
from vgpuctl.inventory import load_inventory
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.ssh_names import host_name_fault, user_name_fault

BAD_HOSTS = [*(f"a{one}b" for one in "'`\"$\\;&<>|(){}, \n\t\x00\x7f\x9b"), "-oProxyCommand=id", "", "$(id)", "a\ud800"]
BAD_USERS = [*("a" + one for one in "'`\";&<>|(){}\n\x00\x1b"), "-l", "a -o", "a\\", ""]
GOOD_HOSTS = ["gpu1", "gpu1.example.com", "10.0.0.1", "fe80::1%eth0", "::1", "gpu_1", "Zürich", "a=b", "[::1]"]
GOOD_USERS = ["root", "DOMAIN\\user", "user@realm", "first last", "host$", "jörg"]
PROXY = "-o ProxyCommand='nc -X connect %h %p %n %r'"


def _settings(folder: Path, config: str = "") -> SshSettings:
    path = folder / "ssh_config"
    path.write_text(config)
    return SshSettings(ssh_config_file=path)


@pytest.mark.parametrize("name", GOOD_HOSTS)
def test_usual_host_names_are_taken(name: str, tmp_path: Path) -> None:
    assert host_name_fault(name) is None
    assert resolve(host_target("gpu1", name, common_args=PROXY), _settings(tmp_path)).host == name.lower()


@pytest.mark.parametrize("name", GOOD_USERS)
def test_usual_user_names_are_taken(name: str) -> None:
    assert user_name_fault(name) is None


@pytest.mark.parametrize("name", BAD_HOSTS)
def test_a_host_name_for_the_shell_is_refused_at_every_entry(name: str, tmp_path: Path) -> None:
    assert host_name_fault(name)
    with pytest.raises(InventoryError):
        resolve(host_target(name, name, common_args=PROXY), _settings(tmp_path))
    with pytest.raises(InventoryError):
        resolve(host_target("gpu1", "gpu1", common_args=f"-o {shlex.quote(f'HostName={name}')}"), _settings(tmp_path))
    for option in ("-J", "-o"):
        value = f"ProxyJump={name}" if option == "-o" else name
        if name != "a,b":  # two hops
            with pytest.raises(InventoryError):
                resolve(host_target("gpu1", "gpu1", common_args=f"{option} {shlex.quote(value)}"), _settings(tmp_path))


@pytest.mark.parametrize("name", BAD_USERS[:-1])
def test_a_user_name_for_the_shell_is_refused_at_every_entry(name: str, tmp_path: Path) -> None:
    with pytest.raises(InventoryError):
        resolve(host_target("gpu1", "gpu1", user=name, common_args=PROXY), _settings(tmp_path))
    with pytest.raises(InventoryError):
        resolve(host_target("gpu1", "gpu1", common_args=f"-J {shlex.quote(f'{name}@hop')}"), _settings(tmp_path))


def test_names_of_ssh_config_are_checked_too(tmp_path: Path) -> None:
    for line in ("HostName $(id)", "User `id`", "ProxyJump -oProxyCommand=id", "Port 99999", "Port 1e3"):
        with pytest.raises(InventoryError):
            resolve(HostTarget("gpu1", "gpu1"), _settings(tmp_path, f"Host *\n  {line}\n"))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ("ansible_host: 'a;id'", "ansible_host of host 'gpu1' is 'a;id'"),
        ("ansible_user: 'r$(id)'", "ansible_user of host 'gpu1' is"),
        ("ansible_port: '" + "9" * 5000 + "'", "not a port"),
    ],
)
def test_the_inventory_names_variable_and_line(variables: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(f"all:\n  hosts:\n    gpu1:\n      {variables}\n")
    with pytest.raises(InventoryError) as refused:
        load_inventory([path]).target("gpu1")
    assert refused.value.message.startswith(f"{path}:4: ")
    assert said in refused.value.message
