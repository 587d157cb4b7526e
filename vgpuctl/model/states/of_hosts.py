# SPDX-License-Identifier: Apache-2.0
"""States of hosts and GPUs."""

from vgpuctl.model.promise import FRESH_S
from vgpuctl.model.states.kind import GPU, HOST, UNKNOWN, StateKind, number

OF_HOSTS: tuple[StateKind, ...] = (
    StateKind(
        "host_state",
        "host",
        "Host",
        "How the host's agent answered when it was last asked.",
        HOST,
        {
            "up": "The agent answers.",
            "unreachable": "The host cannot be connected to.",
            "host-key-changed": "Another SSH host key answers than at the last login.",
            "wrong-host": "Another host of the inventory answers at its address.",
            "unusable": "The host answers, but its agent cannot be used.",
            "stale": f"The agent answered when it was last asked, which was more than {FRESH_S:.0f} s ago.",
            "not-reached": f"Every attempt of {FRESH_S:.0f} s or more failed by its own settings, such as a wrong key, "
            "or this server cannot read a host that others reach.",
            UNKNOWN: "The host was never asked.",
        },
    ),
    StateKind(
        "host_libvirt_state",
        "host",
        "libvirt",
        "How the host's libvirt answered when it was last asked.",
        HOST,
        {
            "up": "libvirt answers.",
            "no-answer": "libvirt does not answer.",
            UNKNOWN: "libvirt was never asked.",
        },
    ),
    StateKind(
        "host_restriction",
        "host",
        "Restrictions of hosts",
        "Restrictions of a whole host; none is in force where all are 0.",
        HOST,
        {
            "cordon": "The host takes no new VM.",
            "drain": "The host was emptied; no VM starts on it.",
            "fence": "The host was declared dead; nothing that it says is trusted.",
        },
    ),
    number(
        "host_layout_differences",
        "host",
        "Drift",
        "Differences of the host to its declared layout, where the controller compared.",
        HOST,
    ),
    number(
        "host_observed_timestamp_seconds",
        "host",
        "Last answer",
        "Time of the last answer of the host's agent to a command or a controller.",
        HOST,
    ),
    StateKind(
        "gpu_state",
        "gpu",
        "GPU",
        "The GPU at its host's last answer.",
        GPU,
        {
            "present": "The host shows the GPU and can read it.",
            "unreadable": "The host shows the GPU and cannot read it.",
            "missing": "The host no longer shows the GPU.",
            UNKNOWN: "The host does not answer.",
        },
    ),
    StateKind(
        "gpu_restriction",
        "gpu",
        "Restrictions of GPUs",
        "Restrictions of a GPU, or of the one of its VFs that the label share names.",
        (*GPU, "share"),
        {
            "cordon": "The GPU or VF takes no new VM.",
            "quarantine": "The GPU or VF is suspect; no VM starts on it.",
        },
    ),
    number(
        "gpu_quarantine_timestamp_seconds",
        "gpu",
        "Quarantine",
        "Time at which the GPU or VF was quarantined. finding: the code in docs/health.md, empty for an operator's.",
        (*GPU, "share", "finding"),
    ),
)
