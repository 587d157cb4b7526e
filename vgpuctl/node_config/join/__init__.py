# SPDX-License-Identifier: Apache-2.0
"""The join of one VM: files, and the service that is started with them."""
