# SPDX-License-Identifier: Apache-2.0
"""VM files: documents, lists, and errors that name file and field."""

from pathlib import Path

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.disk import DiskRequest
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import Firmware
from vgpuctl.specs.vm import read_vm_file


def _write(folder: Path, text: str) -> Path:
    path = folder / "vm.yml"
    path.write_text(text)
    return path


def test_several_documents_and_a_list_are_read_alike(tmp_path: Path) -> None:
    one = "name: web-1\ntenant: acme\ngpus: [A40-8Q]\nmemory: 4GiB\nfirmware: uefi\ndisk: {size: 20GiB}\n"
    documents = read_vm_file(_write(tmp_path, one + "---\nname: web-2\ntenant: acme\n"), tenant=None)
    listed = read_vm_file(
        _write(
            tmp_path,
            "vms:\n- {name: web-1, gpus: [A40-8Q], memory: 4GiB, firmware: uefi, disk: {size: 20GiB}}\n"
            "- {name: web-2}\n",
        ),
        tenant="acme",
    )
    assert documents == listed
    assert (documents[0].memory_mib, documents[0].firmware) == (4096, Firmware.UEFI)
    assert documents[0].disk == DiskRequest(20480)


@pytest.mark.parametrize(("written", "meant"), [("on", Switch.ON), ("off", Switch.OFF), ("'on'", Switch.ON)])
def test_on_and_off_need_no_quotes(tmp_path: Path, written: str, meant: Switch) -> None:
    """YAML 1.1 reads them as true and false."""
    text = f"name: web-1\nfirmware: uefi\nos: win11\ntpm: {written}\nsecure_boot: {written}\n"
    (vm,) = read_vm_file(_write(tmp_path, text), tenant="acme")
    assert (vm.tpm, vm.secure_boot) == (meant, meant)


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("name: web-1\nmemroy: 4GiB\n", "vm.yml:2: vm.memroy is not a key of a VM", "did you mean memory?"),
        ("name: web-1\nvcpus: two\n", "vm.yml:2: vm.vcpus is 'two', text, not a whole number", None),
        ('name: web-1\ngpus:\n- A40-8Q\n- A40-"\n', "vm.yml:4: vm.gpus[1] 'A40-\"' cannot be read", "a profile"),
        ("name: web-1\ngpus: [20*A40]\n", "vm.yml:2: vm.gpus[0] '20*A40' asks for 20 GPUs", "1 to 16"),
        ("name: web-1\npolicy: best\n", "vm.yml:2: vm.policy: 'best' is no policy", "use fragmentation"),
        ("name: web-1\nvcpus: 0\n", "vm.yml:2: vm.vcpus is 0", "it can be 1 to 512"),
        ("name: web-1\nfirmware: on\n", "vm.yml:2: vm.firmware is True, true or false, not text", "it can be bios"),
        ("name: web-1\ncpu_limit: 50\n", "vm.yml:2: vm.cpu_limit is 50, a number, not text", "write 50%: of one CPU"),
        ("name: web-1\ncpu_limit: 500\n", "vm.yml:2: vm.cpu_limit is 500", "a percentage from 1% to 100%"),
        ("name: web-1\nnetwork: 5\n", "vm.yml:2: vm.network is 5", "quote it to make it text"),
        ("name: web-1\nfirmware: uefy\n", "vm.yml:2: vm.firmware is 'uefy'", "did you mean uefi?"),
        ("name: web-1\n---\nname: web-2\ndisk:\n  siez: 1GiB\n", "vm.yml:5: vm.disk.siez is not", "did you mean size?"),
        ("vms:\n- name: web-1\n- name: web-2\n  memory: much\n", "vm.yml:4: vms[1].memory is 'much'", "2GiB"),
        ("name: web-1\nkernel: {initrd: a}\n", "vm.yml:2: vm.kernel has no 'image'", None),
        ("name: web-1\nkernel: {path: boot/vmlinuz}\n", "vm.yml:2: vm.kernel.path", "image"),
        ("name: web-1\nname: web-2\n", "vm.yml:2: key 'name' is written twice", None),
        ("- just\n- a list\n", "vm.yml:1: vm is a list, not a mapping", None),
        ("", "holds no VM", None),
        ("name: [unclosed\n", "not valid YAML", None),
        ("name: web-1\nmemory: 1MiB\n", "vm.yml:1: 1 MiB", None),
        ("name: web-1\nmemory: 4096\n", "vm.yml:2: vm.memory is 4096, a number", "512MiB or 2GiB"),
        ("name: web-1\n---\nname: web-1\n", "vm.yml:3: VM web-1 of tenant acme is in this file twice", None),
        ("memory: 1GiB\n", "vm.yml:1: vm has no 'name'", None),
    ],
)
def test_a_wrong_file_names_line_and_key_and_what_was_meant(
    tmp_path: Path, text: str, said: str, hint: str | None
) -> None:
    with pytest.raises(UsageError) as refused:
        read_vm_file(_write(tmp_path, text), tenant="acme")
    assert said in refused.value.message
    assert hint is None or hint in (refused.value.hint or "")


def test_a_vm_without_tenant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no tenant"):
        read_vm_file(_write(tmp_path, "name: web-1\n"), tenant=None)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.yml"):
        read_vm_file(tmp_path / "nowhere.yml", tenant=None)


@pytest.mark.parametrize(("text", "network"), [("none", None), ("null", None), ("front", "front")])
def test_no_network_is_written_as_on_the_command_line(tmp_path: Path, text: str, network: str | None) -> None:
    (vm,) = read_vm_file(_write(tmp_path, f"name: web-1\nnetwork: {text}\n"), tenant="acme")
    assert vm.network == network
