# SPDX-License-Identifier: Apache-2.0
"""Certificates that sign themselves."""

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str, subject: str) -> None:
    """A certificate that signs itself, for 127.0.0.1."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9",
         "-subj", f"/CN={subject}", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
