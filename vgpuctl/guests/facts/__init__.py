# SPDX-License-Identifier: Apache-2.0
"""Values read from libvirt's XML, from its capabilities, and from answers of guests."""
