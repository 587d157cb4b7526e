# SPDX-License-Identifier: Apache-2.0
"""From a VM's request and place to the XML of its domain: the views that the templates read."""
