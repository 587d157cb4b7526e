# SPDX-License-Identifier: Apache-2.0
"""Findings and advice from kept readings: one file per kind.

Each recommendation is proven by replay with the rules of placing: a replay places VMs, so they live in this room.
"""
