# SPDX-License-Identifier: Apache-2.0
"""Moves of VMs that make room again: the plan, its order, and a proof of how far it is from the best one.

`plan` is entered with hosts and leases. `board`, `search` and `bound` know cards by their states alone, so the same
search runs on the fleet and on benchmarks.
"""
