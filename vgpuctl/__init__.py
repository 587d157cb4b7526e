# SPDX-License-Identifier: Apache-2.0
"""Share GPUs of KVM hosts among tenants. This module travels in the agent: the version and nothing else."""

__version__ = "0.2.0"
