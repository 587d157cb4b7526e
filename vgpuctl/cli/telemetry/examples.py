# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "serve exporter": (
        Example("serve exporter", "serve metrics on 127.0.0.1:9635"),
        Example("serve exporter --once -l gpu1", "print one reading"),
    ),
    "list-targets": (
        Example("list-targets --exporter 127.0.0.1:9635", "for Prometheus's HTTP discovery"),
        Example("list-targets -t acme -o json", "what a tenant may scrape"),
    ),
    "export monitoring": (
        Example("export monitoring monitoring --dry-run", "what would be written"),
        Example("export monitoring monitoring --overwrite", "rules, dashboards, configurations"),
    ),
    "top": (
        Example("top", "live, until q is pressed"),
        Example("top --once -t acme", "one reading of a tenant's shares"),
    ),
    "map": (
        Example("map -l gpu1", "each GPU of a host to scale"),
        Example("map --full", "a drawing of each GPU of all hosts"),
    ),
    "rebalance": (
        Example("rebalance", "which VM should go where, and what that gains"),
        Example("rebalance --max-moves 1 --apply --until 2h", "make the best move, after a yes"),
    ),
    "advise": (
        Example("advise", "changes that are worth it"),
        Example("advise -t acme --since 7d -o json", "of a week, for a program"),
    ),
    "fit-performance": (
        Example("fit-performance --dry-run", "what the kept readings say"),
        Example("fit-performance --table measured.csv --dry-run", "from a table of measurements"),
    ),
    "predict": (
        Example("predict matmul --size 6000", "seconds on each card, the fastest first"),
        Example("predict matmul --size 6000 -o json", "for a program"),
    ),
    "serve web": (
        Example("serve web", "pages on 127.0.0.1:9636"),
        Example("serve web --print /", "print one page"),
    ),
}
