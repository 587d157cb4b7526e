# SPDX-License-Identifier: Apache-2.0
"""Linux boots in the VM, with busybox, and says on its console which GPU it sees.

`make test-boot` runs it: where the host is emulated, its guest is emulated twice, and Debian's kernel takes minutes.
tests/e2e/vm/test_tiny_guest.py has the same with a kernel of a few hundred bytes.
"""

import pytest

from tests.e2e.guest_console import sit_until
from tests.e2e.operator import Operator
from tests.e2e.witness import Witness

pytestmark = [pytest.mark.kernel_lab, pytest.mark.timeout(1400)]

# Left out is what takes Debian's kernel longest when it is emulated twice:
# self-tests of ciphers, certificates, kprobes, page checks.
ARGUMENTS = (
    "console=ttyS0 nokaslr tsc=reliable no_timer_check noreplace-smp mitigations=off cryptomgr.notests "
    "rodata=off initcall_blacklist=load_system_certificate_list,init_kprobe_trace,cubictcp_register"
)
CREATE = (
    "create-vm", "tiny", "--tenant", "acme", "--gpu", "A40-8Q", "--memory", "192MiB", "--vcpus", "1",
    "--kernel", "linux", "--initrd", "initramfs",
    "--kernel-args", ARGUMENTS, "--network", "none", "--wait",
)  # fmt: skip


def test_the_guests_own_console_lists_the_gpu(operator: Operator, witness: Witness) -> None:
    before = witness.state()
    operator.does("create-tenant", "acme")
    for name, kind, file in (("linux", "kernel", "vmlinux"), ("initramfs", "initrd", "initramfs")):
        place = ("--path", f"/run/lab/guest/{file}", "--kind", kind)
        operator.does("register-image", name, *place, "--format", "raw", "--host", "gpu1")
    operator.does(*CREATE)
    try:
        sit_until(operator, "tiny", "tiny guest: ready")
        log = str(operator.json("console", "tiny", "--tenant", "acme", "--log")["console"])
        seen = [line.split() for line in log.splitlines() if line.startswith("tiny guest: 0000")]
        gpus = [words for words in seen if words[3] == "0x10de"]
        assert [(words[4], words[5]) for words in gpus] == [("0x2235", "0x030200")]
    finally:
        operator.does("delete-vm", "tiny", "--tenant", "acme", "--yes", "--timeout", "0")
    assert witness.state() == before
