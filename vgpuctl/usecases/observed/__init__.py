# SPDX-License-Identifier: Apache-2.0
"""The last answers of hosts, their times, and the record of them in the store."""
