# SPDX-License-Identifier: Apache-2.0
"""SSH keys and documents of users for the seed, refused where cloud-init would ignore them."""

import base64
import binascii
import re

from vgpuctl.errors import UsageError

_KEY = re.compile(
    r"(?P<kind>ssh-(?:rsa|ed25519)|ecdsa-sha2-nistp(?:256|384|521)|sk-[a-z0-9@.-]+) (?P<data>[A-Za-z0-9+/]+=*)(?: .*)?"
)
_NOT_IN_KEY = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
# First lines cloud-init knows (doc/rtd/explanation/format.rst).
_USER_DATA_STARTS = (
    "#cloud-config",
    "#!",
    "#include",
    "#cloud-boothook",
    "#part-handler",
    "## template: jinja",
    "Content-Type: multipart",
    "MIME-Version:",
)


def check_ssh_key(key: str) -> str:
    """Accept one line of an authorized_keys file without options. Raises UsageError; a private key is not repeated."""
    stripped = key.strip()
    if "PRIVATE KEY" in stripped:
        raise UsageError("an SSH key is a private key", hint="give the public key, the file that ends in .pub")
    match = _KEY.fullmatch(stripped)
    if match is None:
        raise UsageError(
            f"the SSH key {stripped[:40]!a} is no public key",
            hint="a key is one line such as `ssh-ed25519 AAAA... name`",
        )
    if _NOT_IN_KEY.search(stripped):
        raise UsageError(f"the SSH key {stripped[:40]!a} contains a control character or half a character")
    try:
        data = base64.b64decode(match["data"], validate=True)
    except binascii.Error as broken:
        raise UsageError(f"the SSH key {stripped[:40]!a} is cut or changed: {broken}") from broken
    # RFC 4253, section 6.6: the blob repeats its kind as a string with a length of four bytes.
    kind = match["kind"].encode()
    if data[: 4 + len(kind)] != len(kind).to_bytes(4, "big") + kind:
        raise UsageError(f"the SSH key {stripped[:40]!a} says {match['kind']}, its data says otherwise")
    return stripped


def check_user_data(document: str) -> None:
    """Accept a document whose first line cloud-init acts on; on others it only logs a warning. Raises UsageError."""
    if not document.startswith(_USER_DATA_STARTS):
        raise UsageError(
            "user-data starts with a line which cloud-init ignores",
            hint="the first line must be `#cloud-config`, or `#!` and an interpreter for a script",
        )
    if document.startswith("#cloud-config"):
        check_yaml(document, what="user-data")


def check_yaml(document: str, *, what: str) -> None:
    """Refuse what no YAML parser takes: tabs as indentation, control characters."""
    for number, line in enumerate(document.splitlines(), start=1):
        if re.match(r" *\t+ *[^\s#]", line):
            raise UsageError(
                f"{what} line {number} is indented with a tab, which YAML does not allow", hint="use spaces"
            )
        if re.search(r"[\x00-\x08\x0e-\x1f\x7f]", line):
            raise UsageError(f"{what} line {number} contains a control character")
