# SPDX-License-Identifier: Apache-2.0
"""apply-hosts: bring every host into its declared layout, in batches, each host for itself."""

import threading
from collections.abc import Callable, Mapping, Sequence

from vgpuctl.model.layout import HostLayout
from vgpuctl.usecases.declared.fleet_values import read_fleet_values
from vgpuctl.usecases.layout.layout_lines import AppliedHost, Line
from vgpuctl.usecases.layout.layout_run import LayoutRun
from vgpuctl.usecases.layout.rollout import FailureBudget, batches
from vgpuctl.usecases.layout.run_options import RunOptions
from vgpuctl.usecases.running import interruptions
from vgpuctl.usecases.running.at_work import AtWork
from vgpuctl.usecases.running.services import Services


def apply_hosts(
    services: Services,
    layouts: Mapping[str, HostLayout],
    options: RunOptions,
    *,
    serial: Sequence[str] = (),
    most_failures: int | None = None,
    tell: Callable[[Line], None],
) -> list[AppliedHost]:
    """Bring the hosts of `layouts` into them; results in their order, one per host.

    serial: batch sizes, see rollout.parse_serial. most_failures: how many hosts may fail before no further one is
    begun; None for no limit, or none at all where there are batches. tell: called with every line as it happens, by
    one thread at a time. A host's failure is in its result.
    """
    budget = FailureBudget(0 if most_failures is None and serial else most_failures)
    lock = threading.Lock()

    def tell_one(line: Line) -> None:
        with lock:
            tell(line)

    fleet = read_fleet_values(services)
    at_work = AtWork("host", "to end the step at work")

    def work(name: str) -> AppliedHost:
        if budget.is_spent:
            return AppliedHost(name, is_begun=False)
        with at_work.one() as is_begun:
            return run(name) if is_begun else AppliedHost(name, is_begun=False)

    def run(name: str) -> AppliedHost:
        done: AppliedHost | None = None
        try:
            done = LayoutRun(services, name, layouts[name], options, tell_one, at_work.stop, fleet).take()
        finally:
            services.forget_host(name)
            if done is None or done.error is not None:
                budget.count()
        return done

    found: list[AppliedHost] = []
    interruptions.enter()
    try:
        for batch in batches(list(layouts), serial):
            for result in services.on_hosts(batch, work):
                found.append(result.value or AppliedHost(result.name, error=result.error))
    except BaseException:
        interruptions.hold()
        at_work.end(services.say)
        raise
    finally:
        interruptions.leave()
    return found
