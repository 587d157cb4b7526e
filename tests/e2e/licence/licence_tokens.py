# SPDX-License-Identifier: Apache-2.0
"""Client configuration tokens for tests, made as an operator's lab makes them."""

from pathlib import Path

from vgpuctl_lab.licence_token import licence_token


def token_file(folder: Path, server: str, *, mode: int = 0o600) -> Path:
    """Write a token of a server to a file of its own."""
    return written(folder / f"{server}.tok", licence_token(server), mode=mode)


def written(path: Path, token: str, *, mode: int = 0o600) -> Path:
    """Write a token as its owner has it."""
    path.write_text(token + "\n")
    path.chmod(mode)
    return path
