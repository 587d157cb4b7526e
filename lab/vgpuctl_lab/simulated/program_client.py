# SPDX-License-Identifier: Apache-2.0
"""A program of a simulated host, as a login on it starts it: the program server runs it with this one's streams.

`lab up` copies it to `bin/` under the name of each program. It imports modules written in C alone: Python's own start
is nearly all that it costs.
"""

import _socket
import marshal
import os
import sys


def main() -> None:
    """Hand over arguments, environment, folder and streams, and end as the program does there."""
    host = os.environ["VGPUCTL_SIMULATED_HOST"]
    # Through /proc, because a socket's path has at most 107 bytes.
    folder = os.open(os.path.dirname(os.path.dirname(host)), os.O_PATH | os.O_DIRECTORY)  # noqa: PTH120 - pathlib is slow to load
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        server.connect(f"/proc/self/fd/{folder}/programs.sock")
        request = marshal.dumps((sys.argv, dict(os.environ), os.getcwd()))  # noqa: PTH109
        streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
        server.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
        server.recv(16)
        code = int(server.recv(16) or b"255")
    except OSError as error:
        sys.exit(f"{sys.argv[0]}: the lab daemon runs no programs: {error.strerror}")
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
