# SPDX-License-Identifier: Apache-2.0
"""An authority with certificates of a server and of clients, made by openssl."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Authority:
    """An authority of the test's own. folder: with all files, NAME.key and NAME.pem."""

    folder: Path
    name: str = "ca"

    @property
    def certificate(self) -> Path:
        """The authority's certificate."""
        return self.folder / f"{self.name}.pem"

    def issue(self, name: str, subject: str, alternative: str = "IP:127.0.0.1") -> tuple[Path, Path]:
        """Issue a certificate. Returns the files of its key and itself. alternative: as openssl writes it."""
        key, request, made = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n")
        _openssl("req", *_NEW, "-subj", f"/CN={subject}", "-keyout", key, "-out", request)
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.folder / f"{self.name}.key"),
            *("-CAcreateserial", "-days", "9", "-extfile", extensions, "-out", made),
        )
        return key, made


def make_authority(folder: Path, name: str = "ca") -> Authority:
    """Make an authority in a folder."""
    made = Authority(folder, name)
    key = folder / f"{name}.key"
    _openssl("req", "-x509", *_NEW, "-days", "9", "-subj", f"/CN={name}", "-keyout", key, "-out", made.certificate)
    return made


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
