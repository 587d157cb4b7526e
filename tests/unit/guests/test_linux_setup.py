# SPDX-License-Identifier: Apache-2.0
"""The script that sets a Linux guest up for its GPU: its variables, and which guests have it.

tests/boot/guest_driver_proof.py runs it in a real guest.
"""

import base64
import re
import subprocess
from dataclasses import replace

import pytest

from tests.unit.guests.cases import REQUEST, vm
from vgpuctl.guests.seed.image import seed_files
from vgpuctl.guests.seed.linux_setup import feature_type, linux_setup, signed_repository
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.licence import Edition
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit

DRIVER = GuestDriver(
    DriverSource.PACKAGES,
    version="580",
    repository="deb https://packages.example stable main",
    key="-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAA'A$(touch x)`\n",
    package="nvidia-driver",
    toolkit=True,
)
TOKEN = CloudInit(licence_token=SecretText.of(base64.b64encode(b"secret").decode()))


def _script(driver: GuestDriver, cloud_init: CloudInit = TOKEN) -> str:
    script = linux_setup(cloud_init, replace(REQUEST, guest_driver=driver))
    assert script is not None
    return script


def _variable(script: str, name: str) -> str:
    """The value that a shell sees."""
    head = script[: script.index("STATE=/")]
    return subprocess.run(
        ["sh", "-c", f'{head}\nprintf %s "${name}"'], capture_output=True, text=True, check=True, timeout=10
    ).stdout


@pytest.mark.parametrize("source", [source for source in DriverSource if source is not DriverSource.WINDOWS])
def test_it_is_a_script_of_a_posix_shell(source: DriverSource) -> None:
    script = _script(replace(DRIVER, source=source))
    assert script.startswith("#!/bin/sh\n"), "cloud-init goes by the first line"
    checked = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False, timeout=10)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_shell_sees_the_values_as_they_are() -> None:
    script = _script(DRIVER)
    assert _variable(script, "KEY") == (DRIVER.key or "").strip()
    assert _variable(script, "PACKAGE") == "nvidia-driver"
    assert _variable(script, "TOOLKIT") == "yes"
    assert base64.b64decode(_variable(script, "TOKEN")) == b"secret"
    assert _variable(_script(replace(DRIVER, version=None)), "VERSION") == ""


@pytest.mark.parametrize(
    ("repository", "signed"),
    [
        ("deb https://a.example s m", "deb [signed-by=/etc/apt/keyrings/vgpuctl-driver.asc] https://a.example s m"),
        ("deb [arch=amd64] u s m", "deb [signed-by=/etc/apt/keyrings/vgpuctl-driver.asc arch=amd64] u s m"),
        ("deb [signed-by=/own.asc] u s m", "deb [signed-by=/own.asc] u s m"),
        ("https://a.example/rhel9", "https://a.example/rhel9"),
    ],
)
def test_a_line_for_apt_names_the_key(repository: str, signed: str) -> None:
    assert signed_repository(replace(DRIVER, repository=repository)) == signed
    assert signed_repository(replace(DRIVER, repository=repository, key=None)) == repository


def test_a_guest_without_driver_and_token_has_no_vendor_data() -> None:
    assert linux_setup(CloudInit(), REQUEST) is None
    assert "vendor-data" not in seed_files(CloudInit(hostname="a"), vm())


def test_a_user_with_lists_of_their_own_loses_nothing() -> None:
    own = "#cloud-config\nwrite_files: []\nruncmd: []\n"
    cloud_init = replace(TOKEN, user_data=SecretText.of(own))
    files = seed_files(cloud_init, vm(replace(REQUEST, guest_driver=DRIVER)))
    assert files["user-data"] == own
    assert files["vendor-data"].startswith("#!"), "lists of a cloud-config would be replaced by the user's"


def test_the_probe_comes_with_a_driver_and_not_with_a_token_alone() -> None:
    assert "/usr/local/lib/vgpuctl/probe" in _script(DRIVER)
    assert "/usr/local/lib/vgpuctl/probe" not in _script(GuestDriver())


def test_the_feature_type_is_for_whole_cards() -> None:
    whole = replace(REQUEST, gpus=(parse_gpu_request("passthrough"),), licence=Edition.VCS)
    assert feature_type(whole) == "4"
    assert feature_type(replace(whole, licence=Edition.VWS)) == "2"
    assert feature_type(replace(whole, gpus=(parse_gpu_request("A40-8Q"),))) == ""
    assert feature_type(replace(whole, licence=None)) == ""


def test_every_step_is_a_function_of_the_script() -> None:
    script = _script(DRIVER)
    steps = set(re.findall(r"\bstep [a-z]+ ([a-z_]+)", script)) - {"later"}
    assert steps == {
        "protect_seed", "files", "repository", "agent", "nouveau", "headers", "driver", "check", "licence", "hold",
        "toolkit", "mps",
    }  # fmt: skip
    assert all(f"\n{name}() {{\n" in script for name in steps)
