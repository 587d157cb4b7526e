# SPDX-License-Identifier: Apache-2.0
"""A file of any content is read within bounds or refused with its line, whichever reader it goes to."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.errors import VgpuctlError
from vgpuctl.inventory import load_inventory
from vgpuctl.inventory.owners_file import read_owners
from vgpuctl.model.network import Backend
from vgpuctl.specs import bounded_reader
from vgpuctl.specs.bounded_reader import MOST_BYTES, Malformed, read_bounded, read_documents, read_json
from vgpuctl.specs.tenant import read_tenant_files
from vgpuctl.specs.vm import read_vm_file
from vgpuctl.trusted_files import NAMED
from vgpuctl_lab.lab_file import read_lab_file


def _inventory(path: Path) -> Any:
    return load_inventory([path]).as_ansible_list()


READERS: dict[str, Callable[[Path], Any]] = {
    "inventory": _inventory,
    "VM file": lambda path: read_vm_file(path, tenant="acme"),
    "tenant file": lambda path: read_tenant_files(path, default_backend=Backend.LIBVIRT),
    "lab file": read_lab_file,
    "owners": lambda path: read_owners(str(path)),
}
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{level}: &a{level}\n  <<: [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)
ALIAS_BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)
# Text, and what the error says of it.
HOSTILE = {
    "merge keys that multiply": (MERGE_BOMB, "aliases"),
    "aliases that multiply": (ALIAS_BOMB, "aliases"),
    "an anchor inside itself": ("a: &a {b: [*a]}\n", "contains itself"),
    "deep flow lists": ("a: " + "[" * 200_000, "nested too deeply"),
    "deep flow mappings": ("a: " + "{x: " * 50_000, "nested too deeply"),
    "deep block lists": ("a:\n" + "- " * 200_000, "nested too deeply"),
    "deep explicit keys": ("? " * 100_000, "nested too deeply"),
    "deep JSON": ('{"a": ' + "[" * 200_000, "nested too deeply"),
    "deep through aliases": (
        "a0: &a0 [x]\n" + "".join(f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, 150)),
        "nested too deeply",
    ),
    "a day that is not": ("a: 1\nwhen: 2024-99-99\n", ":2:7: "),
    "a timestamp that is none": ("a: !!timestamp x\n", ":1:4: "),
    "a zone out of range": ("a: 0001-01-01T00:00:00+23:59\n", ""),
    "a float that is none": ("a:\n  b: !!float x\n", ":2:6: "),
    "an int that is none": ("a: !!int ''\n", ":1:4: "),
    "a bool that is none": ("a: !!bool maybe\n", ":1:4: "),
    "a number of 5,000 digits": ("a: " + "9" * 5_000, "a number of 5000 characters"),
    "a hexadecimal number of 5,000 digits": ("a: 0x" + "f" * 5_000, "characters"),
    "a number to the base of 60": ("a: 1" + ":59" * 5_000, "characters"),
    "a JSON number of 5,000 digits": ('{"a": ' + "9" * 5_000 + "}", "characters"),
    "a list as a key": ("? [a]\n: b\n", "unhashable"),
    "a mapping as a key": ("{{a: 1}: 2}\n", "unhashable"),
    "an unknown tag": ("a: !!python/object/apply:os.system [id]\n", ":1:4: "),
    "a NUL": ("a: \0\n", ":1: "),
    "half a character": ('{"a": "\\ud800"}', "lone surrogate"),
    "an infinite JSON number": ('{"a": 1e999}', "too large"),
    "a constant that JSON has not": ('{"a": NaN}', "NaN"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_by_name_and_place(reader: str, what: str, tmp_path: Path) -> None:
    text, said = HOSTILE[what]
    path = tmp_path / "hosts.yml"
    path.write_text(text)
    with pytest.raises(VgpuctlError) as refused:
        READERS[reader](path)
    message = refused.value.message
    assert str(path) in message
    assert len(message) < 600
    if not (reader in ("VM file", "lab file") and what.startswith(("half a", "an infinite", "a constant"))):
        assert said in message  # those two read JSON as YAML, and then do not know the field


@pytest.mark.parametrize("reader", READERS)
def test_an_encoding_is_refused_by_name(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    for content, said in (("a: é".encode("utf-16"), "UTF-8"), (b"a: 1\nb: \xff\n", ":2: not UTF-8")):
        path.write_bytes(content)
        with pytest.raises(VgpuctlError, match="UTF-8") as refused:
            READERS[reader](path)
        assert said in refused.value.message


@pytest.mark.parametrize("reader", READERS)
def test_a_file_without_end_is_refused(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(VgpuctlError, match="more than 16 MiB"):
        READERS[reader](path)


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "vm.yml"
    path.write_bytes(b"\xef\xbb\xbfname: web-1\n")
    assert [vm.name for vm in read_vm_file(path, tenant="acme")] == ["web-1"]


def test_a_wrong_field_of_a_vm_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "vm.yml"
    path.write_text("name: web-1\n---\nvms:\n- name: web-2\n- name: web-3\n  disk:\n    size: [1]\n")
    with pytest.raises(VgpuctlError) as refused:
        read_vm_file(path, tenant="acme")
    assert refused.value.message.startswith(f"{path}:7: vms[1].disk.size is a list")
    path.write_text("name: web-1\n---\nname: web-2\ngpus: ['*']\n")
    with pytest.raises(VgpuctlError) as refused:
        read_vm_file(path, tenant="acme")
    assert refused.value.message.startswith(f"{path}:4: ")


@pytest.mark.parametrize("text", ["a\0b", "a\x1bb", "a\nb", "a\ud800b"])
@pytest.mark.parametrize("field", ["network", "host", "policy"])
def test_a_control_character_in_a_vm_is_refused(field: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "vm.yml"
    escaped = text.encode("unicode_escape").decode().replace("\\ud800", "\\u0007")
    path.write_text(f'name: web-1\n{field}: "{escaped}"\n')
    with pytest.raises(VgpuctlError):
        read_vm_file(path, tenant="acme")


def test_merge_keys_and_aliases_still_work() -> None:
    text = "base: &base {a: 1, b: 2}\nother:\n  <<: *base\n  b: 3\nlist: [*base, *base]\n"
    assert read_documents(text) == [
        {"base": {"a": 1, "b": 2}, "other": {"a": 1, "b": 3}, "list": [{"a": 1, "b": 2}, {"a": 1, "b": 2}]}
    ]


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "{", '{"a": "\\ud83d"}', "[" * 1000 + "]" * 1000, "-" + "1" * 41])
def test_strict_json_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(text)


def test_strict_json_reads_what_is_fine() -> None:
    assert read_json('{"a": [1, -2.5e3, "\\ud83d\\ude00 é", null, true, {}]}') == {
        "a": [1, -2500.0, "😀 é", None, True, {}]
    }
    with pytest.raises(Malformed, match="nested too deeply"):
        read_json("[" * 200 + "]" * 200)


def test_a_pipe_is_read_to_its_end_and_given_up_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "tenant.yml"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"name: x\n" * 20_000))
    writer.start()
    assert read_bounded(pipe, NAMED) == b"name: x\n" * 20_000
    writer.join()
    monkeypatch.setattr(bounded_reader, "LONGEST_WAIT_S", 0.2)
    with pytest.raises(Malformed, match=r"did not end within 0\.2 s"):
        read_bounded(pipe, NAMED)


def test_a_device_without_end_is_refused() -> None:
    with pytest.raises(Malformed, match="more than 16 MiB"):
        read_bounded(Path("/dev/zero"), NAMED)
