# SPDX-License-Identifier: Apache-2.0
"""`ansible_*` connection variables become a target, or an error that names host, variable and place."""

from pathlib import Path

import pytest

from vgpuctl.errors import InventoryError
from vgpuctl.inventory import Inventory, load_inventory
from vgpuctl.model.host_target import AUTO_PYTHON, HostTarget
from vgpuctl.model.secret import ProgramLine, Secret


def _inventory(folder: Path, variables: str) -> Inventory:
    path = folder / "hosts.yml"
    path.write_text(f"g:\n  hosts:\n    h1: {{{variables}}}\n")
    return load_inventory([path])


def test_host_without_variables_is_reached_by_its_name(tmp_path: Path) -> None:
    assert _inventory(tmp_path, "").target("h1") == HostTarget("h1", "h1", groups=("g",))


def test_every_connection_variable_is_read(tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text(
        "[gpu]\nh1 ansible_host=192.0.2.1 ansible_port=2222 ansible_user=root ansible_become=yes\n"
        "[gpu:vars]\nansible_private_key_file=~/.ssh/gpu\nansible_password=one two\nansible_become_user=qemu\n"
        "ansible_become_password=secret\nansible_python_interpreter=/opt/python3\nansible_host_key_checking=False\n"
        "ansible_ssh_common_args=-o ProxyJump=jump\nansible_ssh_extra_args=-o Compression=yes\n"
        "[racks:children]\ngpu\n"
    )
    target = load_inventory([tmp_path / "hosts.ini"]).target("h1")
    assert target == HostTarget(
        name="h1",
        address="192.0.2.1",
        port=2222,
        user="root",
        private_key_file="~/.ssh/gpu",
        password=Secret("one two"),
        common_args=ProgramLine("-o ProxyJump=jump -o Compression=yes"),
        become=True,
        become_user="qemu",
        become_password=Secret("secret"),
        python_interpreter="/opt/python3",
        host_key_checking=False,
        groups=("gpu", "racks"),
    )
    assert "secret" not in repr(target)
    assert "one two" not in repr(target)


@pytest.mark.parametrize(
    ("variables", "field", "value"),
    [
        ("ansible_ssh_host: a", "address", "a"),
        ("ansible_host: a, ansible_ssh_host: b", "address", "b"),
        ("ansible_host: ''", "address", "h1"),
        ("ansible_host: 'fe80::1'", "address", "fe80::1"),
        ("ansible_ssh_port: '2200'", "port", 2200),
        ("ansible_port: ", "port", None),
        ("ansible_ssh_user: u", "user", "u"),
        ("ansible_ssh_private_key_file: k", "private_key_file", "k"),
        ("ansible_ssh_pass: p", "password", Secret("p")),
        ("ansible_sudo_pass: p", "become_password", Secret("p")),
        ("ansible_become_pass: p", "become_password", Secret("p")),
        ("ansible_become: 'on'", "become", True),
        ("ansible_become: 0", "become", False),
        ("ansible_become_method: sudo", "become", False),
        ("ansible_connection: ansible.builtin.ssh", "address", "h1"),
        ("ansible_python_interpreter: auto_silent", "python_interpreter", AUTO_PYTHON),
        ("ansible_python_interpreter: /usr/bin/python3.11", "python_interpreter", "/usr/bin/python3.11"),
        ("ansible_ssh_host_key_checking: 'no'", "host_key_checking", False),
        ("ansible_password: !unsafe '{{x}}'", "password", Secret("{{x}}")),
    ],
)
def test_one_variable_sets_one_field(tmp_path: Path, variables: str, field: str, value: object) -> None:
    assert getattr(_inventory(tmp_path, variables).target("h1"), field) == value


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ("ansible_host: 12", "ansible_host of host 'h1' is 12, a number, not text"),
        ("ansible_host: [a]", "a list, not text"),
        ("ansible_user: true", "true or false, not text"),
        ('ansible_host: "a\\nb"', "more than one line"),
        ("ansible_port: ssh", "ansible_port of host 'h1' is 'ssh', not a port"),
        ("ansible_port: 0", "not a port"),
        ("ansible_port: 65536", "not a port"),
        ("ansible_port: 22.5", "not a port"),
        ("ansible_port: true", "not a port"),
        ("ansible_become: maybe", "neither true nor false"),
        ("ansible_become: [yes]", "neither true nor false"),
        ("ansible_become_method: su", "ansible_become_method of host 'h1' is 'su'"),
        ("ansible_connection: local", "ansible_connection of host 'h1' is 'local'"),
        ("ansible_connection: winrm", "is 'winrm'"),
        ("ansible_host: '{{ address }}'", "ansible_host of host 'h1' is a jinja template"),
        ("ansible_ssh_common_args: '-o User={% x %}'", "jinja template"),
        ("ansible_port: '{{ port }}'", "jinja template"),
        ("ansible_become: '{{ true }}'", "jinja template"),
    ],
)
def test_unusable_variable_is_refused_with_host_variable_and_line(tmp_path: Path, variables: str, words: str) -> None:
    with pytest.raises(InventoryError) as refused:
        _inventory(tmp_path, variables).target("h1")
    assert words in refused.value.message
    assert refused.value.message.startswith(f"{tmp_path}/hosts.yml:3: ")


def test_password_of_a_wrong_type_is_not_printed(tmp_path: Path) -> None:
    with pytest.raises(InventoryError) as refused:
        _inventory(tmp_path, "ansible_password: 4711").target("h1")
    assert "ansible_password of host 'h1' is a number, not text" in refused.value.message
    assert "4711" not in refused.value.message


def test_error_names_the_file_that_set_the_variable_last(tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text("[g]\nh1 x=1\n[g:vars]\nansible_port=22\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "g.yml").write_text("---\nfirst: 1\nansible_port: many\n")
    with pytest.raises(InventoryError) as refused:
        load_inventory([tmp_path / "hosts.ini"]).target("h1")
    assert refused.value.message.startswith(f"{tmp_path}/group_vars/g.yml:3: ansible_port of host 'h1'")


def test_unknown_host_is_refused_with_near_names(tmp_path: Path) -> None:
    with pytest.raises(InventoryError) as refused:
        _inventory(tmp_path, "").target("h11")
    assert refused.value.hint == "did you mean h1?"


def test_template_elsewhere_does_not_hinder(tmp_path: Path) -> None:
    inventory = _inventory(tmp_path, "motd: '{{ x }}'")
    assert inventory.target("h1").address == "h1"
    assert inventory.variables("h1")["motd"] == "{{ x }}"


def test_a_password_that_other_users_may_read_is_warned_of_once_for_each_file(tmp_path: Path) -> None:
    hosts, group = tmp_path / "hosts.ini", tmp_path / "group_vars/all.yml"
    group.parent.mkdir()
    hosts.write_text("gpu1 ansible_ssh_pass=x\ngpu2 ansible_ssh_pass=y\ngpu3 ansible_password=''\n")
    group.write_text("ansible_become_password: z\n")
    for path in (hosts, group):
        path.chmod(0o644)
    inventory = load_inventory([hosts])
    assert list(inventory.warnings) == []  # until the variables are read
    for host in inventory.hosts():
        inventory.variables(host)
    assert inventory.warnings == (
        f"{hosts}:1: other users may read ansible_ssh_pass; `chmod 0600 {hosts}` keeps them out",
        f"{group}:1: other users may read ansible_become_password; `chmod 0600 {group}` keeps them out",
    )
    for path in (hosts, group):
        path.chmod(0o600)
    inventory = load_inventory([hosts, "gpu4,"])
    for host in inventory.hosts():
        inventory.variables(host)
    assert inventory.warnings == ()
