# SPDX-License-Identifier: Apache-2.0
"""A disk whose boot sector says one line on the serial console and halts: a guest that costs the host nothing.

A guest without anything to boot spins in its firmware; emulated inside an emulated host, that is a third of a CPU.
"""

SIZE_BYTES = 1 << 20
_SECTOR_BYTES = 512
_LOADED_AT = 0x7C00  # where a PC's firmware puts the boot sector
_LINE = b"vgpuctl lab guest: started, halting\r\n\0"

_CODE_BEFORE_MESSAGE = bytes.fromhex(
    "31c0"  # xor ax, ax
    "8ed8"  # mov ds, ax
    "be0000"  # mov si, message (filled in below)
    "baf803"  # mov dx, 0x3f8, the first serial port
    "ac"  # next: lodsb
    "84c0"  # test al, al
    "7403"  # jz halt
    "ee"  # out dx, al
    "ebf8"  # jmp next
    "fa"  # halt: cli
    "f4"  # hlt
    "ebfd"  # jmp to hlt
)


def idle_disk() -> bytes:
    """The raw image, 1 MiB."""
    message = _LOADED_AT + len(_CODE_BEFORE_MESSAGE)
    code = _CODE_BEFORE_MESSAGE.replace(b"\xbe\0\0", b"\xbe" + message.to_bytes(2, "little"))
    sector = (code + _LINE).ljust(_SECTOR_BYTES - 2, b"\0") + b"\x55\xaa"
    return sector.ljust(SIZE_BYTES, b"\0")
