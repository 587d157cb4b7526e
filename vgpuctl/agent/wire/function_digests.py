# SPDX-License-Identifier: Apache-2.0
"""Digests of network functions: what a host keeps of one, and how it is compared. Python 3.9, standard library only."""

import json

from vgpuctl.agent.wire.decode import to_json
from vgpuctl.agent.wire.network_function import FOLDER, FunctionFile, FunctionManifest, NetworkFunction, sha256_of
from vgpuctl.agent.wire.values import replace


def digest_of(function: NetworkFunction) -> str:
    """Return a digest of everything that a function is: equal digests, equal functions."""
    return sha256_of(json.dumps(to_json(function), sort_keys=True))


def file_digest(file: FunctionFile) -> str:
    """Return the SHA-256 of a file's content."""
    return sha256_of(file.content)


def folder_of_files(name: str, function: NetworkFunction) -> str:
    """Return the folder for exactly these files: another content is in another folder."""
    words = [[one.name, one.content, one.is_secret, one.owner] for one in function.files]
    return f"{FOLDER}/{name}/files-{sha256_of(json.dumps(words))[:16]}"


def manifest_of(name: str, function: NetworkFunction) -> FunctionManifest:
    """Return what the host keeps of a function."""
    bare = replace(function, files=tuple(replace(one, content="") for one in function.files))
    digests = tuple(map(file_digest, function.files))
    return FunctionManifest(bare, digest_of(function), digests, folder_of_files(name, function))
