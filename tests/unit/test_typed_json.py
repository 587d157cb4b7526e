# SPDX-License-Identifier: Apache-2.0
"""Kinds that several threads decode for the first time at once."""

import subprocess
import sys

import pytest

ALL_AT_ONCE = """
import sys, threading
sys.setswitchinterval(1e-6)
{imports}
begin = threading.Barrier(8)
answers = []

def decode():
    begin.wait()
    answers.append({decode})

threads = [threading.Thread(target=decode) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(answers) == 8 and all(answer == answers[0] for answer in answers)
print("all the same")
"""
CATALOGUE = (
    "from vgpuctl import typed_json\n"
    "from vgpuctl.catalog.entries import CatalogFile\n"
    "from vgpuctl.catalog.lookup import _FILE\n"
    "text = _FILE.read_bytes()",
    "typed_json.decode(text, CatalogFile)",
)
REQUEST = (
    "from vgpuctl.model.vm import VmRequest\n"
    "from vgpuctl.store import codec\n"
    "text = codec.encode(VmRequest('web-1', 'acme', (), 1, 96, network=None))",
    "codec.decode_request(text, codec.REQUEST_VERSION, what='a VM')",
)


@pytest.mark.parametrize(("imports", "decode"), [CATALOGUE, REQUEST], ids=["catalogue", "request"])
def test_threads_that_decode_a_kind_for_the_first_time_all_get_it(imports: str, decode: str) -> None:
    """msgspec alone ends the whole process with SIGSEGV here, so the test has a process of its own."""
    program = ALL_AT_ONCE.format(imports=imports, decode=decode)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "all the same\n"), done.stderr
