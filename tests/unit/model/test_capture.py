# SPDX-License-Identifier: Apache-2.0
"""A capture comes from anybody: it is read within bounds, and a wrong one is named."""

import gzip
import json
import zlib
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.agent.wire.decode import WireError
from vgpuctl.errors import UsageError
from vgpuctl.model.capture import FORMAT, MOST_BYTES, Capture, CaptureManifest, read_capture, recording_from

MACHINE: dict[str, Any] = {
    "is_emulated": True,
    "answers": {"is_root": [[1, {"value": True}]]},
    "nvml": {"constants": {}, "errors": {}, "answers": {}},
}
MANIFEST = CaptureManifest(
    *(FORMAT, "0.1.0", "a" * 64, "2026-11-26T00:00:00Z", "host-001", True, "6.1", "Debian", ("debian",), "3.11"),
    *(None, None, None, None, (), ("facts",)),
)
CAPTURE = Capture(MANIFEST, MACHINE, {"version": "9000000"})


def _whole() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(gzip.decompress(CAPTURE.as_file()))
    return value


def _refusal(tmp_path: Path, data: bytes) -> str:
    file = tmp_path / "x.capture.json.gz"
    file.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        read_capture(file)
    assert str(file) in refused.value.message
    return refused.value.message


def test_a_capture_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "x.capture.json.gz"
    file.write_bytes(CAPTURE.as_file())
    assert read_capture(file) == CAPTURE
    assert CAPTURE.as_file() == replace(CAPTURE).as_file()


def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path: Path) -> None:
    assert "64 MiB" in _refusal(tmp_path, gzip.compress(b" " * (MOST_BYTES + 1)))


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    assert "cut off" in _refusal(tmp_path, CAPTURE.as_file()[:-12])


@pytest.mark.parametrize(
    ("data", "reason"), [(b"", "it is cut off"), (b"not gzip", "it is damaged, or not compressed by gzip: ")]
)
def test_a_file_that_is_not_compressed_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    assert reason in _refusal(tmp_path, data)


@pytest.mark.parametrize("content", [b"\xff", b"[" * 500 + b"]" * 500, b'{"a": NaN}', b'{"a": 1, "a": 2}'])
def test_what_is_not_strict_json_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "it is not JSON: " in _refusal(tmp_path, gzip.compress(content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_capture(tmp_path / "none")


def _without(value: dict[str, Any], *path: str) -> dict[str, Any]:
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: _without(value, "libvirt"), "must have the keys"),
        (lambda value: _without(value, "machine", "nvml", "errors"), "machine.nvml"),
        (lambda value: value | {"manifest": value["manifest"] | {"format": 99}}, "manifest.format"),
        (lambda value: value | {"manifest": value["manifest"] | {"kernel": 6}}, "manifest.kernel"),
        (lambda value: value | {"manifest": value["manifest"] | {"extra": 6}}, "extra"),
        (lambda value: value | {"libvirt": {"version": 9}}, "libvirt"),
        (
            lambda value: value | {"machine": value["machine"] | {"answers": {"is_root": [[1]]}}},
            "machine.answers.is_root",
        ),
        (lambda value: value | {"machine": value["machine"] | {"answers": {"is_root": []}}}, "machine.answers.is_root"),
        (lambda _value: [], "must have the keys"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, change: Any, said: str) -> None:
    assert said in _refusal(tmp_path, gzip.compress(json.dumps(change(_whole())).encode()))


@pytest.mark.parametrize(
    ("key", "answer", "said"),
    [
        ("read_optional /proc/cmdline", {"value": 7}, "machine.answers.read_optional /proc/cmdline.value"),
        ("read_bytes /x", {"value": {"bytes": "a", "encoding": "rot13"}}, ".value.encoding"),
        ('run ["lsmod"]', {"value": [0, "out"]}, ".value: has another type"),
        ("listdir_optional /sys", {"value": ["a", 1]}, ".value[1]"),
        ("open_image /img", {"value": {"size": 9}}, "must have errno, or size and head"),
        ("exists /dev/kvm", {"problem": {"code": 1}}, "exists /dev/kvm.problem"),
        ("is_root", {}, "machine.answers.is_root.value"),
    ],
)
def test_a_value_of_another_type_is_named_by_its_path(tmp_path: Path, key: str, answer: Any, said: str) -> None:
    whole = _whole()
    whole["machine"]["answers"][key] = [[1, answer]]
    assert said in _refusal(tmp_path, gzip.compress(json.dumps(whole).encode()))


@pytest.mark.parametrize(
    ("key", "answer", "said"),
    [
        ("nvmlDeviceGetName(gpu 0)", {"result": 7}, "machine.nvml.answers.nvmlDeviceGetName(gpu 0).result"),
        ("nvmlDeviceGetCount()", {"result": "8"}, "nvmlDeviceGetCount().result"),
        ("nvmlDeviceGetMigMode(gpu 0)", {"result": [0, "1"]}, ".result[1]"),
        ("nvmlDeviceGetMemoryInfo(gpu 0)", {"result": {"struct": {"total": "9"}}}, ".struct.total: must be a number"),
        ("nvmlDeviceGetPciInfo(gpu 0)", {"result": {"struct": {"busId": 9}}}, ".struct.busId: must be text"),
        ("nvmlNew()", {"result": {"other": 1}}, "must have struct, tuple, bytes, number or handle"),
        ("nvmlNew()", {"result": 0, "out": {"a": 1}}, "must be the number of an argument"),
        ("nvmlNew()", {"result": {"number": "much"}}, ".number"),
        ("nvmlNew()", {"code": "3"}, "nvmlNew().code"),
        ("nvmlNew()", {}, "must have result, code or raised"),
    ],
)
def test_a_value_of_nvml_of_another_type_is_named_by_its_path(tmp_path: Path, key: str, answer: Any, said: str) -> None:
    whole = _whole()
    whole["machine"]["nvml"]["answers"][key] = [[1, answer]]
    assert said in _refusal(tmp_path, gzip.compress(json.dumps(whole).encode()))


@pytest.mark.parametrize("text", ["?", b64encode(b"x").decode(), b64encode(zlib.compress(b"{}")).decode()])
def test_a_recording_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(WireError):
        recording_from(text)
