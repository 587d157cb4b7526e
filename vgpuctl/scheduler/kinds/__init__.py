# SPDX-License-Identifier: Apache-2.0
"""One file per sharing kind, each behind `offers(wanted, state)`."""
