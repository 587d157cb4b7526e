# SPDX-License-Identifier: Apache-2.0
"""Throughput of VMs that share a GPU: fitted from measurements, predicted with intervals, refused without data."""
