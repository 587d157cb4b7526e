# SPDX-License-Identifier: Apache-2.0
"""Calls to the libvirt of one host: its domains, volumes, networks and port filters."""
