# SPDX-License-Identifier: Apache-2.0
"""The seed of Windows guests: what cloudbase-init knows, and the script of the GPU before the user's document.

tests/boot/cloudbase_proof.py has cloudbase-init's own parsers read the same seeds.
"""

import base64
import email
import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.unit.guests.cases import NETWORK, PORT, REQUEST, VM_UUID, vm
from vgpuctl.guests.seed.image import seed_files
from vgpuctl.guests.seed.windows_setup import computer_name
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.network import Attachment, mac_address
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit
from vgpuctl.specs.user_data import check_windows_user_data

DRIVER = GuestDriver(DriverSource.WINDOWS, version="580", url="https://files.example/driver.exe", sha256="0" * 64)
WINDOWS = replace(REQUEST, os="win11", network="default")
TOKEN = CloudInit(licence_token=SecretText.of(base64.b64encode(b"secret").decode()))


def settings_of(script: str) -> dict[str, Any]:
    """Read the settings that are written into a script."""
    encoded = script.split("FromBase64String('")[1].split("')", maxsplit=1)[0]
    settings: dict[str, Any] = json.loads(base64.b64decode(encoded))
    return settings


def _parts(user_data: str) -> list[tuple[str, str | None, str]]:
    message = email.message_from_string(user_data)
    payloads = [(part, part.get_payload(decode=True)) for part in message.walk() if not part.is_multipart()]
    return [(part.get_content_type(), part.get_filename(), bytes(data).decode()) for part, data in payloads]


def test_a_guest_without_driver_has_a_document_with_keys_that_cloudbase_init_knows() -> None:
    files = seed_files(CloudInit(hostname="web-1"), vm(WINDOWS))
    assert yaml.safe_load(files["user-data"]) == {"set_hostname": "web-1"}
    assert "vendor-data" not in files, "cloudbase-init reads none"
    check_windows_user_data(files["user-data"])


def test_the_network_config_is_of_version_1() -> None:
    files = seed_files(CloudInit(hostname="a"), vm(WINDOWS))
    physical = {"type": "physical", "name": "eth0", "mac_address": mac_address(VM_UUID), "subnets": [{"type": "dhcp"}]}
    assert yaml.safe_load(files["network-config"]) == {"version": 1, "config": [physical]}
    with_port = seed_files(CloudInit(hostname="a"), vm(WINDOWS), [Attachment(NETWORK, PORT)])
    (config,) = yaml.safe_load(with_port["network-config"])["config"]
    static = {"type": "static", "address": "10.0.0.7/24", "gateway": "10.0.0.1", "dns_nameservers": ["10.0.0.1"]}
    assert (config["mac_address"], config["subnets"]) == (PORT.mac_address, [static])


def test_the_script_comes_before_the_users_document() -> None:
    own = "#ps1_sysnative\nWrite-Output 'é'\n"
    cloud_init = replace(TOKEN, user_data=SecretText.of(own))
    request = replace(WINDOWS, guest_driver=DRIVER)
    user_data = seed_files(cloud_init, vm(request))["user-data"]
    assert "Content-Type: multipart" in user_data.split("\n\n")[0], "by this cloudbase-init knows a MIME message"
    (kind, name, script), second = _parts(user_data)
    assert (kind, name) == ("text/x-shellscript", "vgpuctl.ps1")
    assert second == ("text/x-shellscript", "user-data.ps1", own)
    settings = settings_of(script)
    assert settings["url"] == DRIVER.url
    assert base64.b64decode(settings["token"]) == b"secret"
    assert user_data == seed_files(cloud_init, vm(request))["user-data"], "equal bytes for equal input"


@pytest.mark.parametrize(
    ("document", "file"),
    [
        ("#ps1_x86\nls\n", "user-data"),
        ("<powershell>\nls\n</powershell>\n", "user-data"),
        ("#!/usr/bin/env bash\nls\n", "user-data.sh"),
        ("rem cmd\r\ndir\r\n", "user-data.cmd"),
    ],
)
def test_a_script_has_a_name_by_which_it_is_run_as_it_would_be_alone(document: str, file: str) -> None:
    cloud_init = replace(TOKEN, user_data=SecretText.of(document))
    _first, second = _parts(seed_files(cloud_init, vm(replace(WINDOWS, guest_driver=DRIVER)))["user-data"])
    assert second == ("text/x-shellscript", file, document)


def test_the_parts_of_the_users_message_come_after_the_script() -> None:
    own = (
        "Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\n--b\nContent-Type: text/x-shellscript\n"
        'Content-Disposition: attachment; filename="a.ps1"\n\n#ps1\nls\n--b\nContent-Type: text/cloud-config\n\n'
        "#cloud-config\nset_hostname: a\n--b--\n"
    )
    cloud_init = replace(TOKEN, user_data=SecretText.of(own))
    files = seed_files(cloud_init, vm(replace(WINDOWS, guest_driver=DRIVER)))
    kinds = [(kind, name) for kind, name, _text in _parts(files["user-data"])]
    assert kinds == [
        ("text/x-shellscript", "vgpuctl.ps1"), ("text/x-shellscript", "a.ps1"), ("text/cloud-config", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("hostname", "name"),
    [
        ("web-1", "web-1"),
        ("a-name-that-is-long.example", "a-name-that-is"),
        ("a_b", "a-b"),
        ("123", "vm-123"),
        ("...", "vm-"),
    ],
)
def test_windows_takes_15_characters_as_its_name(hostname: str, name: str) -> None:
    assert computer_name(hostname) == name
