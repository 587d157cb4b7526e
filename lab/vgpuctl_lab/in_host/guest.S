# SPDX-License-Identifier: Apache-2.0
# A guest of a few hundred bytes: it lists its PCI functions on the first serial port and halts, so that it costs the
# emulated host nothing. A guest without anything to boot spins in its firmware; Linux takes minutes where a host that
# is emulated emulates it.
#
# The image boots as a disk (its first sector is a boot sector) and as a kernel (Documentation/arch/x86/boot.rst in
# Linux). As a kernel it says its arguments and the size of its initramfs first. Both ways it runs in real mode.
#
# A kernel whose arguments begin with `eject` does not halt: each second it lets go of the devices that QEMU asks for.
# One whose arguments begin with `move` counts seconds, and says what a move must bring along: the count, the sum of a
# block of its memory, and of each of NVIDIA's functions two registers of the lab's vGPUs, one with a mark of the
# function's place that it wrote at first, and one with the count that it wrote last.

    .code16
    .set sectors_of_setup, 2

start:                                  # firmware enters here, at 0000:7c00
    ljmp $0x07c0, $from_disk

from_disk:
    xorw %ax, %ax
    movw %ax, %ss
    movw $0x7c00, %sp
    movw %cs, %ax
    movw %ax, %ds
    movw $text_started, %si
    call print

# Lists bus 0 to 31. %edi: the address of a function as PCI's register of addresses has it.
list:
    movl $0x80000000, %edi
next:
    xorw %bx, %bx
    call read_configuration
    cmpw $0xffff, %ax
    je absent
    pushl %eax
    movw $text_function, %si
    call print
    movl %edi, %eax                     # bus
    shrl $16, %eax
    movb $2, %cl
    call hex
    movb $':', %al
    call put
    movl %edi, %eax                     # device
    shrl $11, %eax
    andw $31, %ax
    movb $2, %cl
    call hex
    movb $'.', %al
    call put
    movl %edi, %eax                     # function
    shrl $8, %eax
    andw $7, %ax
    movb $1, %cl
    call hex
    call space
    popl %eax                           # vendor, device
    pushl %eax
    movb $4, %cl
    call hex
    movb $':', %al
    call put
    popl %eax
    shrl $16, %eax
    movb $4, %cl
    call hex
    call space
    movw $8, %bx                        # class and subclass
    call read_configuration
    shrl $16, %eax
    movb $4, %cl
    call hex
    call end_line
    testl $0x700, %edi
    jnz further
    movw $12, %bx                       # header type: has the device further functions?
    call read_configuration
    testl $0x800000, %eax
    jnz further
    jmp whole_device
absent:
    testl $0x700, %edi
    jnz further
whole_device:
    addl $0x700, %edi
further:
    addl $0x100, %edi
    cmpl $0x80200000, %edi
    jb next
    movw $text_halting, %si
    call print
    jmp *then
halt:
    cli
    hlt
    jmp halt

# Reads register %bx of the function into %eax.
read_configuration:
    movw $0xcf8, %dx
    movl %edi, %eax
    orw %bx, %ax
    outl %eax, %dx
    movw $0xcfc, %dx
    inl %dx, %eax
    ret

# Prints the last %cl hexadecimal digits of %eax.
hex:
    pushl %eax
    movb %cl, %ch
    decb %cl
    shlb $2, %cl
    shrl %cl, %eax
    andb $15, %al
    cmpb $10, %al
    jb digit
    addb $'a' - '0' - 10, %al
digit:
    addb $'0', %al
    call put
    movb %ch, %cl
    popl %eax
    decb %cl
    jnz hex
    ret

# Prints the text at %ds:%si up to a zero.
print:
    lodsb
    testb %al, %al
    jz printed
    call put
    jmp print
printed:
    ret

end_line:
    movb $'\r', %al
    call put
    movb $'\n', %al
    jmp put
space:
    movb $' ', %al
# Prints %al once the serial port has room.
put:
    pushw %ax
    movw $0x3fd, %dx
full:
    inb %dx, %al
    testb $0x20, %al
    jz full
    popw %ax
    movw $0x3f8, %dx
    outb %al, %dx
    ret

then:
    .word halt
text_started:
    .asciz "vgpuctl lab guest: started\r\n"
text_function:
    .asciz "vgpuctl lab guest: pci "
text_halting:
    .asciz "vgpuctl lab guest: halting\r\n"

    .org 0x1f1                          # the kernel's header
    .byte sectors_of_setup
    .org 0x1fe
    .word 0xaa55                        # both the boot sector's and the kernel's mark
    jmp from_loader                     # a loader enters here, with %ds at the image's beginning
    .ascii "HdrS"
    .word 0x0203                        # version of the protocol
    .org 0x211
    .byte 1                             # the kernel proper goes to 1 MiB
    .org 0x214
    .long 0x100000
initramfs:
    .long 0
initramfs_size:
    .long 0
    .org 0x228
arguments:
    .long 0
    .long 0x37ffffff                    # highest address of an initramfs

from_loader:
    pushw %ds
    pushw $from_kernel
    lretw
from_kernel:
    movw $text_started, %si
    call print
    movw $text_arguments, %si
    call print
    movl arguments, %eax
    movw %ax, %si
    andw $15, %si
    shrl $4, %eax
    pushw %ds
    movw %ax, %ds
    cmpl $0x63656a65, (%si)             # "ejec"
    jne no_eject
    movw $eject, %cs:then
no_eject:
    cmpl $0x65766f6d, (%si)             # "move"
    jne no_move
    movw $move, %cs:then
no_move:
    call print
    popw %ds
    call end_line
    movw $text_initramfs, %si
    call print
    movl initramfs_size, %eax
    movb $8, %cl
    call hex
    movw $text_bytes, %si
    call print
    jmp list

# Lets go of devices, by QEMU's registers for hot-plug on PCI (docs/specs/acpi_pci_hotplug.rst in QEMU): a bus is
# selected, the slots to be let go of are read, and are written back. On q35 they begin at 0xcc0.
eject:
    sti
    hlt                                 # until the timer's next tick
    decw ticks
    jnz eject
    movw $18, ticks                     # in a second
    xorl %ecx, %ecx
bus:
    movw $0xcd0, %dx
    movl %ecx, %eax
    outl %eax, %dx
    movw $0xcc4, %dx
    inl %dx, %eax
    testl %eax, %eax
    jz nothing
    movw $0xcc8, %dx
    outl %eax, %dx
    movw $text_released, %si
    pushl %ecx
    call print
    popl %ecx
nothing:
    incl %ecx
    cmpl $32, %ecx
    jb bus
    jmp eject
ticks:
    .word 18
text_released:
    .asciz "vgpuctl lab guest: released a device\r\n"

# Fills a block of memory at 0x30000, marks the GPUs, and says each second what they and the block hold.
    .set register_of_mark, 0x40
    .set register_of_count, 0x44
    .set most_gpus, 8
move:
    movw $0x3000, %ax
    movw %ax, %es
    movl $0x2010, %eax
    xorw %di, %di
    movw $0x4000, %cx
fill:
    imull $1664525, %eax, %eax
    addl $1013904223, %eax
    movl %eax, %es:(%di)
    addw $4, %di
    loop fill
    movl $0x80000000, %edi
find:
    xorw %bx, %bx
    call read_configuration
    cmpw $0x10de, %ax
    jne other
    movw end_of_gpus, %si
    cmpw $gpus + 4 * most_gpus, %si
    je other
    movl %edi, (%si)
    addw $4, end_of_gpus
    movl %edi, %eax
    shrl $8, %eax
    andl $0xffff, %eax
    orl $0xc0de0000, %eax
    movw $register_of_mark, %bx
    call write_configuration
other:
    addl $0x100, %edi
    cmpl $0x80200000, %edi
    jb find
second:
    sti
    hlt
    decw ticks
    jnz second
    movw $18, ticks
    incl count
    movw $text_count, %si
    call print
    movl count, %eax
    movb $8, %cl
    call hex
    movw $text_sum, %si
    call print
    movl count, %eax
    movl %eax, %es:0                    # a page of the block changes, not its sum
    xorl %eax, %eax
    movw $4, %di
    movw $0x3fff, %cx
add:
    addl %es:(%di), %eax
    addw $4, %di
    loop add
    movb $8, %cl
    call hex
    movw $gpus, %bp
each:
    cmpw end_of_gpus, %bp
    je said
    movl %ds:(%bp), %edi
    movw $text_gpu, %si
    call print
    movw $register_of_mark, %bx
    call read_configuration
    movb $8, %cl
    call hex
    call space
    movw $register_of_count, %bx
    call read_configuration
    movb $8, %cl
    call hex
    movl count, %eax
    call write_configuration
    addw $4, %bp
    jmp each
said:
    call end_line
    jmp second

# Writes %eax to register %bx of the function.
write_configuration:
    pushl %eax
    movw $0xcf8, %dx
    movl %edi, %eax
    orw %bx, %ax
    outl %eax, %dx
    movw $0xcfc, %dx
    popl %eax
    outl %eax, %dx
    ret
count:
    .long 0
end_of_gpus:
    .word gpus
gpus:
    .fill most_gpus, 4, 0
text_count:
    .asciz "vgpuctl lab guest: count "
text_sum:
    .asciz " sum "
text_gpu:
    .asciz " gpu "

text_arguments:
    .asciz "vgpuctl lab guest: arguments "
text_initramfs:
    .asciz "vgpuctl lab guest: initramfs of 0x"
text_bytes:
    .asciz " bytes\r\n"

    .org (1 + sectors_of_setup) * 512
    .long 0                             # the kernel proper, never run
    .org 1 << 20
