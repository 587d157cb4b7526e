# SPDX-License-Identifier: Apache-2.0
"""Seats of licences, and the licences of running guests."""
