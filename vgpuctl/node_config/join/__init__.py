# SPDX-License-Identifier: Apache-2.0
"""What lets one VM join its cluster: files, and the service that is started with them."""
