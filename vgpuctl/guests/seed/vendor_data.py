# SPDX-License-Identifier: Apache-2.0
"""Several scripts of ours in one document of vendor-data, which cloud-init runs in the order of their names.

Source: cloud-init, doc/rtd/explanation/format.rst (MIME multi-part archive) and cloudinit/subp.py (runparts).
"""

import hashlib
from collections.abc import Mapping
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

SETUP_SCRIPT = "10-vgpuctl-guest-setup.sh"
JOIN_SCRIPT = "20-vgpuctl-node-join.sh"


def in_one_document(scripts: Mapping[str, str]) -> str | None:
    """Write scripts, by name, as one document: one script as it is, several as MIME parts; None for none.

    Equal scripts give equal text. When one ends with an error, cloud-init still runs those after it.
    """
    if len(scripts) < 2:
        return next(iter(scripts.values()), None)
    digest = hashlib.sha256("\0".join(scripts.values()).encode()).hexdigest()
    document = MIMEMultipart(boundary=f"=={digest[:40]}==")
    for name, text in scripts.items():
        part = MIMEText(text, "x-shellscript", "utf-8")
        part.add_header("Content-Disposition", "attachment", filename=name)
        document.attach(part)
    return document.as_string()
