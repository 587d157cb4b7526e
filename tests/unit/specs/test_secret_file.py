# SPDX-License-Identifier: Apache-2.0
"""The files that a tenant's file may name as secrets."""

import os
from pathlib import Path

import pytest

from vgpuctl.errors import FileNotTrusted, UsageError
from vgpuctl.specs.secret_file import SecretFiles


def _secret(path: Path, content: bytes = b"token") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)
    return path


@pytest.fixture
def tenant(tmp_path: Path) -> Path:
    """A tenant's file in a folder of its own, with the operator's files around it."""
    folder = tmp_path / "tenants" / "acme"
    folder.mkdir(parents=True)
    _secret(tmp_path / "operator.key", b"operator")
    _secret(folder / ".ssh" / "id_ed25519", b"private")
    return folder / "acme.yml"


def test_a_secret_beside_or_below_the_file_is_read(tenant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _secret(tenant.parent / "acme.tok")
    _secret(tenant.parent / "deep" / "er" / "acme.tok", b"deeper")
    (tenant.parent / "link.tok").symlink_to("deep/er/acme.tok")
    monkeypatch.chdir("/")
    files = SecretFiles(tenant)
    assert files.read("acme.tok") == b"token"
    assert files.read(str(tenant.parent / "acme.tok")) == b"token"
    assert files.read("link.tok") == b"deeper"
    elsewhere = tenant.parent.parent / "acme.yml"
    elsewhere.symlink_to(tenant)
    assert SecretFiles(elsewhere).read("acme.tok") == b"token"


def test_a_file_of_the_operator_that_is_linked_into_the_folder_is_refused(tenant: Path) -> None:
    (tenant.parent / "hard.tok").hardlink_to(tenant.parent.parent.parent / "operator.key")
    with pytest.raises(UsageError, match="has 2 names"):
        SecretFiles(tenant).read("hard.tok")


def test_files_of_the_operator_are_not_reached(tenant: Path) -> None:
    folder = tenant.parent
    (folder / "out.tok").symlink_to("../../operator.key")
    (folder / "folder").symlink_to(folder.parent.parent)
    (folder / "ssh").symlink_to(".ssh")
    refused = {
        "../../operator.key": "cannot be named so",
        "deep/../../../operator.key": "cannot be named so",
        str(folder.parent.parent / "operator.key"): "neither beside",
        "/etc/shadow": "neither beside",
        "out.tok": "neither beside",
        "folder/operator.key": "neither beside",
        ".ssh/id_ed25519": "is hidden",
        "ssh/id_ed25519": "is hidden",
        "a\0b": "cannot be named so",
        "/dev/stdin": "neither beside",
        "": "is no regular file",
        "none.tok": "No such file",
    }
    for name, said in refused.items():
        with pytest.raises(UsageError, match=said) as caught:
            SecretFiles(tenant).read(name)
        assert "operator\n" not in str(caught.value)


def test_folders_that_the_operator_allows_are_reached(tenant: Path) -> None:
    vault = tenant.parent.parent.parent / "vault"
    _secret(vault / "..2026" / "acme.tok")
    (vault / "acme.tok").symlink_to("..2026/acme.tok")
    (vault / "out.tok").symlink_to("../operator.key")
    files = SecretFiles(tenant, [vault])
    assert files.read(str(vault / "acme.tok")) == b"token"
    with pytest.raises(UsageError, match="neither beside"):
        files.read(str(vault / "out.tok"))


def test_what_is_no_secret_of_its_reader_is_refused(tenant: Path) -> None:
    folder = tenant.parent
    _secret(folder / "open.tok").chmod(0o644)
    os.mkfifo(folder / "pipe.tok", 0o600)
    _secret(folder / "large.tok", b"x" * (2**20 + 1))
    (folder / "folder.tok").mkdir(0o700)
    for name, said in (
        ("open.tok", r"may be read by every user \(mode 0644\)"),
        ("pipe.tok", "it is a pipe"),
        ("folder.tok", "no regular file"),
        ("large.tok", "larger than 1 MiB"),
    ):
        with pytest.raises(FileNotTrusted if name in ("open.tok", "pipe.tok") else UsageError, match=said):
            SecretFiles(tenant).read(name)
    if os.geteuid() == 0:
        os.chown(_secret(folder / "other.tok"), 65534, 65534)
        with pytest.raises(FileNotTrusted, match="belongs to nobody"):
            SecretFiles(tenant).read("other.tok")


def test_the_folder_of_the_file_that_is_exchanged_for_a_link_is_not_followed(tenant: Path) -> None:
    """The tenant owns the folder above, and exchanges the folder after it was looked at."""
    _secret(tenant.parent / "operator.key")
    files = SecretFiles(tenant)
    assert files.read("operator.key") == b"token"
    tenant.parent.rename(tenant.parent.with_name("before"))
    tenant.parent.symlink_to("..")
    with pytest.raises(UsageError, match="neither beside"):
        files.read("operator.key")
