# SPDX-License-Identifier: Apache-2.0
"""The agent's work on guests' UEFI variables and TPMs: only a VM's own files, and no link is followed."""

import base64
import contextlib
import os
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from vgpuctl.agent.changes import guest_state
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem, Request, request_from_json, request_to_json
from vgpuctl.agent.wire.guest_state import NVRAM_FOLDER, TPM_FOLDER, GuestState, StateAction, StateFile, StateOrder

UUID = "6f1f0a52-5a0c-4a3e-9d8c-0b6f5b0f6a01"
NVRAM = f"{UUID}_VARS.fd"
TPM = f"{TPM_FOLDER}/{UUID}/tpm2/tpm2-00.permall"
READ = StateOrder(StateAction.READ, UUID, (NVRAM,))


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def host_with(root: Path, files: dict[str, bytes]) -> Host:
    for path, data in files.items():
        place = Path(f"{root}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(0o600)
    return Host(str(root))


def test_files_go_from_host_to_host_as_they_are(tmp_path: Path) -> None:
    source = host_with(
        tmp_path / "a",
        {f"{NVRAM_FOLDER}/{NVRAM}": b"\xff" * 540_672, TPM: b"secret", f"{TPM_FOLDER}/{UUID}/tpm2/.lock": b""},
    )
    found = guest_state.handle(source, READ)
    assert [one.path for one in found.files] == [f"{NVRAM_FOLDER}/{NVRAM}", TPM]
    assert sum(len(one.data) for one in found.files) < 10_000
    target = host_with(tmp_path / "b", {TPM: b"left by a killed move", f"{TPM_FOLDER}/{UUID}/tpm2/old": b"x"})
    order = replace(READ, action=StateAction.WRITE, files=found.files)
    assert request_from_json(request_to_json(Request("guest-state", state=order))).state == order
    guest_state.handle(target, order)
    assert guest_state.handle(target, READ) == found
    assert Path(f"{tmp_path}/b{TPM}").parent.stat().st_mode & 0o777 == 0o700
    assert guest_state.handle(target, StateOrder(StateAction.LIST)).paths == (
        f"{NVRAM_FOLDER}/{NVRAM}",
        f"{TPM_FOLDER}/{UUID}",
    )
    removing = replace(READ, action=StateAction.REMOVE)
    assert len(guest_state.handle(target, removing).paths) == 2
    writes = target.writes
    assert guest_state.handle(target, removing) == GuestState()
    assert target.writes == writes


def test_a_host_without_the_folders_has_nothing(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert guest_state.handle(host, READ) == GuestState()
    assert guest_state.handle(host, StateOrder(StateAction.LIST)) == GuestState()


@pytest.mark.parametrize(
    ("path", "data", "words"),
    [
        ("/etc/shadow", packed(b"x"), "no file of VM"),
        (f"{NVRAM_FOLDER}/other_VARS.fd", packed(b"x"), "no file of VM"),
        (f"{TPM_FOLDER}/{UUID}/tpm2/../../x", packed(b"x"), "no name of a file"),
        (f"{TPM_FOLDER}/{UUID}/tpm3/x", packed(b"x"), "no name of a file"),
        (TPM, "no base64!", "cannot be unpacked"),
        (TPM, base64.b64encode(b"not compressed").decode(), "cannot be unpacked"),
        (TPM, packed(b"x" * (9 << 20)), "cut off, or larger"),
    ],
)
def test_a_file_that_is_not_the_vms_own_is_refused_before_anything_is_written(
    path: str, data: str, words: str, tmp_path: Path
) -> None:
    host = host_with(tmp_path, {TPM: b"kept"})
    file = StateFile(path, 0o600, "root", data)
    with pytest.raises(Problem, match=words):
        guest_state.handle(host, replace(READ, action=StateAction.WRITE, files=(file,)))
    assert Path(f"{tmp_path}{TPM}").read_bytes() == b"kept"


@pytest.mark.parametrize("name", ["../x_VARS.fd", "a/b_VARS.fd", "x.img", "_VARS.fd"])
def test_a_name_that_is_no_file_of_variables_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no name of a file"):
        guest_state.handle(Host(str(tmp_path)), replace(READ, nvram=(name,)))


def test_links_that_swtpms_user_could_have_made_are_not_followed(tmp_path: Path) -> None:
    host = host_with(tmp_path, {"/etc/secret": b"of root", f"{TPM_FOLDER}/{UUID}/keep": b""})
    (tmp_path / f"{TPM_FOLDER[1:]}/{UUID}/tpm2").symlink_to(tmp_path / "etc")
    with pytest.raises(Problem) as refused:
        guest_state.handle(host, READ)
    assert refused.value.errno in ("ENOTDIR", "ELOOP")
    guest_state.handle(host, replace(READ, action=StateAction.REMOVE))
    assert (tmp_path / "etc/secret").read_bytes() == b"of root"


def test_an_owner_that_the_other_host_does_not_know_becomes_root(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    file = StateFile(TPM, 0o600, "no-such-user", packed(b"x"))
    guest_state.handle(host, replace(READ, action=StateAction.WRITE, files=(file,)))
    assert Path(f"{tmp_path}{TPM}").stat().st_uid == os.getuid()


def test_a_pipe_or_a_huge_file_is_no_state(tmp_path: Path) -> None:
    host = host_with(tmp_path, {f"{TPM_FOLDER}/{UUID}/tpm2/keep": b""})
    os.mkfifo(tmp_path / f"{TPM_FOLDER[1:]}/{UUID}/tpm2/pipe")
    with pytest.raises(Problem, match="no regular file"):
        guest_state.handle(host, READ)


def test_files_are_overwritten_before_they_are_removed(tmp_path: Path) -> None:
    host = host_with(tmp_path, {f"{NVRAM_FOLDER}/{NVRAM}": b"variables" * 100_000, TPM: b"secret"})
    files = [Path(f"{tmp_path}{path}") for path in (f"{NVRAM_FOLDER}/{NVRAM}", TPM)]
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(file.open("rb")) for file in files]
        guest_state.handle(host, replace(READ, action=StateAction.REMOVE))
        assert not any(file.exists() for file in files)
        assert [one.read().strip(b"\0") for one in opened] == [b"", b""]


def test_a_file_that_is_linked_from_elsewhere_is_not_overwritten(tmp_path: Path) -> None:
    host = host_with(tmp_path, {TPM: b"secret", "/etc/secret": b"of root"})
    place = Path(f"{tmp_path}{TPM}")
    (place.parent / "hard").hardlink_to(tmp_path / "etc/secret")
    (place.parent / "soft").symlink_to(tmp_path / "etc/secret")
    guest_state.handle(host, replace(READ, action=StateAction.REMOVE))
    assert (tmp_path / "etc/secret").read_bytes() == b"of root"
    assert not place.parent.exists()


@pytest.mark.parametrize(
    ("mounts", "remote"),
    [
        ("/dev/sda1 / ext4 rw 0 0\n", ()),
        ("/dev/sda1 / ext4 rw 0 0\nnas:/tpm /var/lib/libvirt/swtpm nfs4 rw 0 0\n", (TPM_FOLDER,)),
        ("nas:/ / nfs rw 0 0\n/dev/sdb /var/lib/libvirt/swtpm xfs rw 0 0\n", (NVRAM_FOLDER,)),
        ("x /var/lib/libvirt fuse.glusterfs rw 0 0\n", (NVRAM_FOLDER, TPM_FOLDER)),
        ("x /var/lib/libvirt/swtpm2 nfs4 rw 0 0\nx /var/lib/lib\\040virt nfs4\nbroken\n", ()),
    ],
)
def test_folders_on_a_network_file_system_are_told(mounts: str, remote: tuple[str, ...], tmp_path: Path) -> None:
    host = host_with(tmp_path, {"/proc/mounts": mounts.encode()})
    assert guest_state.handle(host, READ).remote == remote
    assert guest_state.handle(host, StateOrder(StateAction.LIST)).remote == remote
