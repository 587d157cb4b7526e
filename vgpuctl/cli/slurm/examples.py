# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "export slurm": (
        Example("export slurm acme", "slurm.conf for its node pools"),
        Example("export slurm acme hpc --file gres.conf", "another file of one cluster"),
    ),
    "slurm-resume": (
        Example("slurm-resume 'hpc-[001-002]' -t acme --cluster hpc --dry-run", "what would be wanted"),
        Example("slurm-resume 'hpc-[001-002]' -t acme --cluster hpc", "as slurmctld calls it"),
    ),
    "slurm-suspend": (
        Example("slurm-suspend hpc-002 -t acme --cluster hpc --dry-run", "what would go"),
        Example("slurm-suspend hpc-002 -t acme --cluster hpc", "as slurmctld calls it"),
    ),
    "slurm-fail": (
        Example("slurm-fail hpc-001 -t acme --cluster hpc --dry-run", "what would be given up"),
        Example("slurm-fail hpc-001 -t acme --cluster hpc", "as slurmctld calls it"),
    ),
}
