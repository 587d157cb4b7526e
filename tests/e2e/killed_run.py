# SPDX-License-Identifier: Apache-2.0
"""Run `vgpuctl` and kill -9 it right after a side effect; told by argv: which, then vgpuctl's arguments.

Which is a number, the n-th side effect of all, or a name, the first return of that function.

The interpreter's own profile hook watches the product's functions return; the product is not changed for it.
With 0 nothing is killed and the side effects are counted; the count is the last line of stderr.
"""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

SIDE_EFFECTS = {
    ("vgpuctl/hosts/agent_client.py", "apply"),
    ("vgpuctl/guests/hypervisor.py", "define"),
    ("vgpuctl/guests/hypervisor.py", "destroy"),
    ("vgpuctl/guests/hypervisor.py", "set_autostart"),
    ("vgpuctl/guests/hypervisor.py", "shutdown"),
    ("vgpuctl/guests/hypervisor.py", "start"),
    ("vgpuctl/guests/hypervisor.py", "undefine"),
    ("vgpuctl/guests/networks.py", "ensure"),
    ("vgpuctl/guests/networks.py", "remove"),
    ("vgpuctl/ovn/northbound.py", "apply"),
    ("vgpuctl/guests/storage.py", "delete_volume"),
    ("vgpuctl/guests/storage.py", "ensure_disk"),
    ("vgpuctl/guests/storage.py", "ensure_overlay"),
    ("vgpuctl/guests/storage.py", "upload"),
    ("vgpuctl/store/store.py", "transaction"),
}


def main() -> int:
    """Run one command line, killed where argv says."""
    wanted, arguments = sys.argv[1], sys.argv[2:]
    from vgpuctl.cli.main import run

    seen = 0
    main_thread = threading.main_thread()

    def watch(frame: FrameType, event: str, value: Any) -> None:
        nonlocal seen
        if event != "return" or threading.current_thread() is not main_thread:
            return
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if not any(path.endswith(file) and name == function for file, function in SIDE_EFFECTS):
            return
        # A generator that only hands out its value has not done its work yet: a transaction commits at its end.
        if name == "transaction" and value is not None:
            return
        seen += 1
        if wanted in (str(seen), name):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)
    code = run(arguments)
    sys.setprofile(None)
    sys.stderr.write(f"{seen}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
