# SPDX-License-Identifier: Apache-2.0
"""VM files: documents, lists, and errors that name file and field."""

from pathlib import Path

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.vm import DiskRequest, Firmware
from vgpuctl.usecases.vm.vm_file import read_vm_file


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: web-1\nmemroy: 4GiB\n", "memroy"),
        ("name: web-1\nvcpus: two\n", "$.vcpus"),
        ("name: web-1\nfirmware: efi\n", "firmware"),
        ("- just\n- a list\n", "VM 1"),
        ("", "holds no VM"),
        ("name: [unclosed\n", "not valid YAML"),
        ("name: web-1\nvcpus: 0\n", "vCPUs"),
        ("name: web-1\nmemory: 1\n", "1 MiB"),
        ("name: web-1\n---\nname: web-1\n", "twice"),
        ("name: web-1\nkernel: {path: boot/vmlinuz}\n", "path"),
    ],
)
def test_a_wrong_file_names_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_vm_file(_write(tmp_path, text), tenant="acme")
    assert said in refused.value.message


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
