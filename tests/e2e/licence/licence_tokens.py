# SPDX-License-Identifier: Apache-2.0
"""Client configuration tokens for tests, made as an operator's lab makes them."""

from pathlib import Path

from vgpuctl_lab.licence_token import licence_token


def token_file(folder: Path, server: str, *, mode: int = 0o600) -> Path:
    """Write a token of a server to a file of its own."""
    path = folder / f"{server}.tok"
    path.write_text(licence_token(server) + "\n")
    path.chmod(mode)
    return path
