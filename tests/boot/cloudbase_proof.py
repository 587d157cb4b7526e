# SPDX-License-Identifier: Apache-2.0
"""cloudbase-init's own parsers read our seeds for Windows; `make test-guest`. No Windows image can be had for tests."""

import base64
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.guests.cases import NETWORK, PORT, VM_UUID, vm
from tests.unit.guests.test_windows_setup import DRIVER, TOKEN, WINDOWS, settings_of
from vgpuctl.guests.seed.image import seed_files
from vgpuctl.guests.seed.windows_setup import windows_setup
from vgpuctl.model.network import Attachment
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit
from vgpuctl.specs.user_data import _WINDOWS_KEYS

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGDQW0C9oeNpkDFrkDHTtAnbGUFhmBTvA2ZwOlYkVqMv me"
_HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def python() -> str:
    done = subprocess.run(
        [str(_HERE.parents[1] / "scripts/cloudbase-init")], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _read(python: str, folder: Path, cloud_init: CloudInit, **changes: Any) -> dict[str, Any]:
    for name, text in seed_files(cloud_init, vm(replace(WINDOWS, **changes)), [Attachment(NETWORK, PORT)]).items():
        (folder / name).write_bytes(text.encode())
    argv = [python, str(_HERE / "cloudbase_reader.py"), str(folder)]
    read: dict[str, Any] = json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout)
    return read


def test_it_reads_the_seed_of_a_guest_without_a_driver(python: str, tmp_path: Path) -> None:
    read = _read(python, tmp_path, CloudInit(ssh_authorized_keys=(KEY,), hostname="web-1"))
    assert (read["instance_id"], read["host_name"], read["public_keys"]) == (VM_UUID, "web-1", [KEY])
    assert read["links"] == [["eth0", PORT.mac_address, None]]
    assert read["networks"] == [["10.0.0.7/24", ["10.0.0.1"], ["10.0.0.1"]]]
    assert read["parts"] == [["cloud-config", '#cloud-config\nset_hostname: "web-1"\n']]
    assert set(read["cloud_config_keys"]) == set(_WINDOWS_KEYS)


@pytest.mark.parametrize(
    ("document", "handler"),
    [
        ("#cloud-config\nset_timezone: Europe/Zurich\n", "CloudConfigPlugin"),
        ("#ps1_sysnative\nWrite-Output 'é'\n", "PowershellSysnative"),
        ("rem cmd\ndir\n", "Shell"),
    ],
)
def test_it_runs_the_script_of_the_gpu_and_then_the_users_document(
    python: str, tmp_path: Path, document: str, handler: str
) -> None:
    cloud_init = replace(TOKEN, user_data=SecretText.of(document))
    read = _read(python, tmp_path, cloud_init, guest_driver=DRIVER)
    (first, script), second = read["parts"]
    assert first == "PowershellSysnative"
    assert base64.b64decode(settings_of(script)["token"]) == b"secret"
    assert second == [handler, document]


def test_the_script_of_the_gpu_is_powershell(python: str, tmp_path: Path) -> None:
    script = windows_setup(TOKEN, replace(WINDOWS, guest_driver=DRIVER), account="admin")
    assert script is not None
    (tmp_path / "setup.ps1").write_text(script)
    argv = [python, str(_HERE / "powershell_reader.py"), str(tmp_path / "setup.ps1")]
    assert subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout == ""
