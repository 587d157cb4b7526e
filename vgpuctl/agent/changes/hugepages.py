# SPDX-License-Identifier: Apache-2.0
"""Bring the pool of one huge page size to a count (Linux admin-guide/mm/hugetlbpage)."""

from vgpuctl.agent.facts import hugepages
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, SetHugepages


def ensure(host: Host, step: SetHugepages, *, dry_run: bool) -> Change:
    """Write the pool's count and read back what the kernel made of it; where it falls short, the old count comes back.

    Raises Problem: `bad-count`, `not-found` for a page size the kernel does not have, `hugepages-short` when too little
    memory is left in one piece, `hugepages-in-use` when pages cannot be freed.
    """
    if step.count < 0:
        raise Problem(ProblemCode.BAD_COUNT, f"a pool cannot have {step.count} huge pages")
    target, path = f"{step.size_kib} KiB pages", hugepages.path(step.size_kib)
    before = hugepages.read_count(host, step.size_kib)
    if before == step.count:
        return Change(step.op, target, str(before), str(before), changed=False)
    if not dry_run:
        host.write(path, str(step.count))
        after = hugepages.read_count(host, step.size_kib)
        if after != step.count:
            host.write(path, str(before))  # a pool that is short has nearly all of the host's memory
        if after < step.count:
            raise Problem(
                ProblemCode.HUGEPAGES_SHORT,
                f"the pool has {after} of {step.count} {target}: the host's memory is too fragmented or too small",
                path=path,
                hint="reserve them by the kernel arguments hugepagesz= and hugepages=, and reboot",
            )
        if after > step.count:
            raise Problem(
                ProblemCode.HUGEPAGES_IN_USE, f"the pool still has {after} {target}, wanted {step.count}", path=path
            )
    return Change(step.op, target, str(before), str(step.count), changed=True)
