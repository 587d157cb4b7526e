# SPDX-License-Identifier: Apache-2.0
"""The seed of Windows guests: documents that cloudbase-init reads, and the script that sets the guest up for its GPU.

cloudbase-init's NoCloud service reads meta-data, user-data and network-config, and no vendor-data; so the script goes
in front of the user's document, in one MIME message. Source: cloudbase-init 1.1, userdata.rst and nocloudservice.py.
"""

import base64
import email
import json
import re
from collections.abc import Sequence
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

from vgpuctl.guests.seed.linux_setup import feature_type
from vgpuctl.guests.seed.network import SeededAddress, SeededInterface
from vgpuctl.guests.templating import render_template
from vgpuctl.model.vm import CloudInit, Vm, VmRequest
from vgpuctl.specs.user_data import is_windows_mime, windows_kind

SETUP_FILE = "vgpuctl.ps1"


def windows_user_data(cloud_init: CloudInit, vm: Vm, hostname: str) -> str:
    """Write user-data: the script of the GPU, then the user's document, or one that sets the host name."""
    if cloud_init.user_data is None:
        document = render_template("user-data-windows.j2", hostname=computer_name(hostname))
    else:
        document = cloud_init.user_data.reveal()
    script = windows_setup(cloud_init, vm.request)
    if script is None:
        return document
    message = MIMEMultipart(boundary=f"vgpuctl-{vm.uuid}")
    message.attach(_part(script, "x-shellscript", SETUP_FILE))
    if is_windows_mime(document):
        for part in email.message_from_string(document).walk():
            if not part.is_multipart():
                message.attach(part)
    else:
        kind = windows_kind(document)
        assert kind is not None, "specs/user_data.py accepted it"
        message.attach(_part(document, kind.subtype, kind.file))
    return message.as_string()


def _part(text: str, subtype: str, file: str) -> MIMEText:
    part = MIMEText(text, subtype, "utf-8")
    part.add_header("Content-Disposition", "attachment", filename=file)
    return part


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
        "interfaces": [_as_windows_writes_it(one, address) for one in interfaces for address in one.addresses],
    }
    # In base64, so that PowerShell finds nothing in it that it would read as its own.
    return render_template("guest-setup.ps1.j2", settings=base64.b64encode(json.dumps(settings).encode()).decode())


def _as_windows_writes_it(interface: SeededInterface, seeded: SeededAddress) -> dict[str, object]:
    address, _, length = seeded.text.partition("/")
    return {
        "mac_address": interface.mac_address.upper().replace(":", "-"),
        "address": address,
        "prefix_length": int(length),
        "gateway": seeded.gateway,
        "resolvers": list(interface.resolvers),
    }


def computer_name(hostname: str) -> str:
    """The host name as Windows takes it: 15 characters of letters, digits and dashes, and not digits alone."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", hostname.partition(".")[0])[:15].strip("-")
    return f"vm-{name}"[:15] if not name or name.isdigit() else name
