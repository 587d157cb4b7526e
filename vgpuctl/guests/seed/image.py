# SPDX-License-Identifier: Apache-2.0
"""The seed: a NoCloud image (volume id `cidata`), for cloud-init, cloudbase-init and installers.

It has equal bytes for equal input. The answers of an unattended installation are an image of their own, which leaves
with the first run of the VM; those for Windows Setup have a new password each time.
The keys of `--ssh-key` go into meta-data as `public-keys`, which cloud-init adds to what user-data says; so
they reach the guest with any document the user brings, be it a cloud-config or a script, without touching it.
Source: cloud-init DataSourceNoCloud and config/cc_ssh.py."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

from vgpuctl.catalog.guest_os import is_windows
from vgpuctl.guests.seed.answers import ubuntu_answers, windows_answers, windows_first_logon
from vgpuctl.guests.seed.iso_image import iso_image
from vgpuctl.guests.seed.linux_setup import linux_setup
from vgpuctl.guests.seed.network import network_document
from vgpuctl.guests.seed.windows_setup import windows_user_data
from vgpuctl.guests.templating import render_template
from vgpuctl.model.network import Attachment
from vgpuctl.model.vm import CloudInit, Vm
from vgpuctl.node_config.join.files import NodeFile
from vgpuctl.node_config.join.setup import NodeSetup


# The script that lets a guest join its cluster. It holds the join secrets, and is nowhere but in the seed.
def node_script(setup: NodeSetup) -> str:
    """Write the script. It runs once in a guest's life, after the script of its GPU and before those of user-data."""
    return render_template("node-join.sh.j2", setup=replace(setup, files=tuple(map(_as_base64, setup.files))))


def _as_base64(file: NodeFile) -> NodeFile:
    if file.is_base64:
        return file
    return replace(file, content=base64.b64encode(file.content.encode()).decode(), is_base64=True)


# Several scripts of ours in one document of vendor-data, which cloud-init runs in the order of their names.
#
# Source: cloud-init, doc/rtd/explanation/format.rst (MIME multi-part archive) and cloudinit/subp.py (runparts).
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


def seed_image(
    cloud_init: CloudInit, vm: Vm, attachments: Sequence[Attachment] = (), join: NodeSetup | None = None
) -> bytes:
    """Make the seed of one VM, with the addresses of its ports where it has some. join: of a node of a cluster.

    Keys and documents of users were accepted with the request (specs/ssh_keys.py, specs/user_data.py).
    """
    return iso_image(seed_files(cloud_init, vm, attachments, join), volume_id="cidata")


def seed_files(
    cloud_init: CloudInit, vm: Vm, attachments: Sequence[Attachment] = (), join: NodeSetup | None = None
) -> dict[str, str]:
    """Write the seed's files, by name; see seed_image."""
    keys = list(cloud_init.ssh_authorized_keys)
    hostname = cloud_init.hostname or vm.request.name
    files = {"meta-data": _meta_data(vm, hostname, keys)}
    install = vm.request.install
    if not is_windows(vm.request.os):
        files |= _cloud_init_files(cloud_init, vm, hostname, keys, join)
    elif install is not None and install.unattended:
        files |= windows_first_logon(cloud_init, vm, attachments)
    else:
        files["user-data"] = windows_user_data(cloud_init, vm, hostname)
    return files | _network_files(cloud_init, vm, attachments)


def answers_image(cloud_init: CloudInit, vm: Vm, attachments: Sequence[Attachment] = ()) -> bytes:
    """Make the medium of the answers for an installer. Ubuntu's finds them in a seed, Windows Setup on any medium."""
    volume_id = "answers" if is_windows(vm.request.os) else "cidata"
    return iso_image(answers_files(cloud_init, vm, attachments), volume_id=volume_id)


def answers_files(cloud_init: CloudInit, vm: Vm, attachments: Sequence[Attachment] = ()) -> dict[str, str]:
    """Write the files of the answers, by name; see answers_image."""
    keys = list(cloud_init.ssh_authorized_keys)
    files = {"meta-data": _meta_data(vm, cloud_init.hostname or vm.request.name, keys)}
    if is_windows(vm.request.os):
        return files | windows_answers(cloud_init, vm)
    files["user-data"] = ubuntu_answers(cloud_init, vm, keys)
    return files | _network_files(cloud_init, vm, attachments)


def _meta_data(vm: Vm, hostname: str, keys: list[str]) -> str:
    return render_template("meta-data.j2", instance_id=vm.uuid, hostname=hostname, ssh_authorized_keys=keys)


def _network_files(cloud_init: CloudInit, vm: Vm, attachments: Sequence[Attachment]) -> dict[str, str]:
    network = network_document(cloud_init, vm, attachments)
    return {} if network is None else {"network-config": network}


def _cloud_init_files(
    cloud_init: CloudInit, vm: Vm, hostname: str, keys: list[str], join: NodeSetup | None
) -> dict[str, str]:
    if cloud_init.user_data is None:
        user_data = render_template("user-data.j2", hostname=hostname, ssh_authorized_keys=keys)
    else:
        user_data = cloud_init.user_data.reveal()
    scripts = {SETUP_SCRIPT: linux_setup(cloud_init, vm.request), JOIN_SCRIPT: join and node_script(join)}
    vendor_data = in_one_document({name: text for name, text in scripts.items() if text})
    return {"user-data": user_data} | ({} if vendor_data is None else {"vendor-data": vendor_data})
