# SPDX-License-Identifier: Apache-2.0
"""One transaction on the store, with the methods of every subject."""

from vgpuctl.store.care import CareRows
from vgpuctl.store.controllers import ControllerRows
from vgpuctl.store.database_roles import DatabaseRoleRows
from vgpuctl.store.host_records import HostRecordRows
from vgpuctl.store.images import ImageRows
from vgpuctl.store.kept_vms import KeptVmRows
from vgpuctl.store.leases import LeaseRows
from vgpuctl.store.licences import LicenceRows
from vgpuctl.store.operations import OperationRows
from vgpuctl.store.quotas import QuotaRows
from vgpuctl.store.renames import RenameRows
from vgpuctl.store.reservations import ReservationRows
from vgpuctl.store.restrictions import RestrictionRows
from vgpuctl.store.traffic import TrafficRows
from vgpuctl.store.vms import VmRows
from vgpuctl.store.volumes import VolumeRows
from vgpuctl.store.vpcs import VpcRows


class Session(
    QuotaRows,
    ReservationRows,
    RestrictionRows,
    RenameRows,
    VmRows,
    VolumeRows,
    VpcRows,
    LeaseRows,
    TrafficRows,
    OperationRows,
    LicenceRows,
    HostRecordRows,
    ImageRows,
    KeptVmRows,
    ControllerRows,
    CareRows,
    DatabaseRoleRows,
):
    """The session of `Store.transaction()` and `Store.reading()`: tenants with quotas and usage, pools, VMs, volumes,
    deleted VMs whose disks are kept, networks, leases, traffic, licences, node pools, reclaimed quota, hosts, images,
    restrictions, the queue, events, the journal, controllers, what the store says of itself, and the rights of
    PostgreSQL's roles.

    All of it is committed together at the end of the block, or nothing. A statement that the database refused ends
    the transaction: every later one, and the end of the block, raise the same error again.
    """
