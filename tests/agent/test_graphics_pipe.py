# SPDX-License-Identifier: Apache-2.0
"""The program that opens a guest's display on its host, as the host's Python gets it: as text, with real libvirt."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from vgpuctl.agent import graphics_pipe

SOURCE = Path(graphics_pipe.__file__).read_text()
# The domain that libvirt's test driver has from the start.
TEST_DOMAIN = "6695eb01-f6a4-8304-79aa-97f2502e193f"


@pytest.mark.parametrize(
    ("uri", "uuid", "said"),
    [
        ("qemu+unix:///system?socket=/nonexistent&mode=legacy", TEST_DOMAIN, "cannot connect to libvirt: "),
        ("test:///default", TEST_DOMAIN.replace("6695", "6696"), "cannot find the domain 6696eb01"),
        ("test:///default", TEST_DOMAIN, "cannot open the display: this function is not supported"),
    ],
)
def test_it_says_in_one_line_what_libvirt_answered(uri: str, uuid: str, said: str) -> None:
    argv = [sys.executable, "-I", "-S", "-c", SOURCE, uri, uuid, "0"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


def test_both_directions_are_copied_whole_until_the_server_ends() -> None:
    """More goes each way than any buffer holds, while the reader of the other side is slow."""
    server, theirs = socket.socketpair()
    copying = f"import socket\n{SOURCE.partition('if __name__')[0]}\ncopy(socket.socket(fileno={theirs.fileno()}))"
    given, taken = os.urandom(5 << 20), os.urandom(3 << 20)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", copying],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()],
    )  # fmt: skip
    theirs.close()
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None

    def write() -> None:
        stdin.write(taken)
        stdin.flush()

    writer = threading.Thread(target=write)
    writer.start()

    def answer() -> None:
        received = b""
        while len(received) < len(taken):
            received += server.recv(1 << 20)
        assert received == taken
        server.sendall(given)
        server.close()

    answering = threading.Thread(target=answer)
    answering.start()
    assert stdout.read() == given
    for thread in (writer, answering):
        thread.join(20)
    stdin.close()
    assert process.wait(20) == 0
