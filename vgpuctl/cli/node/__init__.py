# SPDX-License-Identifier: Apache-2.0
"""Commands on node pools."""
