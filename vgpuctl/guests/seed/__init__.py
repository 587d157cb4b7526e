# SPDX-License-Identifier: Apache-2.0
"""The seed of a guest: what cloud-init, cloudbase-init and installers read at the first boot."""
