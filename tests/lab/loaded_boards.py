# SPDX-License-Identifier: Apache-2.0
"""The emulated host's module, loaded for a while with other boards of few VFs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import vgpuctl_lab as lab
from tests.lab.kernel_cards import Do
from tests.lab_fixtures import KernelHost
from vgpuctl_lab.card_table import card_table

_LOAD = "set -e; rmmod vgpulab; insmod /run/lab/vgpulab.ko; cat {} >/proc/vgpulab/cards"
_OWN_CARDS = "/run/lab/cards"


@contextmanager
def loaded_boards(host: KernelHost, do: Do, shape: str, *, vfs: dict[int, int]) -> Iterator[str]:
    """The card table of a host of that shape; afterwards the host has its own cards again, without VFs.

    vfs: how many VFs the board on a bus has instead of its own, which takes less time.
    """
    do()
    table = card_table(lab.parse_host(shape))
    for bus, count in vfs.items():
        table = re.sub(rf"^(card 0000:{bus:02x}:.*) vfs=\d+ ", rf"\1 vfs={count} ", table, flags=re.MULTILINE)
    code, output, errors = host.run(f"cat >/tmp/boards <<'END'\n{table}END\n{_LOAD.format('/tmp/boards')}")
    assert code == 0, output + errors
    yield table
    do()
    code, output, errors = host.run(f"{_LOAD.format(_OWN_CARDS)}; cmp {_OWN_CARDS} /proc/vgpulab/cards")
    assert code == 0, output + errors
