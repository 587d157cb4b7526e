# SPDX-License-Identifier: Apache-2.0
"""The configuration of a slurmd that gets slurm.conf and gres.conf from its controller (configless Slurm).

Features and GRES of cloud nodes are in the controller's slurm.conf, since AutoDetect does not work with State=CLOUD
(gres.conf(5)); `export-slurm` writes these lines.
"""

import shlex

from vgpuctl.node_config.join.files import HEADER, Joining, NodeFile, SecretWriter

MUNGE_KEY = "/etc/munge/munge.key"


def slurm_files(joining: Joining, write: SecretWriter) -> tuple[NodeFile, ...]:
    """Write the munge key, and slurmd's options where Debian's and RHEL's units read them.

    munged refuses a key that others can read (munged(8)).
    """
    key = joining.pool.join.munge_key
    assert key is not None
    options = shlex.join(["--conf-server", joining.server, "-N", joining.name])
    text = f'{HEADER}SLURMD_OPTIONS="{options}"\n'
    return (
        NodeFile(MUNGE_KEY, "0400", write(key), owner="munge:munge", is_base64=True),
        NodeFile("/etc/default/slurmd", "0644", text),
        NodeFile("/etc/sysconfig/slurmd", "0644", text),
    )
