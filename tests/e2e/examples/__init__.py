# SPDX-License-Identifier: Apache-2.0
"""The examples of help pages, each run as it stands."""
