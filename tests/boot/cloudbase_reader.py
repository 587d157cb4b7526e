# SPDX-License-Identifier: Apache-2.0
"""Let cloudbase-init's own code read the files of a seed, and print what it makes of them. It runs in its environment.

Only what needs Windows is left out: to find the drive, and to run what it found.
"""

import json
import pathlib
import sys
import tempfile
from typing import Any

from cloudbaseinit.metadata.services.nocloudservice import NoCloudConfigDriveService  # type: ignore[import-not-found]
from cloudbaseinit.plugins.common import userdatautils  # type: ignore[import-not-found]
from cloudbaseinit.plugins.common.userdata import UserDataPlugin  # type: ignore[import-not-found]
from cloudbaseinit.plugins.common.userdataplugins import factory  # type: ignore[import-not-found]
from cloudbaseinit.plugins.common.userdataplugins.cloudconfigplugins import (  # type: ignore[import-not-found]
    factory as keys,
)


def _read(folder: str) -> dict[str, Any]:
    service = NoCloudConfigDriveService()
    service._metadata_path = folder
    user_data = service.get_decoded_user_data()
    network = service.get_network_details_v2()
    return {
        "instance_id": service.get_instance_id(),
        "host_name": service.get_host_name(),
        "public_keys": service.get_public_keys(),
        "links": [[one.name, one.mac_address, one.mtu] for one in network.links],
        "networks": [
            [one.address_cidr, one.dns_nameservers, [r.gateway for r in one.routes]] for one in network.networks
        ],
        "parts": _parts(user_data),
        "cloud_config_keys": list(keys.PLUGINS),
    }


def _parts(user_data: bytes) -> list[list[str]]:
    """Name for each part its plugin, or for a script its interpreter."""
    if "Content-Type: multipart" not in UserDataPlugin._get_headers(user_data):
        command = userdatautils.get_command(user_data)
        kind = "cloud-config" if user_data.startswith(b"#cloud-config") else type(command).__name__
        return [[kind, user_data.decode()]]
    plugins, found = factory.load_plugins(), []
    for part in UserDataPlugin._parse_mime(user_data):
        if part.is_multipart() or part.get_content_type() not in plugins:
            continue
        content = part.get_payload(decode=True)
        handler = type(plugins[part.get_content_type()]).__name__
        if handler == "ShellScriptPlugin":
            path = pathlib.Path(tempfile.mkdtemp()) / part.get_filename()
            path.write_bytes(content)
            handler = type(userdatautils.get_command_from_path(str(path))).__name__
        found.append([handler, content.decode()])
    return found


if __name__ == "__main__":
    json.dump(_read(sys.argv[1]), sys.stdout)
