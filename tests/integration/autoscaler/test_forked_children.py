# SPDX-License-Identifier: Apache-2.0
"""libvirt forks in the process that serves: gRPC is not to start its threads in such a child."""

import os
import subprocess
import sys

_SERVES_AND_FORKS = """
import ctypes, os, socket, time
from vgpuctl.autoscaler.server import serving
with serving({}, "127.0.0.1", 0, None) as port, socket.create_connection(("127.0.0.1", port)):
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        time.sleep(0.5)
        os.write(1, str(len(os.listdir("/proc/self/task"))).encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_child_that_a_library_forks_has_one_thread_and_a_silent_stderr() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    command = (sys.executable, "-c", _SERVES_AND_FORKS)
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("1", "", 0)
