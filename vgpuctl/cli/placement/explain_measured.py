# SPDX-License-Identifier: Apache-2.0
"""The measured part of explain-vm: loads of GPUs for the policy, and predicted throughput."""

from typing import TYPE_CHECKING

from vgpuctl.cli.shown.output import print_line, print_table

if TYPE_CHECKING:
    from vgpuctl.scheduler.performance.model import Impact, Prediction
    from vgpuctl.scheduler.predict import GpuPrediction
    from vgpuctl.usecases.placement.explain_vm import ExplainedVm

_MOST_LOADS = 10


def show_measured(explained: "ExplainedVm") -> None:
    """Print the loads and the predictions, as far as there are any."""
    from vgpuctl.model.times import format_duration, format_time

    if explained.loads or explained.loads_problem:
        if explained.loads_problem is not None:
            print_line(f"load    of the last reading: {explained.loads_problem}")
        for one in sorted(explained.loads, key=lambda one: (one.percent + one.added_percent, one.host, one.gpu))[
            :_MOST_LOADS
        ]:
            source = "last reading"
            if one.rolling is not None:
                rolling = one.rolling
                source = (
                    f"mean {rolling.mean:.0%}, peak {rolling.peak:.0%} of {rolling.minutes} minutes,"
                    f" newest {format_duration(round(rolling.age_s))} ago"
                )
            added = f", and {one.added_percent} % of shares that came later" if one.added_percent else ""
            print_line(f"load    {one.host} {one.gpu}: {one.percent} % ({source}){added}")
    if explained.model_problem is not None:
        print_line(f"model   {explained.model_problem}")
    if explained.model_at is None:
        return
    print_line(f"model   fitted {format_time(explained.model_at)} UTC; throughput is against running alone")
    print_table(
        ["HOST", "GPU", "PROFILE", "BESIDE", "SPEED", "THROUGHPUT", "90 % BETWEEN", "NEIGHBOURS LOSE"],
        [
            (
                *(one.host, one.gpu, one.profile, _beside(one.neighbours), _speed(one)),
                *(("unknown", None, one.reason) if one.impact is None else _impact(one.impact)),
            )
            for one in explained.predictions
        ],
        empty="no GPU takes it, so nothing is predicted",
    )


def _beside(neighbours: "tuple[tuple[str, str], ...]") -> str | None:
    names = [name for name, _profile in neighbours]
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names)) or None


def _speed(one: "GpuPrediction") -> str | None:
    if one.speed is None:
        return None if one.speed_reason is None else f"unknown: {one.speed_reason}"
    between = f" ({one.speed.low:.0%} to {one.speed.high:.0%})" if one.speed.measured else ", as declared"
    return f"{one.speed.speed:.0%}{between}"


def _impact(impact: "Impact") -> tuple[str, str, str | None]:
    losses = [f"{name} {_change(before, after)}" for (name, _profile), before, after in impact.losses]
    own = impact.own
    return f"{own.throughput:.0%}", f"{own.low:.0%} and {own.high:.0%}", "; ".join(dict.fromkeys(losses)) or None


def _change(before: "Prediction", after: "Prediction") -> str:
    return f"{before.throughput:.0%} → {after.throughput:.0%} ({after.low:.0%} to {after.high:.0%})"
