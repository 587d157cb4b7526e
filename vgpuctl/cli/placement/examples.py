# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "capacity": (
        Example("capacity --gpu A40-8Q", "how many more VMs of this size fit"),
        Example("capacity --gpu A40-24Q --after-defrag -l gpu1", "after moving VMs, on one host"),
    ),
    "defrag": (
        Example("defrag", "empty as many GPUs as can be"),
        Example("defrag --for A40-48Q --count 2 --max-moves 6", "make room for two VMs"),
        Example("defrag --for A40-48Q --apply --until 2h", "make the moves, after a yes"),
        Example("defrag --for A40-24Q -t acme --max-downtime 10m -o json", "moving one tenant's VMs, for a program"),
    ),
    "explain-vm": (
        Example("explain-vm --gpu A40-8Q --memory 8GiB", "where such a VM would fit, whoever it is of"),
        Example("explain-vm acme/new --gpu A40-8Q", "where it would go, and why not elsewhere"),
        Example("explain-vm -t acme new --gpu A40-48Q --all-refusals", "each refusal"),
    ),
    "list-queue": (
        Example("list-queue", "who waits, and why"),
        Example("list-queue -t acme -o json", "of one tenant, for a program"),
    ),
    "leave-queue": (
        Example("leave-queue acme/waits --dry-run", "what would be removed"),
        Example("leave-queue acme/waits --yes", "a VM that waits"),
    ),
    "set-queue": (
        Example("set-queue priority", "the most important first"),
        Example("set-queue fair-share --ageing 2h", "share among tenants; waiting counts"),
    ),
    "reserve": (
        Example(
            "reserve acme/course --gpu A40-8Q --from 2031-01-06T08:00 --until 2031-01-06T18:00", "shares for a day"
        ),
        Example(
            "reserve acme/class --gpu A40-8Q --from 2031-02-03T08:00 --until 2031-02-03T12:00 --every 7d", "each week"
        ),
    ),
    "show-reservation": (
        Example("show-reservation acme/training", "where, when and who"),
        Example("show-reservation training -t acme -o json", "for a program"),
    ),
    "list-reservations": (
        Example("list-reservations", "what is reserved"),
        Example("list-reservations --all -t acme", "with past ones of a tenant"),
    ),
    "cancel-reservation": (
        Example("cancel-reservation acme/course --yes", "give the shares back"),
        Example("cancel-reservation -t acme class --dry-run", "what would be cancelled"),
    ),
}
