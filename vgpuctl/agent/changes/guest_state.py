# SPDX-License-Identifier: Apache-2.0
"""The files of a guest's UEFI variables and TPM: listed, read, written on another host, removed.

They hold secrets, such as the key of an encrypted disk. libvirt gives them to the users of its QEMU and swtpm at each
start, so that their owner here matters for the time between only.
"""

import base64
import binascii
import re
import zlib
from typing import List, Tuple

from vgpuctl.agent.facts.mdev import check_uuid
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.guest_state import (
    NVRAM_FOLDER,
    TPM_FOLDER,
    GuestState,
    StateAction,
    StateFile,
    StateOrder,
)
from vgpuctl.agent.wire.mounts import filesystem_of
from vgpuctl.agent.wire.problem_codes import ProblemCode

_NVRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}_VARS\.fd")
_TPM_FILE = re.compile(r"tpm(?:1\.2|2)/[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
_VERSIONS = ("tpm1.2", "tpm2")
# Variables have 540,672 bytes in builds of 4 MiB, a TPM some 10,000.
_MOST_BYTES = 8 << 20
_MOST_FILES = 32
# Of the kernel and of FUSE, by their names in /proc/mounts.
_NETWORK = re.compile(
    r"nfs4?|cifs|smb3|(?:fuse\.)?ceph|(?:fuse\.)?glusterfs|gfs2|ocfs2|lustre|beegfs|gpfs|9p|virtiofs"
    r"|fuse\.(?:sshfs|juicefs|moosefs|s3fs)"
)


def handle(host: Host, order: StateOrder) -> GuestState:
    """Do what an order asks. Raises Problem `bad-uuid`, `bad-name`, `unreadable`, `write-refused`."""
    if order.action is StateAction.LIST:
        return GuestState(paths=_list(host), remote=_remote(host))
    uuid = check_uuid(order.vm_uuid)
    for name in order.nvram:
        _check(_NVRAM, name)
    if order.action is StateAction.READ:
        files = tuple(_read(host, base, path) for base, path in _paths(host, uuid, order.nvram))
        return GuestState(files=files, remote=_remote(host))
    written = [(_base_of(file, uuid, order), file, _content(file)) for file in order.files]
    removed = _remove(host, uuid, order.nvram)
    for _base, file, data in written:
        _write(host, file, data)
    return GuestState(paths=tuple(removed))


def _list(host: Host) -> Tuple[str, ...]:
    names = [name for name in host.listdir_optional(NVRAM_FOLDER) or [] if _NVRAM.fullmatch(name)]
    return (
        *(f"{NVRAM_FOLDER}/{name}" for name in names),
        *(f"{TPM_FOLDER}/{name}" for name in host.listdir_optional(TPM_FOLDER) or []),
    )


def _remote(host: Host) -> Tuple[str, ...]:
    """The folders that other hosts may have too."""
    mounts = host.read_optional("/proc/mounts") or ""
    folders = (NVRAM_FOLDER, TPM_FOLDER)
    return tuple(one for one in folders if _NETWORK.fullmatch(filesystem_of(mounts, host.image_real_path(one)) or ""))


def _paths(host: Host, uuid: str, nvram: Tuple[str, ...]) -> List[Tuple[str, str]]:
    """The VM's files that are there: the trusted folder, and the path below it. Locks and sockets are left out."""
    there = set(host.listdir_optional(NVRAM_FOLDER) or [])
    found = [(NVRAM_FOLDER, name) for name in nvram if name in there]
    for version in _VERSIONS:
        names = host.listdir_optional(f"{TPM_FOLDER}/{uuid}/{version}") or []
        below = (f"{version}/{name}" for name in names)
        found += [(TPM_FOLDER, f"{uuid}/{one}") for one in below if _TPM_FILE.fullmatch(one)]
    if len(found) > _MOST_FILES:
        raise Problem(ProblemCode.UNEXPECTED_VALUE, f"VM {uuid} has {len(found)} files of state")
    return found


def _read(host: Host, base: str, path: str) -> StateFile:
    data, mode, owner = host.read_below(base, path, most=_MOST_BYTES)
    return StateFile(f"{base}/{path}", mode, owner, base64.b64encode(zlib.compress(data)).decode())


def _base_of(file: StateFile, uuid: str, order: StateOrder) -> str:
    """The folder that a file belongs to. Raises Problem `bad-name` for a path that is not this VM's."""
    folder, _, name = file.path.rpartition("/")
    if folder == NVRAM_FOLDER and name in order.nvram:
        return NVRAM_FOLDER
    own = f"{TPM_FOLDER}/{uuid}/"
    if not file.path.startswith(own):
        raise Problem(ProblemCode.BAD_NAME, f"{file.path!r} is no file of VM {uuid}")
    _check(_TPM_FILE, file.path[len(own) :])
    return TPM_FOLDER


def _content(file: StateFile) -> bytes:
    try:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(base64.b64decode(file.data, validate=True), _MOST_BYTES)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise Problem(ProblemCode.BAD_REQUEST, f"the content of {file.path} cannot be unpacked: {error}") from error
    if not unpacking.eof:
        raise Problem(ProblemCode.BAD_REQUEST, f"the content of {file.path} is cut off, or larger than {_MOST_BYTES}")
    return data


def _write(host: Host, file: StateFile, data: bytes) -> None:
    try:
        owner = host.user_id(file.owner)
    except Problem:
        owner = 0  # another distribution names QEMU's user otherwise; libvirt gives the file to it at the start
    host.put_file(file.path, data, file.mode & 0o777, owner=owner)
    if file.path.startswith(f"{TPM_FOLDER}/"):
        host.close_folder(file.path.rpartition("/")[0], owner=owner)


def _remove(host: Host, uuid: str, nvram: Tuple[str, ...]) -> List[str]:
    """Overwrite the files, then remove them with all else that the VM has there."""
    try:
        paths = _paths(host, uuid, nvram)
    except Problem:
        paths = []  # more files than a TPM has: they are removed, and not looked at
    for base, path in paths:
        host.overwrite(base, path)
    removed = [f"{NVRAM_FOLDER}/{name}" for name in nvram if host.remove_file(f"{NVRAM_FOLDER}/{name}")]
    folder = f"{TPM_FOLDER}/{uuid}"
    return removed + ([folder] if host.remove_folder(folder) else [])


def _check(pattern: "re.Pattern[str]", name: str) -> None:
    if not pattern.fullmatch(name):
        raise Problem(ProblemCode.BAD_NAME, f"{name!r} is no name of a file of UEFI variables or of a TPM")
