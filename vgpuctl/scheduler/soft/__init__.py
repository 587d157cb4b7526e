# SPDX-License-Identifier: Apache-2.0
"""Placement for GPUs that divide freely: shares in thousandths of a GPU's compute and MiB of its memory.

No command uses it. Kubernetes clusters share GPUs so, and its user will be a scheduler extender for them; the HTTP
service and the reading of nodes and pods are missing. Until then only the benchmarks in tests/bench run it
(`decisions.py`, `openb_policy.py`, and `mig_policy.py` for MIG instances). The rest of the package must not import it
(`[tool.importlinter]`).
"""
