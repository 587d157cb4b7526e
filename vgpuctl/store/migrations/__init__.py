# SPDX-License-Identifier: Apache-2.0
"""The schema's history since 0.2.0, for alembic; run by vgpuctl.store.upgrade when an older store is opened.

A new store is made from store/tables.py alone, and the database's own rules (store/guards.py) are made after both.
To change the schema: change the table in store/schema/, raise SCHEMA_VERSION in store/schema/__init__.py, and add
versions/vNNNN_subject.py with that number as `revision`. A migration runs in one transaction on both databases and
states its tables itself, it never imports them.
"""
