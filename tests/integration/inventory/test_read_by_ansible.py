# SPDX-License-Identifier: Apache-2.0
"""The inventory as the installed ansible-core reads it: as our own reader does, and scripts, plugins and vaults too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vgpuctl.errors import InventoryError
from vgpuctl.inventory import ansible_source, load_inventory
from vgpuctl.inventory.ansible_source import InventoryReader
from vgpuctl.model.secret import Secret

EXAMPLE = Path(__file__).parents[3] / "inventory"
DATA = Path(__file__).parents[2] / "data" / "inventory"
SCRIPT = """#!{python}
import json
hosts = {{"gpu1": {{"ansible_host": "192.0.2.1", "note": {{"__ansible_unsafe": "{{{{ x }}}}"}}}}}}
variables = {{"ansible_user": "op", "vgpu": {{"version": 1, "gpus": [{{"match": "all", "kind": "passthrough"}}]}}}}
print(json.dumps({{"gpus": {{"hosts": ["gpu1", "gpu2"], "vars": variables}}, "_meta": {{"hostvars": hosts}}}}))
"""

pytestmark = pytest.mark.usefixtures("home")


def _script(folder: Path, text: str) -> Path:
    path = folder / "hosts.py"
    path.write_text(text.format(python=sys.executable))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "source", [EXAMPLE, DATA / "group_vars_precedence" / "hosts.ini", DATA / "json_inventory" / "hosts.json"], ids=str
)
def test_both_readers_find_the_same_hosts_groups_and_variables(source: Path) -> None:
    ours, theirs = load_inventory([source]), load_inventory([source], InventoryReader.ANSIBLE)
    assert sorted(theirs.hosts()) == sorted(ours.hosts())
    assert theirs.as_ansible_list(with_secrets=True) == ours.as_ansible_list(with_secrets=True)
    for host in ours.hosts():
        assert theirs.variables(host) == ours.variables(host)
        assert theirs.target(host) == ours.target(host)
        assert theirs.groups_of(host) == ours.groups_of(host)
    assert theirs.hosts() and not theirs.warnings


def test_a_groups_layout_is_the_same_by_both_readers(home: Path) -> None:
    (home / "hosts.ini").write_text("[gpus]\ngpu1\ngpu2\n[bench]\nbench1\n")
    (home / "group_vars").mkdir()
    (home / "group_vars" / "gpus.yml").write_text("vgpu: {version: 1, gpus: [{match: all, kind: passthrough}]}\n")
    ours = load_inventory([home / "hosts.ini"])
    theirs = load_inventory([home / "hosts.ini"], InventoryReader.ANSIBLE)
    assert [theirs.layout(host) for host in ours.hosts()] == [ours.layout(host) for host in ours.hosts()]
    assert [host for host in theirs.hosts() if theirs.layout(host)] == ["gpu1", "gpu2"]


def test_a_script_is_run_when_asked_for(home: Path) -> None:
    path = _script(home, SCRIPT)
    with pytest.raises(InventoryError, match="inventory script") as refused:
        load_inventory([path])
    assert "--inventory-reader ansible" in (refused.value.hint or "")
    inventory = load_inventory([path], InventoryReader.ANSIBLE)
    assert inventory.hosts() == ["gpu1", "gpu2"]
    assert inventory.groups["gpus"] == ("gpu1", "gpu2")
    target = inventory.target("gpu1")
    assert (target.address, target.user) == ("192.0.2.1", "op")
    assert inventory.layout("gpu2") is not None
    assert inventory.variables("gpu1")["note"] == "{{ x }}"


def test_a_plugin_is_run_when_asked_for(home: Path) -> None:
    hosts, plugin = home / "hosts.yml", home / "rack.yml"
    hosts.write_text("all: {hosts: {gpu1: {rack: r1}, gpu2: {rack: r2}}}\n")
    plugin.write_text("plugin: constructed\nstrict: true\nkeyed_groups: [{key: rack, prefix: rack}]\n")
    with pytest.raises(InventoryError, match="inventory plugin") as refused:
        load_inventory([hosts, plugin])
    assert "--inventory-reader ansible" in (refused.value.hint or "")
    inventory = load_inventory([hosts, plugin], InventoryReader.ANSIBLE)
    assert inventory.groups["rack_r1"] == ("gpu1",)


def test_what_ansible_says_comes_back_in_its_words(home: Path) -> None:
    path = home / "cloud.yml"
    path.write_text("plugin: no_such_plugin\n")
    with pytest.raises(InventoryError) as refused:
        load_inventory([path], InventoryReader.ANSIBLE)
    assert f"ansible-inventory -i {path}: it ended with 1: [ERROR]" in refused.value.message
    assert "parse" in refused.value.message
    broken = _script(home, "#!{python}\nimport sys\nsys.exit('no credentials for the cloud')\n")
    with pytest.raises(InventoryError, match="ended with 1"):
        load_inventory([broken], InventoryReader.ANSIBLE)


def test_a_vaults_password_for_a_login_is_opened_by_ansibles_own_settings(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "key").write_text("opensesame\n")
    vault = Path(sys.executable).with_name("ansible-vault")
    argv: list[str | Path] = [
        vault,
        "encrypt_string",
        "--vault-password-file",
        home / "key",
        "--name",
        "ansible_password",
        "hunter2",
    ]
    secret = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    (home / "hosts.yml").write_text("all: {hosts: {gpu1: }}\n")
    (home / "host_vars").mkdir()
    (home / "host_vars" / "gpu1.yml").write_text(secret)
    inventory = load_inventory([home / "hosts.yml"], InventoryReader.ANSIBLE)
    with pytest.raises(InventoryError, match="cannot decrypt") as refused:
        inventory.target("gpu1")
    assert "ANSIBLE_VAULT_PASSWORD_FILE" in (refused.value.hint or "")
    listed = inventory.as_ansible_list(with_secrets=True)["_meta"]["hostvars"]["gpu1"]["ansible_password"]
    assert listed["__ansible_vault"].startswith("$ANSIBLE_VAULT;")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(home / "key"))
    assert load_inventory([home / "hosts.yml"], InventoryReader.ANSIBLE).target("gpu1").password == Secret("hunter2")


def test_a_script_that_does_not_end_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _script(home, "#!{python}\nimport time\ntime.sleep(60)\n")
    monkeypatch.setattr(ansible_source, "ANSWER_S", 3.0)
    with pytest.raises(InventoryError, match="did not end within 3 s"):
        load_inventory([path], InventoryReader.ANSIBLE)


def test_output_without_end_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = home / "bin"
    programs.mkdir()
    program = programs / "ansible-inventory"
    program.write_text("#!/bin/sh\nexec yes\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(InventoryError, match="printed more than 16 MiB"):
        load_inventory(["gpu1,"], InventoryReader.ANSIBLE)
    program.write_text("#!/bin/sh\necho '[1]'\n")
    with pytest.raises(InventoryError, match="no listing of an inventory"):
        load_inventory(["gpu1,"], InventoryReader.ANSIBLE)
