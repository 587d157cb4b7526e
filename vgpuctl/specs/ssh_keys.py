# SPDX-License-Identifier: Apache-2.0
"""Public SSH keys as a line of `authorized_keys` holds them (sshd(8), "AUTHORIZED_KEYS FILE FORMAT")."""

import base64
import binascii
import re

from vgpuctl.errors import UsageError

_KINDS = r"ssh-(?:rsa|ed25519)|ecdsa-sha2-nistp(?:256|384|521)|sk-[a-z0-9@.-]+"
_KEY = re.compile(
    rf"(?:(?P<options>(?!(?:{_KINDS})[ \t])(?:[^\s\"]|\"(?:\\.|[^\"\\])*\")+)[ \t]+)?"
    rf"(?P<kind>{_KINDS})[ \t]+(?P<data>[A-Za-z0-9+/]+=*)(?:[ \t]+(?P<comment>.*))?"
)
_NOT_IN_KEY = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def parse_ssh_key(text: str, /, *, what: str = "SSH key") -> str:
    """Read one public key, with its options and comment if it has any, as one line with single spaces.

    Raises UsageError; a private key is not repeated.
    """
    stripped = text.strip()
    if "PRIVATE KEY" in stripped:
        raise UsageError(f"{what}: it is a private key", hint="give the public key, the file that ends in .pub")
    match = _KEY.fullmatch(stripped)
    if match is None:
        raise UsageError(
            f"{what}: {stripped[:40]!a} is no public key",
            hint="a key is one line such as `ssh-ed25519 AAAA... name`",
        )
    if _NOT_IN_KEY.search(stripped):
        raise UsageError(f"{what}: {stripped[:40]!a} contains a control character or half a character")
    try:
        data = base64.b64decode(match["data"], validate=True)
    except binascii.Error as broken:
        raise UsageError(f"{what}: {stripped[:40]!a} is cut or changed: {broken}") from broken
    # RFC 4253, section 6.6: the blob repeats its kind as a string with a length of four bytes.
    kind = match["kind"].encode()
    if data[: 4 + len(kind)] != len(kind).to_bytes(4, "big") + kind:
        raise UsageError(f"{what}: {stripped[:40]!a} says {match['kind']}, its data says otherwise")
    parts = (match["options"], match["kind"], match["data"], (match["comment"] or "").strip().replace("\t", " "))
    return " ".join(one for one in parts if one)


def lines_of_keys(text: str) -> list[str]:
    """The lines of an `authorized_keys` file that hold a key: without empty lines and comments."""
    if "PRIVATE KEY" in text:
        return [text]
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")] or [text]
