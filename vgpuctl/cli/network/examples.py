# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "create-network": (
        Example("create-network acme/front --cidr 10.0.0.0/24", "a network of a tenant"),
        Example("create-network acme/back --cidr 10.0.1.0/24 --cidr6 fd00:1::/64 --dry-run", "with IPv6; only look"),
    ),
    "list-networks": (
        Example("list-networks -t acme", "of one tenant"),
        Example("list-networks -A -o name", "names of all"),
    ),
    "show-network": (
        Example("show-network acme/front", "with its addresses"),
        Example("show-network -t acme front -o json", "for a program"),
    ),
    "delete-network": (
        Example("delete-network acme/front --dry-run", "what would be deleted"),
        Example("delete-network acme/front --yes", "without a question"),
    ),
    "create-external-network": (
        Example(
            "create-external-network internet --cidr 192.0.2.0/24 --gateway 192.0.2.1"
            " --pool 192.0.2.10-192.0.2.99 --physical-network provider",
            "for tenants' gateways",
        ),
        Example(
            "create-external-network dmz --cidr 198.51.100.0/24 --gateway 198.51.100.1"
            " --pool 198.51.100.10-198.51.100.20 --physical-network provider --vlan 7",
            "on a VLAN",
        ),
    ),
    "list-external-networks": (
        Example("list-external-networks", "with free addresses"),
        Example("list-external-networks -o json", "for a program"),
    ),
    "show-external-network": (
        Example("show-external-network internet", "with the hosts that carry gateways"),
        Example("show-external-network internet -o json", "for a program"),
    ),
    "delete-external-network": (
        Example("delete-external-network dmz --dry-run", "what would change"),
        Example("delete-external-network dmz --yes", "one that no gateway uses"),
    ),
    "create-gateway": (
        Example("create-gateway internet -t acme", "a gateway to an external network"),
        Example("create-gateway internet -t acme --dry-run", "what would change"),
    ),
    "delete-gateway": (
        Example("delete-gateway -t acme --dry-run", "what would be deleted"),
        Example("delete-gateway -t acme --yes", "without a question"),
    ),
    "create-floating-ip": (
        Example("create-floating-ip web-1 -t acme", "an address of its own"),
        Example("create-floating-ip web-1 -t acme --dry-run", "what would change"),
    ),
    "delete-floating-ip": (
        Example("delete-floating-ip acme/web-1 --dry-run", "what would be released"),
        Example("delete-floating-ip acme/web-1 --yes", "without a question"),
    ),
    "create-port-forward": (
        Example("create-port-forward 8080 --vm web-1 --vm-port 80 -t acme", "TCP to a VM"),
        Example("create-port-forward udp/53 --vm web-1 -t acme", "UDP"),
    ),
    "delete-port-forward": (
        Example("delete-port-forward 8080 -t acme --dry-run", "what would be deleted"),
        Example("delete-port-forward 8080 udp/53 -t acme --yes", "several"),
    ),
    "create-address-group": (
        Example("create-address-group acme/partners --address 192.0.2.0/24 --address 198.51.100.7", "for rules"),
        Example("create-address-group acme/blocked --dry-run", "what would change; it may be empty"),
    ),
    "set-address-group": (
        Example("set-address-group acme/partners --add-address 203.0.113.0/28", "one network more"),
        Example("set-address-group acme/partners --remove-address 198.51.100.7 --dry-run", "what would change"),
    ),
    "delete-address-group": (
        Example("delete-address-group acme/partners --dry-run", "what would be deleted"),
        Example("delete-address-group acme/partners --yes", "without a question"),
    ),
    "create-egress-policy": (
        Example("create-egress-policy deny -t acme --dry-run", "what would change"),
        Example("create-egress-policy deny -t acme", "VMs send only what egress rules allow"),
    ),
    "delete-egress-policy": (
        Example("delete-egress-policy -t acme --dry-run", "what would be deleted"),
        Example("delete-egress-policy -t acme --yes", "VMs send what no egress rule denies"),
    ),
    "explain-network": (
        Example("explain-network web-1 web-2 tcp/443 -t acme", "which rule decides"),
        Example("explain-network outside web-1 tcp/80 -t acme -o json", "from outside, for a program"),
    ),
    "create-security-group": (
        Example("create-security-group acme/web --rule tcp:80", "HTTP from everywhere"),
        Example("create-security-group acme/db --rule tcp:5432@group:web", "from the members of a group"),
    ),
    "delete-security-group": (
        Example("delete-security-group acme/db --dry-run", "what would be deleted"),
        Example("delete-security-group acme/db --yes", "without a question"),
    ),
    "create-security-rule": (
        Example("create-security-rule acme/web tcp:443", "HTTPS too"),
        Example("create-security-rule acme/web tcp:22@10.9.0.0/24 --dry-run", "what would change"),
        Example("create-security-rule acme/web egress:deny:tcp:25,log deny:any@addresses:blocked,priority=200", "deny"),
    ),
    "delete-security-rule": (
        Example("delete-security-rule acme/web tcp:443 --dry-run", "what would change"),
        Example("delete-security-rule acme/web tcp:443 --yes", "no more HTTPS"),
    ),
    "create-load-balancer": (
        Example("create-load-balancer acme/shop --network front --port 80 --vm web-1 --vm web-2", "two VMs"),
        Example("create-load-balancer acme/dns --network front --port 53 --protocol udp --vm web-1", "UDP"),
    ),
    "set-load-balancer": (
        Example("set-load-balancer acme/shop --remove-vm web-2", "one VM less"),
        Example("set-load-balancer acme/shop --interval 10 --failures 5", "slower health checks"),
        Example("set-load-balancer acme/shop --add-vm web-2 --drain web-1 --affinity-time 600", "web-1 drains"),
    ),
    "show-load-balancer": (
        Example("show-load-balancer acme/shop", "with what the health checks found"),
        Example("show-load-balancer acme/shop -o json", "for a program"),
    ),
    "delete-load-balancer": (
        Example("delete-load-balancer acme/dns --dry-run", "what would be deleted"),
        Example("delete-load-balancer acme/dns acme/shop --yes", "several"),
    ),
    "create-vpn-connection": (
        Example("create-vpn-connection acme/office --network front --peer-prefix 192.168.10.0/24", "to another site"),
        Example(
            "create-vpn-connection acme/lab --network front --peer-prefix 192.168.20.0/24 --port 51821"
            " --peer-key fE/wdxzl0klVp/IR8UcaoGUMjqaWi3jAd7KzHKFS6Ds= --endpoint 198.51.100.7:51820",
            "with the other site's key and address",
        ),
    ),
    "set-vpn-connection": (
        Example("set-vpn-connection acme/office --add-peer-prefix 192.168.11.0/24", "one network more"),
        Example("set-vpn-connection acme/office --keepalive 25 --dry-run", "what would change"),
    ),
    "rotate-vpn-keys": (
        Example("rotate-vpn-keys acme/office --peer", "a new configuration for the other site"),
        Example("rotate-vpn-keys acme/office --dry-run", "only look"),
    ),
    "delete-vpn-connection": (
        Example("delete-vpn-connection acme/office --dry-run", "what would be deleted"),
        Example("delete-vpn-connection acme/office --yes", "without a question"),
    ),
    "create-route": (
        Example("create-route 10.66.0.0/16 --via fw-1 --via fw-2 -t acme", "two VMs share the connections"),
        Example("create-route 10.99.0.0/16 --via discard -t acme", "packets there are dropped"),
    ),
    "set-route": (
        Example("set-route 10.66.0.0/16 --add-via fw-3 --remove-via fw-1 -t acme", "another VM"),
        Example("set-route 10.66.0.0/16 --remove-via fw-2 -t acme --dry-run", "what would change"),
    ),
    "delete-route": (
        Example("delete-route 10.66.0.0/16 -t acme --dry-run", "what would be deleted"),
        Example("delete-route 10.66.0.0/16 -t acme --yes", "without a question"),
    ),
    "create-peering": (
        Example("create-peering umbrella -t acme", "takes effect when both want it"),
        Example("create-peering acme -t umbrella", "the other half"),
    ),
    "delete-peering": (
        Example("delete-peering umbrella -t acme --dry-run", "what would be deleted"),
        Example("delete-peering umbrella -t acme --yes", "without a question"),
    ),
    "create-direct-connect": (
        Example("create-direct-connect front --physical-network provider --vlan 42 -t acme", "a VLAN"),
        Example("create-direct-connect front --physical-network provider --vlan 42 -t acme --dry-run", "only look"),
    ),
    "delete-direct-connect": (
        Example("delete-direct-connect front -t acme --dry-run", "what would be disconnected"),
        Example("delete-direct-connect front -t acme --yes", "without a question"),
    ),
    "list-security-rules": (
        Example("list-security-rules -t acme", "of one tenant, on each host of its VMs"),
        Example("list-security-rules -t acme --group web -o json", "of one group, for a program"),
    ),
    "list-vpc-objects": (
        Example("list-vpc-objects -t acme", "gateways, groups, balancers …"),
        Example("list-vpc-objects --kind floating-ip -o json", "one kind, for a program"),
    ),
    "create-certificate": (
        Example("create-certificate ovn-central", "for the machine of OVN's databases"),
        Example("create-certificate vgpuctl --folder pki", "for this command, in a folder"),
    ),
}
