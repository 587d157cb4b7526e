# SPDX-License-Identifier: Apache-2.0
"""Files that ansible runs or believes: it is not started where others may write to one of them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from vgpuctl.errors import FileNotTrusted
from vgpuctl.inventory import load_inventory
from vgpuctl.inventory.ansible_source import InventoryReader


@pytest.fixture(autouse=True)
def inventory(home: Path) -> None:
    """An inventory in the test's home."""
    (home / "inv").mkdir()
    (home / "inv/hosts.yml").write_text("all: {hosts: {gpu1: }}\n")


PLUGINS = "[defaults]\nvars_plugins = {name}\n"
# The file that others may write to; the source; one more file (ansible.cfg) with its content; the environment.
FILES: dict[str, tuple[str, str, tuple[str, str] | None, Mapping[str, str]]] = {
    "script-of-a-folder": ("inv/dyn.sh", "inv", None, {}),
    "script-further-down": ("inv/more/dyn.sh", "inv", None, {}),
    "folder-further-down": ("inv/more/", "inv", None, {}),
    "group-variables": ("inv/group_vars/all.yml", "inv/hosts.yml", None, {}),
    "group-variables-in-a-folder": ("inv/group_vars/all/1.yml", "inv/hosts.yml", None, {}),
    "host-variables": ("inv/host_vars/gpu1", "inv/hosts.yml", None, {}),
    "folder-of-host-variables": ("inv/host_vars/", "inv/hosts.yml", None, {}),
    "configuration-of-environment": ("my.cfg", "inv", None, {"CONFIG": "my.cfg"}),
    "configuration-in-folder-of-environment": ("etc/ansible.cfg", "inv", None, {"CONFIG": "~/etc"}),
    "configuration-of-working-folder": ("ansible.cfg", "inv", None, {}),
    "configuration-of-home": (".ansible.cfg", "inv", None, {}),
    "plugins-of-home": (".ansible/plugins/vars/evil.py", "inv", None, {}),
    "collections-of-home": (".ansible/collections/", "inv", None, {}),
    "plugins-of-configuration": ("plug/", "inv", (".ansible.cfg", PLUGINS.format(name="/nowhere:plug")), {}),
    "plugin-of-configuration": ("plug/evil.py", "inv", (".ansible.cfg", PLUGINS.format(name="~/plug")), {}),
    "plugin-of-other-configuration": (
        "etc/plug/evil.py",
        "inv",
        ("etc/a.cfg", PLUGINS.format(name="plug ; why")),
        {"CONFIG": "etc/a.cfg"},
    ),
    "plugins-of-environment": ("plug/", "inv", None, {"INVENTORY_PLUGINS": "$HOME/plug"}),
    "home-of-ansible": ("else/plugins/vars/evil.py", "inv", None, {"HOME": "~/else"}),
    "vault-script": ("vault", "inv", ("ansible.cfg", "[defaults]\nvault_password_file = {{CWD}}/vault\n"), {}),
    "vault-identity": ("vault", "inv", None, {"VAULT_IDENTITY_LIST": "a@prompt, b@~/vault"}),
}


@pytest.mark.parametrize(("wide", "source", "other", "environment"), FILES.values(), ids=FILES)
def test_ansible_is_not_started_with_a_file_that_others_may_write_to(
    wide: str,
    source: str,
    other: tuple[str, str] | None,
    environment: Mapping[str, str],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = home / wide
    path.parent.mkdir(parents=True, exist_ok=True)
    if wide.endswith("/"):
        path.mkdir()
        path.chmod(0o777)
    else:
        path.write_text("[defaults]\n" if wide.endswith(".cfg") else "")
        path.chmod(0o666)
    if other:
        (home / other[0]).write_text(other[1])
    for name, value in environment.items():
        monkeypatch.setenv(f"ANSIBLE_{name}", value)
    monkeypatch.setenv("PATH", "/nowhere")  # no program is started, and none is looked for
    with pytest.raises(FileNotTrusted) as refused:
        load_inventory([source], InventoryReader.ANSIBLE)
    assert refused.value.message.startswith(f"{path} is not used: it may be written to by every user")


def test_a_script_that_a_link_leads_to_is_judged(home: Path) -> None:
    (home / "there").mkdir()
    (home / "there/dyn.sh").touch(0o755)
    (home / "there/dyn.sh").chmod(0o777)
    (home / "inv/more").symlink_to(home / "there")
    (home / "inv/round").symlink_to(home / "inv")
    with pytest.raises(FileNotTrusted, match=r"there/dyn\.sh is not used"):
        load_inventory(["inv"], InventoryReader.ANSIBLE)


def test_files_that_ansible_does_not_read_are_not_judged(home: Path) -> None:
    (home / ".ansible.cfg").write_text("[defaults]\nlog_path = log\nroles_path = ~/roles\nlocal_tmp = ~/tmp\n")
    for name in ("log", "inv/.hidden"):
        (home / name).touch()
        (home / name).chmod(0o666)
    for name in ("roles", "tmp"):
        (home / name).mkdir()
        (home / name).chmod(0o777)
    assert sorted(load_inventory(["inv", "gpu2,"], InventoryReader.ANSIBLE).hosts()) == ["gpu1", "gpu2"]
