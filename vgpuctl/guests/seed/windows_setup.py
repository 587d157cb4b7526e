# SPDX-License-Identifier: Apache-2.0
"""The seed of Windows guests: documents that cloudbase-init reads, and the script that sets the guest up for its GPU.

cloudbase-init's NoCloud service reads meta-data, user-data and network-config, and no vendor-data; so the script goes
in front of the user's document, in one MIME message. Source: cloudbase-init 1.1, userdata.rst and nocloudservice.py.
"""

import base64
import json
import re
from collections.abc import Sequence
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

from vgpuctl.errors import UsageError
from vgpuctl.guests.seed.documents import check_yaml
from vgpuctl.guests.seed.linux_setup import feature_type
from vgpuctl.guests.seed.network import SeededInterface
from vgpuctl.guests.templating import render_template
from vgpuctl.model.vm import CloudInit, Vm, VmRequest

SETUP_FILE = "vgpuctl.ps1"
# cloudbase-init, userdatautils.py and userdata.rst: the first line says what a document is.
_KINDS = (
    (re.compile(r"#cloud-config\s"), "cloud-config", "user-data.yaml"),
    (re.compile(r"#(ps1|ps1_sysnative|ps1_x86)\s"), "x-shellscript", "user-data.ps1"),
    (re.compile(r"rem\s+cmd\s"), "x-shellscript", "user-data.cmd"),
    (re.compile(r"#!\s*/usr/bin/env\s+python\s"), "x-shellscript", "user-data.py"),
)
# cloudbase-init, cloudconfigplugins/factory.py: it logs an error for any other key.
_KEYS = ("write_files", "set_timezone", "timezone", "set_hostname", "hostname", "ntp", "groups", "users", "runcmd")
_TOP_KEY = re.compile(r"(?P<key>[A-Za-z_][A-Za-z0-9_-]*)\s*:")


def windows_user_data(cloud_init: CloudInit, vm: Vm, hostname: str) -> str:
    """Write user-data: the script of the GPU, then the user's document or one that sets the host name.

    Raises UsageError for a document that cloudbase-init would ignore.
    """
    if cloud_init.user_data is None:
        document = render_template("user-data-windows.j2", hostname=computer_name(hostname))
    else:
        document = cloud_init.user_data.reveal()
    subtype, name = check_windows_user_data(document)
    script = windows_setup(cloud_init, vm.request)
    if script is None:
        return document
    message = MIMEMultipart(boundary=f"vgpuctl-{vm.uuid}")
    for text, kind, file in ((script, "x-shellscript", SETUP_FILE), (document, subtype, name)):
        part = MIMEText(text, kind, "utf-8")
        part.add_header("Content-Disposition", "attachment", filename=file)
        message.attach(part)
    return message.as_string()


def check_windows_user_data(document: str) -> tuple[str, str]:
    """Accept a document that cloudbase-init acts on. Returns its MIME subtype and a file name. Raises UsageError."""
    for start, subtype, name in _KINDS:
        if start.match(document):
            if subtype == "cloud-config":
                _check_cloud_config(document)
            return subtype, name
    raise UsageError(
        "user-data starts with a line which cloudbase-init ignores",
        hint="the first line must be `#cloud-config`, `#ps1_sysnative`, `rem cmd` or `#!/usr/bin/env python`",
    )


def _check_cloud_config(document: str) -> None:
    check_yaml(document, what="user-data")
    keys = [match["key"] for line in document.splitlines() if (match := _TOP_KEY.match(line))]
    unknown = [key for key in keys if key not in _KEYS]
    if unknown:
        raise UsageError(
            f"user-data has the key {unknown[0]!r}, which cloudbase-init does not know",
            hint=f"on Windows there are {', '.join(_KEYS)}",
        )


def windows_setup(
    cloud_init: CloudInit,
    request: VmRequest,
    *,
    account: str | None = None,
    interfaces: Sequence[SeededInterface] = (),
) -> str | None:
    """Write the script; None for a guest that needs none.

    account: the local administrator whose password it replaces, and interfaces: those to which it gives
    their addresses, both in an unattended installation.
    """
    driver, token = request.guest_driver, cloud_init.licence_token
    if not driver.is_wanted() and token is None and account is None:
        return None
    settings = {
        "source": str(driver.source),
        "version": driver.version,
        "url": driver.url,
        "sha256": driver.sha256,
        "token": None if token is None else token.reveal(),
        "feature_type": feature_type(request) or None,
        "account": account,
        "interfaces": [_as_windows_writes_it(one) for one in interfaces if one.address is not None],
    }
    # In base64, so that PowerShell finds nothing in it that it would read as its own.
    return render_template("guest-setup.ps1.j2", settings=base64.b64encode(json.dumps(settings).encode()).decode())


def _as_windows_writes_it(interface: SeededInterface) -> dict[str, object]:
    address, _, length = (interface.address or "").partition("/")
    return {
        "mac_address": interface.mac_address.upper().replace(":", "-"),
        "address": address,
        "prefix_length": int(length),
        "gateway": interface.gateway,
        "resolvers": list(interface.resolvers),
    }


def computer_name(hostname: str) -> str:
    """The host name as Windows takes it: 15 characters of letters, digits and dashes, and not digits alone."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", hostname.partition(".")[0])[:15].strip("-")
    return f"vm-{name}"[:15] if not name or name.isdigit() else name
