# SPDX-License-Identifier: Apache-2.0
"""paramiko is loaded without `invoke`, which vgpuctl never uses and which takes a third of the import."""

import subprocess
import sys


def test_paramiko_is_loaded_without_invoke_which_others_can_still_import() -> None:
    program = (
        "import sys; from vgpuctl.hosts.quiet_paramiko import load_paramiko; load_paramiko(); import paramiko; "
        "print('invoke' in sys.modules); import invoke; print(invoke.__name__, paramiko.Transport.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "invoke", "Transport"]
