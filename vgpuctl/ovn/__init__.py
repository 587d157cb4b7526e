# SPDX-License-Identifier: Apache-2.0
"""OVN: tenants' worlds as rows of the northbound database. ovsdbapp and ovs stay in here.

`topology` says which rows a VPC is (pure), `northbound` makes the database so in one transaction.
"""
