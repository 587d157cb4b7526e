# SPDX-License-Identifier: Apache-2.0
"""Malformed inventories are refused with the file, the line and what is wrong."""

import os
import re
from pathlib import Path

import pytest

from vgpuctl.errors import InventoryError
from vgpuctl.inventory import load_inventory

MALFORMED = {
    # name: (file, content, line, words of the message)
    "bad YAML": ("hosts.yml", "all:\n  hosts:\n    h1: {a: 1\n", 4, "not valid YAML"),
    "a tab in YAML": ("hosts.yml", "all:\n  hosts:\n\t\th1:\n", 3, "not valid YAML"),
    "a control character": ("hosts.yml", "all:\n  hosts:\n    h1: \x01\n", 3, "not valid YAML"),
    "two documents": ("hosts.yml", "all:\n---\nall:\n", 2, "single document"),
    "an unknown tag": ("hosts.yml", "all:\n  vars:\n    a: !secret x\n", 3, "!secret"),
    "an unhashable key": ("hosts.yml", "all:\n  vars:\n    [1]: x\n", 3, "unhashable"),
    "a binary value": ("hosts.yml", "all:\n  vars:\n    a: !!binary aGk=\n", 3, "binary"),
    "a vault value": ("hosts.yml", "all:\n  vars:\n    s: !vault |\n      $ANSIBLE_VAULT\n", 3, "ansible-vault"),
    "a vault file": ("hosts.yml", "$ANSIBLE_VAULT;1.1;AES256\n6162\n", 1, "encrypted by ansible-vault"),
    "a list at the top": ("hosts.yml", "- h1\n- h2\n", 1, "list, not a mapping"),
    "an empty mapping": ("hosts.yml", "{}\n", 1, "empty"),
    "a group that is a list": ("hosts.yml", "all:\n  children:\n    gpu:\n      - h1\n", 3, "group 'gpu' is a list"),
    "a group that is text": ("hosts.yml", "gpu: h1\n", 1, "group 'gpu' is text"),
    "a group that is a number": ("hosts.yml", "7:\n  hosts: {h1: }\n", 1, "7 is not a group name"),
    "hosts as several words": ("hosts.yml", "gpu:\n  hosts: h1 h2\n", 2, "'h1 h2' is not a host name"),
    "hosts as a list": ("hosts.yml", "gpu:\n  hosts:\n    - h1\n", 2, "hosts of group 'gpu' is a list"),
    "children as a list": ("hosts.yml", "gpu:\n  children: [a]\n", 2, "children of group 'gpu' is a list"),
    "vars as a list": ("hosts.yml", "gpu:\n  vars: [a]\n", 2, "vars of group 'gpu' is a list"),
    "a host that is a number": ("hosts.yml", "gpu:\n  hosts:\n    12:\n", 3, "host 12 is a number"),
    "host variables as text": ("hosts.yml", "gpu:\n  hosts:\n    h1: fast\n", 3, "variables of host 'h1' are text"),
    "host variables as a list": ("hosts.yml", "gpu:\n  hosts:\n    h1: [a]\n", 3, "variables of host 'h1' are a list"),
    "a range backwards": ("hosts.yml", "gpu:\n  hosts:\n    gpu[5:2]:\n", 3, "backwards, from 5 to 2"),
    "a range without end": ("hosts.ini", "gpu[5:]\n", 1, "no end"),
    "a range of one number": ("hosts.ini", "gpu[5]\n", 1, "[begin:end]"),
    "a range of letters and numbers": ("hosts.ini", "gpu[a:5]\n", 1, "neither a number nor a letter"),
    "letters backwards": ("hosts.ini", "\ngpu[c:a]\n", 2, "backwards"),
    "bounds of different length": ("hosts.ini", "gpu[01:100]\n", 1, "differ in length"),
    "a step of zero": ("hosts.ini", "gpu[1:9:0]\n", 1, "step is 0"),
    "a bracket alone": ("hosts.ini", "gpu1[\n", 1, "bracket"),
    "a range without end of hosts": ("hosts.ini", "gpu[1:999999999]\n", 1, "more than 100000"),
    "ranges that multiply": ("hosts.ini", "gpu[1:9999]-[1:9999]\n", 1, "more than 100000"),
    "a port too large": ("hosts.ini", "gpu1:70000\n", 1, "port 70000"),
    "a name with a colon": ("hosts.ini", "gpu1:ssh\n", 1, "not a host name"),
    "an unknown section kind": ("hosts.ini", "[gpu]\nh1\n[gpu:hostvars]\n", 3, "unknown kind 'hostvars'"),
    "a section with spaces": ("hosts.ini", "[my gpus]\nh1\n", 1, "not a section"),
    "vars of no group": ("hosts.ini", "h1\n[gpu:vars]\na=1\n", 2, "has no section"),
    "an undefined child": ("hosts.ini", "[site:children]\nrack1\n", 2, "'rack1', which is not a group"),
    "a child that is no name": ("hosts.ini", "[site:children]\nrack1 rack2\n", 2, "expected the name of a group"),
    "vars without a value": ("hosts.ini", "[all:vars]\nfast\n", 2, "expected name=value"),
    "a host variable without value": ("hosts.ini", "h1 fast\n", 1, "expected name=value"),
    "a quote alone": ("hosts.ini", "[g]\nh1 a='b\n", 2, "No closing quotation"),
    "YAML in an INI file": ("hosts.ini", "all:\n  hosts:\n", 1, "is this a YAML file"),
    "not UTF-8": ("hosts.ini", "h1\nh2 a=\udcff\n", 2, "not UTF-8: byte 0xff"),
    "a value without a hash": ("hosts.ini", "h1 a={[1]:2}\n", 1, "cannot be read"),
    "a group in itself": ("hosts.ini", "[a]\n[a:children]\na\n", 3, "itself"),
    "a circle of groups": ("hosts.ini", "[a:children]\nb\n[b:children]\nc\n[c:children]\na\n", 6, "a > b > c > a"),
    "a circle in YAML": ("hosts.yml", "a: {children: {b: }}\nb:\n  children:\n    a:\n", 4, "a > b > a"),
    "all as a child": ("hosts.ini", "[a:children]\nall\n", 2, "above every group"),
    "a parent of ungrouped": ("hosts.ini", "[a:children]\nungrouped\n", 2, "'ungrouped' has a parent"),
    "a priority that is no number": ("hosts.yml", "g:\n  vars:\n    ansible_group_priority: high\n", 3, "whole number"),
    "an infinite priority": ("hosts.yml", "g:\n  vars:\n    ansible_group_priority: .inf\n", 3, "whole number"),
    "a priority of nan": ("hosts.yml", "g:\n  vars:\n    ansible_group_priority: .nan\n", 3, "whole number"),
    "an inventory plugin": ("hosts.yml", "plugin: constructed\n", 1, "inventory plugin 'constructed'"),
    "settings of a script": ("ec2.ini", "[ec2]\nregions = all\n", 2, "settings of an inventory script"),
    "settings without blanks": ("vmware.ini", "[vmware]\nserver=vcenter\n", 2, "--inventory-reader ansible"),
    "settings with a colon": ("openstack.ini", "[openstack]\nurl: http://x\n", 2, "settings of an inventory script"),
    "a login in the host's place": ("hosts.ini", "ansible_user=root ansible_port=22\n", 1, "a setting, not a host"),
    "a password in the host's place": ("hosts.ini", "api_token=x ansible_host=h1\n", 1, "begins with a variable"),
    "a host like a setting": ("hosts.ini", "[gpus]\na=b\n", 2, "ansible_host=ADDRESS on its line"),
    "a host like a setting with a variable": ("hosts.ini", "a=b rack=7\n", 1, "a setting, not a host"),
    "settings in no section": ("azure.ini", "include_powerstate=no\n", 1, "a setting, not a host"),
    "what a script printed": ("out.json", '{"gpu": {"hosts": ["h1"]}}', 1, "name the script, not what it printed"),
    "broken JSON": ("hosts.json", '{"all": {"hosts": {"h1": {}}\n', 2, "not valid JSON: Expecting ',' delimiter"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_file_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    file, content, line, words = MALFORMED[name]
    path = tmp_path / file
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InventoryError) as refused:
        load_inventory([path])
    shown = f"{refused.value.message} {refused.value.hint or ''}"
    assert re.match(rf"{re.escape(str(path))}:{line}(:\d+)?: ", refused.value.message), shown
    assert words in shown


def test_a_tab_is_named_in_the_hint(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("all:\n\thosts:\n")
    with pytest.raises(InventoryError) as refused:
        load_inventory([path])
    assert refused.value.hint == "the line is indented with a tab; YAML wants spaces"


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing\n; at all\n"])
@pytest.mark.parametrize("file", ["hosts.ini", "hosts.yml", "hosts"])
def test_empty_file_is_refused(tmp_path: Path, file: str, content: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(InventoryError, match="empty"):
        load_inventory([tmp_path / file])


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="No such file or directory") as missing:
        load_inventory([f"{tmp_path / 'a.yml'}:{tmp_path / 'b.yml'}"])
    assert "in VGPUCTL_INVENTORY with spaces between them" in (missing.value.hint or "")


def test_folder_of_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("a: 1\n")
    (tmp_path / "notes.txt").write_text("h1\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InventoryError, match="holds no inventory file"):
        load_inventory([tmp_path])


def test_unreadable_file_is_refused_with_the_answer_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "a.yml").symlink_to("b.yml")
    (tmp_path / "b.yml").symlink_to("a.yml")
    with pytest.raises(InventoryError, match="symbolic links"):
        load_inventory([tmp_path / "a.yml"])
    with pytest.raises(InventoryError, match="symbolic links"):
        load_inventory([tmp_path])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("all: {hosts: {h1: }}\n")
    path.chmod(0)
    with pytest.raises(InventoryError, match="Permission denied"):
        load_inventory([path])


def test_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hosts")
    with pytest.raises(InventoryError, match="not a regular file"):
        load_inventory([tmp_path / "hosts"])


def test_script_is_refused_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "inventory.sh"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho '{{}}'\n")
    path.chmod(0o755)
    with pytest.raises(InventoryError, match="inventory script"):
        load_inventory([path])
    assert not (tmp_path / "ran").exists()


def test_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text("[g.hosts]\nh1 = {}\n")
    with pytest.raises(InventoryError, match="TOML"):
        load_inventory([tmp_path / "hosts.toml"])


def test_no_source_is_refused() -> None:
    with pytest.raises(InventoryError, match="no inventory was given"):
        load_inventory([])


@pytest.mark.parametrize(
    ("source", "words"),
    [(",", "names no host"), ("gpu[1:3],", "no ranges"), ("a b,", "not a host name"), ("a:0,", "port 0")],
)
def test_malformed_comma_list_is_refused(source: str, words: str) -> None:
    with pytest.raises(InventoryError, match=words):
        load_inventory([source])


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("group_vars/g.yml", "- a\n", "g.yml:1: the file is a list, not a mapping of variables"),
        ("group_vars/g.yml", "a: 1\nb: [\n", "g.yml:3:1: not valid YAML"),
        ("group_vars/all/x.yml", "a: !vault x\n", "x.yml:1: the value is encrypted"),
        ("host_vars/h1.json", '{"a": {"__ansible_vault": "x"}}', "h1.json:1: the value is encrypted"),
        ("host_vars/h1", "a: {{ x }}\n", "h1:1:5: not valid YAML"),
        (
            "host_vars/h1.yml",
            "when: 2024-99-99\n",
            "h1.yml:1:7: not valid YAML: the value cannot be read as timestamp",
        ),
    ],
)
def test_malformed_variable_file_is_refused_when_it_is_needed(
    tmp_path: Path, file: str, content: str, words: str
) -> None:
    (tmp_path / "hosts.ini").write_text("[g]\nh1\n")
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    inventory = load_inventory([tmp_path / "hosts.ini"])
    assert inventory.hosts() == ["h1"]
    with pytest.raises(InventoryError) as refused:
        inventory.variables("h1")
    assert words in refused.value.message


def test_mapping_that_contains_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("all:\n  hosts:\n    h1:\n      loop: &loop {again: *loop}\n")
    with pytest.raises(InventoryError, match="contains itself"):
        load_inventory([path]).as_ansible_list()


def test_groups_nested_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("a: &a\n  children:\n    b: *a\n")
    with pytest.raises(InventoryError):
        load_inventory([path])
    for deep in ("[" * 200_000 + "]" * 200_000, "\n" + "- " * 200_000):
        path.write_text(f"x: {deep}\n")
        with pytest.raises(InventoryError, match="nested too deeply"):
            load_inventory([path])


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("a=b ansible_host=10.0.0.1", ["a=b"]),
        ("rack=[1:2] ansible_user=root", ["rack=1", "rack=2"]),
        ("a=b rack=7 ansible_port=2222", ["a=b"]),
        ("a==b ansible_host=h1", ["a==b"]),
    ],
)
def test_a_host_with_an_equals_sign_in_its_name_has_a_login_beside_it(
    line: str, names: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(f"[gpus]\n{line}\n")
    assert load_inventory([path]).select(None) == names
