# SPDX-License-Identifier: Apache-2.0
"""Everything about the guests of one host: the domain XML, the seed image, libvirt's domains, volumes and networks."""
