# SPDX-License-Identifier: Apache-2.0
"""`vgpuctl show-inventory` at a shell; no host is contacted."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.operator import Operator

EXAMPLE = Path(__file__).parents[3] / "inventory"


@pytest.fixture
def reader(tmp_path: Path) -> Operator:
    """An operator with the example fleet and no store."""
    return Operator(tmp_path, EXAMPLE, f"sqlite:///{tmp_path}/store.db")


def test_json_is_what_ansible_inventory_prints(reader: Operator) -> None:
    printed = subprocess.run(
        [Path(sys.executable).with_name("ansible-inventory"), "-i", EXAMPLE, "--list"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PATH": reader.environment["PATH"], "HOME": str(reader.home), "LC_ALL": "C.UTF-8"},
    )
    assert reader.does("show-inventory", "--json", "--with-secrets").out == printed.stdout


def test_json_masks_what_is_secret(reader: Operator, tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(
        "all:\n  hosts:\n    gpu1:\n      ansible_ssh_pass: seed-1\n      ansible_become_pass: seed-2\n"
        "      dbPassword: 7141\n"
        "      ansible_ssh_common_args: -o ProxyCommand='sshpass -pseed-3 ssh jump'\n      rack: 4\n"
        "      nested: {apps: [{api_token: seed-4, port: 80}], url: 'https://u:seed-5@b/'}\n      key: |\n"
        "        -----BEGIN PRIVATE KEY-----\n        seed-6\n        -----END PRIVATE KEY-----\n"
        "      vgpu_fencing: {command: /sbin/fence -p seed-7}\n"
    )
    done = reader.does("show-inventory", "-i", str(path), "--json")
    assert "seed-" not in done.out + done.err
    shown = json.loads(done.out)["_meta"]["hostvars"]["gpu1"]
    assert (shown["rack"], shown["dbPassword"], shown["nested"], shown["key"]) == ("***", "***", "***", "***")
    assert reader.does("show-inventory", "-i", str(path), "--json", "--with-secrets").out.count("seed-") == 7


def test_json_shows_only_variables_that_are_known_to_be_harmless(reader: Operator, tmp_path: Path) -> None:
    harmless = {
        **{"ansible_host": "192.0.2.9", "ansible_port": 2222, "ansible_user": "ops", "ansible_become": True},
        **{"ansible_ssh_private_key_file": "~/.ssh/id", "ansible_python_interpreter": "/usr/bin/python3"},
        **{"ansible_connection": "ssh", "ansible_become_method": "sudo", "ansible_timeout": 5, "is_spare": False},
        **{"nothing": None, "vgpu": {"gpus": [{"match": "all", "kind": "vgpu"}]}, "vgpu_placing": {"groups": ["a"]}},
    }
    secret = {
        **{"ansible_ssh_executable": "sshpass -pseed ssh", "ansible_sudo_exe": "sudo seed"},
        **{"ansible_become_flags": "-A seed", "bmc_login": "admin:seed", "creds": ["u", "seed"], "passcode": "seed"},
        **{"jwt": "seed", "bearer": "seed", "key": "seed", "luks": "seed", "kennwort": "seed"},
        **{"snmp": {"priv": "seed", "port": "seed"}, "webhook": "https://hooks.example/services/T/seed"},
        **{"ansible_become_exe": "seed", "ansible_ssh_extra_args": "-o seed", "site": {"a": [{"b": ["seed"]}]}},
        **{
            "pin_code": "seed",
            "ansible_paramiko_proxy_command": "seed",
            "note": "seed",
            "ansible_shell_executable": "seed",
        },
    }
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps({"all": {"hosts": {"gpu1": {**harmless, **secret, "number": 4711}}}}))
    done = reader.does("show-inventory", "-i", str(path), "--json")
    assert "seed" not in done.out + done.err
    shown = json.loads(done.out)["_meta"]["hostvars"]["gpu1"]
    assert shown == {**harmless, **dict.fromkeys((*secret, "number"), "***")}


def test_table_shows_hosts_with_groups_and_address(reader: Operator) -> None:
    lines = [line.split() for line in reader.does("show-inventory").out.splitlines()]
    assert lines[0] == ["HOST", "ADDRESS", "PORT", "USER", "BECOME", "GROUPS"]
    assert lines[1] == ["gpu01.example", "192.0.2.11", "-", "operator", "root", "a40_hosts", "gpu_hosts", "rack1"]
    assert lines[5] == ["bench1.example", "192.0.2.90", "2222", "operator", "root", "bench"]


def test_limit_narrows_table_and_json(reader: Operator) -> None:
    table = reader.does("show-inventory", "--limit", "gpu_hosts:!rack2:&a40_hosts").out
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["gpu01.example", "gpu02.example"]
    listing = reader.json("show-inventory", "--limit", "gpu0[12]*")
    assert sorted(listing["_meta"]["hostvars"]) == ["gpu01.example", "gpu02.example"]


def test_several_inventories_are_joined(reader: Operator) -> None:
    table = reader.does("show-inventory", "-i", str(EXAMPLE), "-i", "extra1,extra2:2200,").out
    assert [line.split()[0] for line in table.splitlines()[1:3]] == ["extra1", "extra2"]


def test_malformed_inventory_ends_with_file_and_line(reader: Operator, tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text("[gpu]\ngpu[3:1]\n")
    error = reader.is_refused("show-inventory", "-i", str(path))
    assert error["exit_code"] == 3
    assert error["reference"] == "inventory"
    assert error["message"] == f"{path}:2: host range 'gpu[3:1]': the range runs backwards, from 3 to 1"
    assert reader.is_refused("show-inventory", "-i", str(tmp_path / "absent"))["exit_code"] == 3
    assert reader.is_refused("show-inventory", "--limit", "gpu0")["exit_code"] == 3


def test_host_with_an_unusable_variable_is_a_row_and_an_error(reader: Operator, tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text("gpu1 ansible_port=ssh\ngpu2 ansible_host='{{ x }}'\ngpu3\n")
    done = reader.run("show-inventory", "-i", str(path))
    assert done.code == 3
    assert [line.split()[:2] for line in done.out.splitlines()[1:]] == [
        ["gpu1", "invalid"],
        ["gpu2", "invalid"],
        ["gpu3", "gpu3"],
    ]
    assert f"{path}:1: ansible_port of host 'gpu1' is 'ssh', not a port" in done.err
    assert f"{path}:2: ansible_host of host 'gpu2' is a jinja template" in done.err


def test_passwords_stay_out_of_the_table(reader: Operator, tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text("gpu1 ansible_password=hunter2 ansible_become_password=hunter2\n")
    done = reader.does("show-inventory", "-i", str(path))
    assert "hunter2" not in done.out + done.err


def test_warnings_go_to_stderr(reader: Operator, tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("g:\n  ansible_user: root\n  hosts: {h1: }\n")
    done = reader.does("show-inventory", "-i", str(path), "--json")
    assert (
        done.err == f"warning: {path}:2: 'ansible_user' in group 'g' is skipped; only hosts, vars and children count\n"
    )


def test_two_hosts_with_one_address_for_moves_are_told(reader: Operator, tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("g:\n  hosts: {h1: , h2: }\n  vars: {vgpu_moves: {network: trusted, address: 10.0.8.1}}\n")
    done = reader.does("show-inventory", "-i", str(path))
    for one, other in (("h1", "h2"), ("h2", "h1")):
        assert f"warning: {path}:3: hosts {one} and {other} have the same address for moves, 10.0.8.1" in done.err


def test_a_name_that_is_group_and_host_is_told_by_every_command(reader: Operator, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("[gpu1]\nnode1 ansible_host=127.0.0.1 ansible_port=1\n[other]\ngpu1 ansible_host=127.0.0.1\n")
    warning = "warning: 'gpu1' is both a group and a host"
    for words in (("show-inventory",), ("list-hosts", "--limit", "node1"), ("plan-hosts", "--limit", "node1")):
        assert reader.run(*words, "-i", str(path)).err.count(warning) == 1, words


def test_the_inventory_is_named_before_the_command_too(reader: Operator, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"[gpus]\n{name} ansible_host=192.0.2.1\n")
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    asked = replace(reader, variables={"VGPUCTL_INVENTORY": two})
    for words in (("-i", one, "show-inventory"), ("--inventory", one, "show-inventory")):
        assert asked.json(*words)["gpus"] == {"hosts": ["one"]}
    both = asked.json("-i", one, "show-inventory", "-i", two)
    assert sorted(both["gpus"]["hosts"]) == ["one", "two"]
    assert asked.json("-i", one, "list-events") == []
    assert "no-such" in asked.is_refused("-i", str(tmp_path / "no-such"), "show-inventory")["message"]


def test_ansible_core_reads_a_script_when_asked_for(reader: Operator, tmp_path: Path) -> None:
    """By option, by variable, and by a configuration file; a layout from a script is a layout."""
    script = tmp_path / "hosts.py"
    script.write_text(f'#!{sys.executable}\nprint(\'{{"gpus": {{"hosts": ["gpu1"]}}}}\')\n')
    script.chmod(0o755)
    refused = reader.is_refused("show-inventory", "-i", str(script))
    assert "--inventory-reader ansible" in refused["hint"]
    listed = reader.json("show-inventory", "-i", str(script), "--inventory-reader", "ansible")
    assert listed["gpus"] == {"hosts": ["gpu1"]}
    asked = replace(reader, variables={"VGPUCTL_INVENTORY_READER": "ansible"})
    assert asked.json("show-inventory", "-i", str(script)) == listed
    (tmp_path / "config.yaml").write_text("inventory-reader: ansible\n")
    configured = replace(reader, variables={"VGPUCTL_CONFIG": str(tmp_path / "config.yaml")})
    assert configured.json("show-inventory", "-i", str(script)) == listed
    (tmp_path / "config.yaml").write_text("inventory_reader: ansibel\n")
    assert "config.yaml:1: " in configured.is_refused("show-inventory", "-i", str(script))["message"]
    wrong = replace(reader, variables={"VGPUCTL_INVENTORY_READER": "awk"})
    assert wrong.run("show-inventory", "-i", str(script)).code == 2


def test_what_is_refused_names_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator(tmp_path, tmp_path / "inventory/hosts.yml", f"sqlite:///{tmp_path}/store.db")
    (tmp_path / "inventory").mkdir()
    operator.inventory.write_text("all: {hosts: {gpu1: {}, gpu2: {}}}\n")
    alone = operator.run("show-inventory", "--with-secrets")
    assert alone.code == 2 and "--with-secrets goes with --json" in alone.err
    plays = tmp_path / "plays"
    (plays / "group_vars").mkdir(parents=True)
    monkeypatch.chdir(plays)
    said = operator.does("show-inventory").err
    assert f"group_vars of {plays} are not used" in said and f"move or link them to {tmp_path}/inventory" in said
    (tmp_path / "inventory/group_vars").mkdir()
    (tmp_path / "inventory/group_vars/all.yml").write_text("a: 1\n")
    (tmp_path / "inventory/group_vars/all.yml").chmod(0o666)
    for command in ("list-hosts", "list-gpus", "list-profiles"):
        done = operator.run(command)
        assert "all.yml is not used: it may be written to by every user" in done.err and "reading" not in done.err
