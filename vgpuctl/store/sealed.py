# SPDX-License-Identifier: Apache-2.0
"""Secrets that the store keeps, encrypted with a key file that lies outside of it.

A VM's own row keeps digests only: its documents went into its seed. A queued VM has no seed yet, and another process
will make it, so its documents wait in the store. The token of a licence pool goes into the seeds of VMs to come, and
the keys of VPN connections onto the hosts that carry their tunnels.
Source of the format: the Fernet specification (AES-128-CBC and HMAC-SHA256).
"""

import base64
import binascii
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vgpuctl.errors import StoreUnusable
from vgpuctl.local_files import write_new
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import VmRequest
from vgpuctl.trusted_files import NAMED_SECRET, opened

DOCUMENTS = ("user_data", "network_config")
"""The fields of CloudInit that are kept while a VM is queued. A licence token is never kept."""

Texts = Mapping[str, Mapping[str, str]]
"""VM name → field → content."""

_KEY_BYTES = 32
_MAKE_KEY = (
    "(umask 077; head -c 32 /dev/urandom | base64 >KEYFILE), and set VGPUCTL_KEY_FILE=KEYFILE for every operator"
)


class KeyFile:
    """The operator's key. path: None where there is none. makes_key: make the file when it is needed and missing."""

    def __init__(self, path: Path | None, *, makes_key: bool) -> None:
        self.path = path
        self._makes_key = makes_key
        self._lent: bytes | None = None

    def for_rehearsal(self) -> "KeyFile":
        """The same key; where it would be made, one that is gone with the rehearsal."""
        if self.path is None or not self._makes_key or self.path.exists():
            return self
        other = KeyFile(self.path, makes_key=False)
        other._lent = base64.urlsafe_b64encode(os.urandom(_KEY_BYTES))
        return other

    def content(self) -> bytes | None:
        """The key file as it is, for a backup; None where there is none. Raises StoreUnusable when it is unusable."""
        if self.path is None or not self.path.exists():
            return None
        return base64.b64encode(base64.urlsafe_b64decode(self._key(self.path))) + b"\n"

    def seal(self, texts: Texts, *, what: str = "user-data or network-config of a queued VM") -> str:
        """Encrypt documents. what: they, for the error. Raises StoreUnusable without a usable key."""
        from cryptography.fernet import Fernet

        if self.path is None:
            raise StoreUnusable(
                f"the store would keep {what}, and there is no key to encrypt it with",
                hint=f"make a key once: {_MAKE_KEY}",
            )
        return Fernet(self._key(self.path, makes_key=self._makes_key)).encrypt(json.dumps(texts).encode()).decode()

    def open(self, sealed: str, *, what: str = "the secret documents of a queued VM") -> Texts:
        """Decrypt documents. what: they, for the error.

        Raises StoreUnusable without a key, for another key and for a damaged row.
        """
        from cryptography.fernet import Fernet, InvalidToken

        if self.path is None:
            raise StoreUnusable(
                f"{what} cannot be read: it is encrypted, and there is no key",
                hint="set VGPUCTL_KEY_FILE to the key that it was encrypted with",
            )
        try:
            texts: Texts = json.loads(Fernet(self._key(self.path)).decrypt(sealed.encode()))
        except (InvalidToken, ValueError) as exc:
            raise StoreUnusable(
                f"{what} cannot be decrypted with the key in {self.path}",
                hint="set VGPUCTL_KEY_FILE to the key that it was encrypted with",
            ) from exc
        return texts

    def _key(self, path: Path, *, makes_key: bool = False) -> bytes:
        if self._lent is not None:
            return self._lent
        try:
            if makes_key:
                _make_key(path)
            with opened(path, NAMED_SECRET) as file:
                status = os.fstat(file.descriptor)
                content = file.read(4096)
        except OSError as exc:
            raise StoreUnusable(
                f"the key file {path} cannot be used: {exc.strerror}", hint=f"make a key once: {_MAKE_KEY}"
            ) from exc
        if not stat.S_ISREG(status.st_mode):
            raise StoreUnusable(f"the key file {path} is no regular file", hint=f"make a key once: {_MAKE_KEY}")
        try:
            key = base64.b64decode(content.strip(), altchars=b"-_" if b"-" in content or b"_" in content else None)
        except binascii.Error:
            key = b""
        if len(key) != _KEY_BYTES:
            raise StoreUnusable(
                f"the key file {path} does not hold {_KEY_BYTES} bytes in base64", hint=f"make a key once: {_MAKE_KEY}"
            )
        return base64.urlsafe_b64encode(key)


NO_KEY = KeyFile(None, makes_key=False)


def documents_of(requests: Sequence[VmRequest]) -> Texts:
    """The documents of requests whose content is at hand, by VM and field."""
    found: dict[str, dict[str, str]] = {}
    for request in requests:
        for field in DOCUMENTS:
            secret: SecretText | None = getattr(request.cloud_init, field)
            if secret is not None and secret.has_content():
                found.setdefault(request.name, {})[field] = secret.reveal()
    return found


def with_documents(request: VmRequest, texts: Texts) -> VmRequest:
    """The request with the documents that were sealed with it. Raises StoreUnusable when they are not its own."""
    changed: dict[str, Any] = {}
    for field, text in texts.get(request.name, {}).items():
        secret = SecretText.of(text)
        if field not in DOCUMENTS or getattr(request.cloud_init, field) != secret:
            raise StoreUnusable(
                f"the secret documents of queued VM {request.name} of tenant {request.tenant} are not its own",
                hint="somebody changed the row; take the VM out with `vgpuctl leave-queue` and queue it again",
            )
        changed[field] = secret
    return replace(request, cloud_init=replace(request.cloud_init, **changed)) if changed else request


def _make_key(path: Path) -> None:
    """Make the key file, for its owner alone and whole at once, unless it is there. Raises FileNotWritten."""
    if not path.exists():
        write_new(path, base64.b64encode(os.urandom(_KEY_BYTES)) + b"\n", "the key file of the store")
