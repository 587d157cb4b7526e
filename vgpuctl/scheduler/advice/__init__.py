# SPDX-License-Identifier: Apache-2.0
"""Findings and advice from kept readings: one file per kind. Each advice is proven by replay with the rules of placing.

It lives in the scheduler's room, because a replay places VMs.
"""
