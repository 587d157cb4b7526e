# SPDX-License-Identifier: Apache-2.0
"""The cloud-init seed: a NoCloud image (volume id `cidata`), equal bytes for equal input.

The keys of `--ssh-key` go into meta-data as `public-keys`, which cloud-init adds to what user-data says; so
they reach the guest with any document the user brings, be it a cloud-config or a script, without touching it.
Source: cloud-init DataSourceNoCloud and config/cc_ssh.py.
"""

import base64
import binascii
import re

from vgpuctl.errors import UsageError
from vgpuctl.guests.iso_image import iso_image
from vgpuctl.guests.templating import render_template
from vgpuctl.model.network import Attachment, Backend, mac_address
from vgpuctl.model.vm import CloudInit, Vm

_KEY = re.compile(
    r"(?P<kind>ssh-(?:rsa|ed25519)|ecdsa-sha2-nistp(?:256|384|521)|sk-[a-z0-9@.-]+) (?P<data>[A-Za-z0-9+/]+=*)(?: .*)?"
)
_NOT_IN_KEY = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
# NVIDIA Virtual GPU Client Licensing User Guide: the client takes every .tok file of this folder.
LICENCE_TOKEN_PATH = "/etc/nvidia/ClientConfigToken/client_configuration_token.tok"
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


def seed_image(cloud_init: CloudInit, vm: Vm, attachment: Attachment | None = None) -> bytes:
    """Make the seed of one VM, with the address of its port where it has one.

    Raises UsageError for a key or document that cloud-init would ignore.
    """
    return iso_image(seed_files(cloud_init, vm, attachment), volume_id="cidata")


def seed_files(cloud_init: CloudInit, vm: Vm, attachment: Attachment | None = None) -> dict[str, str]:
    """Write the seed's files, by name; see seed_image."""
    keys = [check_ssh_key(key) for key in cloud_init.ssh_authorized_keys]
    hostname = cloud_init.hostname or vm.request.name
    if cloud_init.user_data is None:
        user_data = render_template("user-data.j2", hostname=hostname, ssh_authorized_keys=keys)
    else:
        user_data = cloud_init.user_data.reveal()
        check_user_data(user_data)
    files = {
        "meta-data": render_template("meta-data.j2", instance_id=vm.uuid, hostname=hostname, ssh_authorized_keys=keys),
        "user-data": user_data,
    }
    if cloud_init.licence_token is not None:
        files["vendor-data"] = render_template(
            "vendor-data.j2", path=LICENCE_TOKEN_PATH, content=cloud_init.licence_token.reveal()
        )
    if cloud_init.network_config is not None:
        network_config = cloud_init.network_config.reveal()
        _check_yaml(network_config, what="network-config")
        files["network-config"] = network_config
    elif attachment is not None:
        files["network-config"] = _port_config(attachment)
    elif vm.request.network is not None:
        files["network-config"] = render_template(
            "network-config.j2", mac_address=mac_address(vm.uuid), attachment=None
        )
    return files


def _port_config(attachment: Attachment) -> str:
    """The port's address, gateway and name servers: libvirt's gateway resolves names, OVN's does not."""
    network = attachment.network
    is_ovn = network.request.backend is Backend.OVN
    return render_template(
        "network-config.j2",
        mac_address=attachment.port.mac_address,
        attachment=attachment,
        resolvers=list(network.request.dns) or ([] if is_ovn else [network.gateway]),
        mtu=attachment.tunnel_mtu if is_ovn else None,
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
        _check_yaml(document, what="user-data")


def _check_yaml(document: str, *, what: str) -> None:
    """Refuse what no YAML parser takes: tabs as indentation, control characters."""
    for number, line in enumerate(document.splitlines(), start=1):
        if re.match(r" *\t+ *[^\s#]", line):
            raise UsageError(
                f"{what} line {number} is indented with a tab, which YAML does not allow", hint="use spaces"
            )
        if re.search(r"[\x00-\x08\x0e-\x1f\x7f]", line):
            raise UsageError(f"{what} line {number} contains a control character")
