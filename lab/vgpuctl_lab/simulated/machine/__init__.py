# SPDX-License-Identifier: Apache-2.0
"""The machine under a simulated host's agent: what the kernel and NVIDIA's driver show, and how they react.

Standard library only: these files also run inside the agent's process, below its real code (host_adapter.py).
"""
