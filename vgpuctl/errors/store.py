# SPDX-License-Identifier: Apache-2.0
"""Errors of the store itself."""

from vgpuctl.errors.state import StateError


class StoreUnusable(StateError):
    """The store cannot be opened or written."""

    reference = "store-unusable"


class StoreNotTheSame(StoreUnusable):
    """The store is not as this process has opened it, so the process has to end. Only its subclasses are raised."""


class StoreReplaced(StoreNotTheSame):
    """Another store is in the place of the one that this process has opened, or an earlier state of it."""

    reference = "store-replaced"


class StoreTooNew(StoreNotTheSame):
    """A newer vgpuctl has upgraded the store, which this one must not change any more."""

    reference = "store-too-new"


class StoreNotReconciled(StoreUnusable):
    """The store was restored from a backup, and is older than the hosts: it takes no change before it is reconciled."""

    reference = "store-not-reconciled"


class StoreOutcomeUnknown(StoreUnusable):
    """The connection to the database was lost during a commit, and whether it was committed could not be found out."""

    reference = "store-outcome-unknown"
