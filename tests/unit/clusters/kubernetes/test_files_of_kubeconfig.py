# SPDX-License-Identifier: Apache-2.0
"""The operator's kubeconfig and what it names: files that others may write to, or secrets that they may read."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from vgpuctl.clusters.kubernetes.gpu_api import GpuApi
from vgpuctl.errors import FileNotTrusted, UsageError

_EXEC = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "HOME/there/file"}
# Of the cluster, of the user; the file, and the mode that is too wide.
WIDE: dict[str, tuple[Mapping[str, object], Mapping[str, object], str, int]] = {
    "itself": ({}, {}, "kubeconfig", 0o666),
    "token": ({}, {"token": "x"}, "kubeconfig", 0o604),
    "password": ({}, {"username": "me", "password": "x"}, "kubeconfig", 0o604),
    "key": ({}, {"client-certificate-data": "eA==", "client-key-data": "eA=="}, "kubeconfig", 0o604),
    "authority": ({"certificate-authority": "HOME/there/file"}, {}, "there/file", 0o666),
    "authority-beside": ({"certificate-authority": "there/file"}, {}, "there/file", 0o666),
    "authority-in-folder": ({"certificate-authority": "there/file"}, {}, "there", 0o777),
    "certificate": ({}, {"client-certificate": "there/file", "client-key": "other"}, "there/file", 0o666),
    "key-file": ({}, {"client-certificate": "other", "client-key": "there/file"}, "there/file", 0o604),
    "token-file": ({}, {"tokenFile": "HOME/there/file"}, "there/file", 0o604),
    "token-file-writable": ({}, {"tokenFile": "HOME/there/file"}, "there/file", 0o602),
    "program": ({}, {"exec": _EXEC}, "there/file", 0o757),
    "program-of-path": ({}, {"exec": {**_EXEC, "command": "file"}}, "there/file", 0o757),
}


@pytest.mark.parametrize(("cluster", "user", "file", "mode"), WIDE.values(), ids=WIDE)
def test_what_others_may_write_to_or_read_is_refused(
    cluster: Mapping[str, object],
    user: Mapping[str, object],
    file: str,
    mode: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").touch(0o700)
    (tmp_path / "other").touch(0o600)
    content = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", **cluster}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(content).replace("HOME", str(tmp_path)))
    kubeconfig.chmod(0o600)
    monkeypatch.setenv("PATH", f"{tmp_path}/there:/bin")
    (tmp_path / file).chmod(mode)
    with pytest.raises(FileNotTrusted) as refused:
        GpuApi(kubeconfig)
    assert str(tmp_path / file) in refused.value.message
    (tmp_path / file).chmod(0o700)
    try:  # the files here hold nothing
        GpuApi(kubeconfig)
    except UsageError as error:
        assert "not used" not in error.message
