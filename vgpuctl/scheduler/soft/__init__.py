# SPDX-License-Identifier: Apache-2.0
"""Placement for GPUs that divide freely: shares in thousandths of a GPU's compute and MiB of its memory.

Kubernetes clusters share GPUs so. `vgpuctl serve extender` places their pods by it, and the benchmarks in tests/bench
run it (`decisions.py`, `openb_policy.py`, `extender_http.py`, and `mig_policy.py` for MIG instances). VMs are placed by
the rest of the scheduler (`[tool.importlinter]`).
"""
