# SPDX-License-Identifier: Apache-2.0
"""The store: tenants, VMs, leases, the facts cache, events and the journal, on SQLite or PostgreSQL.

`vgpuctl.store.store` is the public module; the others are internal. The drivers of both databases, SQLAlchemy and
alembic stay in here.
"""
