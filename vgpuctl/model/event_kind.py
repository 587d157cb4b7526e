# SPDX-License-Identifier: Apache-2.0
"""The kinds of events, each with its meaning. docs/events.md has the table, made from this list."""

import enum


class EventKind(enum.StrEnum):
    """The kind of an event. meaning: one sentence for docs/events.md."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> "EventKind":
        """Make a member of its name in the store and its meaning."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    TENANT_CREATED = "tenant-created", "A tenant was added to the store."
    TENANT_OFFBOARDED = (
        "tenant-offboarded",
        "Everything of a tenant was deleted; hosts and OVN have nothing of it.",
    )
    GUEST_PROBE_SET = "guest-probe-set", "A tenant allows, or no longer allows, the probe in its guests."
    QUOTA_SET = "quota-set", "Quotas of a tenant changed."
    POLICY_SET = "policy-set", "The preemption policy of a tenant changed."
    HOST_POOL_SET = "host-pool-set", "A host pool was created, or has other hosts."
    HOST_POOL_DELETED = "host-pool-deleted", "A host pool was deleted; its hosts serve every tenant again."
    HOST_POOL_GRANTED = "host-pool-granted", "A tenant may use a host pool."
    HOST_POOL_REVOKED = "host-pool-revoked", "A tenant may no longer use a host pool."

    VM_CREATED = "vm-created", "A VM was created, runs and holds its shares."
    VM_ROLLED_BACK = "vm-rolled-back", "A VM could not be created; what was built for it is gone, or is left to repair."
    VM_ADOPTED = "vm-adopted", "A domain that ran on a host became a VM of the store."
    VM_VIEWED = "vm-viewed", "The display of a VM was opened, or a picture was taken of it."
    VM_CONSOLE_SET = "vm-console-set", "A VM shows another console from its next start on."
    VM_STARTED = "vm-started", "A stopped VM runs again."
    VM_STOPPED = "vm-stopped", "A VM was stopped, or its kept shares were released."
    VM_SUSPENDED = (
        "vm-suspended",
        "A running VM was suspended to the disk of its host, from which its next start goes on.",
    )
    VM_RENAMED = "vm-renamed", "A VM has another name; it is noted under both."
    VM_LABELLED = "vm-labelled", "Labels of a VM were set or removed."
    VM_RESET = "vm-reset", "The guest of a VM was reset; its QEMU went on."
    VM_LOST = "vm-lost", "The data of a VM was on a dead host alone; it is not made anew."
    VM_FOUND = "vm-found", "The host of a lost VM is back and has its data; the VM may start again."
    VM_STALE_ENDED = "vm-stale-ended", "A host that came back still had a VM that is elsewhere; it was ended there."
    VM_MOVED = "vm-moved", "A stopped VM has another host, where its shares are promised."
    VM_MOVED_LIVE = "vm-moved-live", "A running VM goes on on another host; the evidence says how long it was halted."
    VM_MOVE_ENDED = "vm-move-ended", "A live move did not come to its end; the VM runs on where it was."
    MOVES_BEGUN = "moves-begun", "A run began to move VMs as planned, to make room or for load."
    MOVES_ENDED = "moves-ended", "A run that moved VMs as planned has ended; it says how many it moved."
    VGPU_STATE_LOST = (
        "vgpu-state-lost",
        "A VM goes on on another host, or was resumed, but its vGPU was reset on the way; the evidence has the lines.",
    )
    VM_RESIZED = (
        "vm-resized",
        "A VM has other vCPUs, memory, GPUs, parameters of its vGPUs or max_downtime, or that was rolled back.",
    )
    GPU_ATTACHED = "gpu-attached", "A VM has one more GPU, now or from its next start on."
    GPU_DETACHED = "gpu-detached", "A VM has one GPU less, once its guest has released it or it has stopped."
    VM_DELETED = "vm-deleted", "A VM was deleted with its devices and volumes."
    VM_RESTORED = "vm-restored", "A deleted VM was made again with the disks that were kept of it."
    KEPT_DISKS_DELETED = "kept-disks-deleted", "The kept disks of a deleted VM were deleted."
    VM_REPAIRED = "vm-repaired", "What a dead run left of a VM was finished or rolled back."
    VM_QUEUED = "vm-queued", "A VM waits in the queue."
    VM_WAITS = "vm-waits", "A VM of the queue was tried, and waits for another reason than before."
    VM_LEFT_QUEUE = "vm-left-queue", "A VM no longer waits in the queue."
    VM_PREEMPTION_NOTICE = "vm-preemption-notice", "A VM was told that it is preempted after its grace period."
    VM_PREEMPTION_WITHDRAWN = "vm-preemption-withdrawn", "The notice of a VM was withdrawn: it is not preempted."
    VM_PREEMPTED = "vm-preempted", "It was decided that a VM is preempted; it is stopped or suspended next."

    PROMISE_CHECKED = "promise-checked", "Everything promised to a VM's owner was checked; the evidence has each row."
    PROMISE_OBSERVED = (
        "promise-observed",
        "Something that a VM's owner was promised is not so any more, or is again; the evidence says what was seen.",
    )

    LEASE_RESERVED = "lease-reserved", "A share of a GPU was promised to a VM."
    LEASE_MOVED = "lease-moved", "A VM has another device than was promised."
    LEASE_RENUMBERED = (
        "lease-renumbered",
        "The driver of a host gives the vGPU type of a VM's share another id; the type is the same by its name.",
    )
    LEASE_RELEASED = "lease-released", "A share of a VM is free again."
    SHARE_CHECKED = (
        "share-checked",
        "A released share was reset and its GPU checked; the evidence says how, and what was read.",
    )
    LEASE_BROKEN = "lease-broken", "A share could not be built or released; repair goes on with it."
    PARTITIONS_SET = (
        "partitions-set",
        "Partitions of a host's NVSwitch fabric were activated or deactivated, as its running VMs need them.",
    )
    LEDGER_FIXED = "ledger-fixed", "The usage ledger did not agree with the leases, and was corrected."
    DISK_ATTACHED = "disk-attached", "A VM was given a data disk."
    DISK_DETACHING = "disk-detaching", "A data disk leaves a VM; its running guest may still have it."
    DISK_DETACHED = "disk-detached", "A data disk is the tenant's alone: no VM has it."
    DISK_RESIZED = "disk-resized", "A disk of a VM was made larger, or that was rolled back."
    DISKS_SNAPSHOT = "disks-snapshot", "A snapshot of a VM's disks was taken."
    DISKS_MERGING = "disks-merging", "The deletion of a snapshot began to write an overlay into the disk below it."
    DISKS_MERGED = "disks-merged", "A snapshot of a VM's disks was deleted; the disks keep what they hold."
    DISKS_REVERTED = "disks-reverted", "A VM's disks were brought back to a snapshot, which ended with that."
    MEDIA_EJECTED = "media-ejected", "The install media of a VM were taken out of its drives."
    NIC_ATTACHED = "nic-attached", "A VM was given one more network interface."
    NIC_DETACHING = "nic-detaching", "A network interface leaves a VM; its running guest may still have it."
    NIC_DETACHED = "nic-detached", "A network interface of a VM is gone, and its address is free."
    VOLUME_MADE = "volume-made", "A volume of a VM was made on a host."
    VOLUME_KEPT = "volume-kept", "A data disk outlived its VM; it is its tenant's."
    VOLUME_TAKEN = "volume-taken", "A VM has a data disk that its tenant had kept."
    VOLUME_FORGOTTEN = "volume-forgotten", "A volume of a VM is gone from its host, or was never made."

    LICENCE_POOL_CREATED = "licence-pool-created", "A pool of licences was created."
    LICENCE_POOL_CHANGED = "licence-pool-changed", "A pool of licences has another size, lease, server or token."
    LICENCE_POOL_DELETED = "licence-pool-deleted", "A pool of licences was deleted."
    LICENCE_TAKEN = "licence-taken", "A VM took a seat of a licence pool."
    LICENCE_RETURNED = "licence-returned", "A VM gave its seat back; this says when others can have it."
    LICENCE_OBSERVED = (
        "licence-observed",
        "The driver in the guest of a running VM lost its licence, or has it again; the host's NVML says so.",
    )

    NODE_POOL_CREATED = "node-pool-created", "A node pool of a tenant's cluster was created."
    NODE_POOL_CHANGED = "node-pool-changed", "A node pool has other values; its nodes keep what they were made with."
    NODE_POOL_DELETED = "node-pool-deleted", "A node pool was deleted with its nodes."
    NODE_WANTED = "node-wanted", "A node was asked for; its VM waits in the queue."
    NODE_JOINED = "node-joined", "A node is a member of its cluster."
    NODE_NOT_READY = "node-not-ready", "A node that had joined does not answer its cluster, or takes no work."
    NODE_READY = "node-ready", "A node answers its cluster and takes work again."
    NODE_NEVER_JOINED = "node-never-joined", "A node did not join its cluster in time; it is deleted."
    NODE_REFUSED = "node-refused", "Slurm was told that a node does not come; its jobs are queued again."
    NODE_LET_GO = "node-let-go", "A node is no longer wanted: it is drained and its VM deleted."
    NODE_CORDONED = "node-cordoned", "A cluster gives a node no new work, since its VM goes or its GPU is sick."
    NODE_UNCORDONED = "node-uncordoned", "A cluster may give a node new work again that vgpuctl had cordoned."
    NODE_NOT_TOLD = "node-not-told", "The cluster of a node was not told that its VM goes."
    NODE_DRAINED = "node-drained", "The cluster has no work on a node that leaves, or its time to drain is over."
    NODE_GONE = "node-gone", "A node and its VM are gone."

    RESERVATION_CREATED = "reservation-created", "Shares were reserved for a time."
    RESERVATION_MOVED = "reservation-moved", "A reservation has its shares on another host."
    RESERVATION_CANCELLED = "reservation-cancelled", "A reservation was cancelled."
    QUEUE_SET = "queue-set", "The order of the queue changed."

    IMAGE_REGISTERED = "image-registered", "An image was added to the catalogue."
    IMAGE_DELETED = "image-deleted", "An image was removed from the catalogue."

    NETWORK_CREATED = "network-created", "A tenant's network was created."
    NETWORK_REPAIRED = "network-repaired", "A network was brought to what the store says."
    NETWORK_DELETED = "network-deleted", "A tenant's network was deleted."
    EXTERNAL_NETWORK_CREATED = "external-network-created", "An external network was declared."
    EXTERNAL_NETWORK_CHANGED = "external-network-changed", "An external network changed."
    EXTERNAL_NETWORK_DELETED = "external-network-deleted", "An external network was deleted."
    CERTIFICATE_CREATED = "certificate-created", "A certificate for OVN's databases was issued."
    GATEWAY_CREATED = "gateway-created", "A tenant's gateway was created."
    GATEWAY_CHANGED = "gateway-changed", "A tenant's gateway changed."
    GATEWAY_DELETED = "gateway-deleted", "A tenant's gateway was deleted."
    ADDRESS_GROUP_CREATED = "address-group-created", "An address group was created."
    ADDRESS_GROUP_CHANGED = "address-group-changed", "The addresses of an address group changed."
    ADDRESS_GROUP_DELETED = "address-group-deleted", "An address group was deleted."
    EGRESS_POLICY_CREATED = "egress-policy-created", "The default for traffic from a tenant's VMs was set."
    EGRESS_POLICY_CHANGED = "egress-policy-changed", "The default for traffic from a tenant's VMs changed."
    EGRESS_POLICY_DELETED = "egress-policy-deleted", "The default for traffic from a tenant's VMs was deleted."
    SECURITY_GROUP_CREATED = "security-group-created", "A security group was created."
    SECURITY_GROUP_CHANGED = "security-group-changed", "The rules of a security group changed."
    SECURITY_GROUP_DELETED = "security-group-deleted", "A security group was deleted."
    PACKETS_LOGGED = "packets-logged", "Packets matched a rule that logs them; the evidence has the first and the last."
    FLOATING_IP_CREATED = "floating-ip-created", "A floating IP was assigned to a VM."
    FLOATING_IP_CHANGED = "floating-ip-changed", "A floating IP changed."
    FLOATING_IP_DELETED = "floating-ip-deleted", "A floating IP was released."
    PORT_FORWARD_CREATED = "port-forward-created", "A port forward was created."
    PORT_FORWARD_CHANGED = "port-forward-changed", "A port forward changed."
    PORT_FORWARD_DELETED = "port-forward-deleted", "A port forward was deleted."
    LOAD_BALANCER_CREATED = "load-balancer-created", "A load balancer was created."
    LOAD_BALANCER_CHANGED = "load-balancer-changed", "A load balancer changed."
    LOAD_BALANCER_DELETED = "load-balancer-deleted", "A load balancer was deleted."
    DIRECT_CONNECT_CREATED = "direct-connect-created", "A network was connected to a physical network."
    DIRECT_CONNECT_CHANGED = "direct-connect-changed", "The connection to a physical network changed."
    DIRECT_CONNECT_DELETED = "direct-connect-deleted", "A network was disconnected from a physical network."
    VPN_CONNECTION_CREATED = "vpn-connection-created", "A VPN connection was created."
    VPN_CONNECTION_CHANGED = "vpn-connection-changed", "A VPN connection changed."
    VPN_CONNECTION_DELETED = "vpn-connection-deleted", "A VPN connection was deleted."
    VPN_KEYS_ROTATED = "vpn-keys-rotated", "Keys of a VPN connection were replaced."
    ROUTE_CREATED = "route-created", "A static route was created."
    ROUTE_CHANGED = "route-changed", "The next hops of a static route changed."
    ROUTE_DELETED = "route-deleted", "A static route was deleted."
    PEERING_CREATED = "peering-created", "A tenant declared a peering with another one."
    PEERING_CHANGED = "peering-changed", "A peering changed."
    PEERING_DELETED = "peering-deleted", "A peering was deleted."
    CONTACT_CREATED = "contact-created", "The contact of a tenant was set."
    CONTACT_CHANGED = "contact-changed", "The contact of a tenant changed."
    CONTACT_DELETED = "contact-deleted", "The contact of a tenant was deleted."

    HOST_ADOPTED = "host-adopted", "The VMs and idle vGPUs of a host were taken over."
    LAYOUT_STEP_DONE = "layout-step-done", "A step towards a host's layout was done, or undone."
    LAYOUT_STEP_FAILED = "layout-step-failed", "A step towards a host's layout failed, or was refused."
    SNAPSHOT_TAKEN = "snapshot-taken", "The state that a reboot must bring back was taken from a host."
    GARBAGE_DELETED = "garbage-deleted", "A leftover that the store does not know was deleted."

    HOST_CORDONED = "host-cordoned", "A host takes no new VM; its own VMs may start."
    HOST_DRAINED = "host-drained", "A host was emptied: no VM starts on it."
    HOST_UNCORDONED = "host-uncordoned", "A host takes VMs again."
    HOST_FENCED = "host-fenced", "A host was declared dead; nothing that it says is trusted."
    HOST_FORGOTTEN = (
        "host-forgotten",
        "All that the store had of a dead host, or of one in no inventory, was removed.",
    )
    HOST_TRUSTED = "host-trusted", "A host that was fenced is trusted again."
    GPU_CORDONED = "gpu-cordoned", "A GPU or VF takes no new VM; its own VMs may start."
    GPU_UNCORDONED = "gpu-uncordoned", "A GPU or VF takes VMs again."
    GPU_QUARANTINED = "gpu-quarantined", "A GPU or VF is suspect and is not handed out."
    GPU_RELEASED = "gpu-released", "The quarantine of a GPU or VF ended."
    GPU_HEALTH = "gpu-health", "Something about the health of a GPU was found."

    HOST_OBSERVED = "host-observed", "A host answers again, or does not."
    HOST_REBOOTED = "host-rebooted", "A host was started again."
    LIBVIRT_OBSERVED = "libvirt-observed", "libvirt of a host answers again, or does not."
    LAYOUT_OBSERVED = "layout-observed", "A host differs from its layout in another way than before."
    VM_OBSERVED = "vm-observed", "A VM is not as the store declares it, or is so again."
    SHARE_OBSERVED = "share-observed", "A share is not as the store declares it, or is so again."
    GPU_OBSERVED = "gpu-observed", "A GPU has another state, UUID or problem than before."
    GPU_MOVED = "gpu-moved", "A GPU is in another slot than before."
    FRAMEBUFFER_PREDICTED = (
        "framebuffer-predicted",
        "The framebuffer of a VM will be full soon if it grows as it did, or no longer; the evidence has the times.",
    )
    EXHAUSTION_OBSERVED = (
        "exhaustion-observed",
        "Memory, huge pages or a pool of a host, or licence seats, are used up or will be soon, or no longer.",
    )
    CONTENTION_OBSERVED = (
        "contention-observed",
        "A VM takes time of a GPU that its neighbours were promised, or no longer; the evidence names them.",
    )
    OVER_PROMISE_ANSWERED = (
        "over-promise-answered",
        "A VM that takes time of a GPU which its neighbours were promised was limited, moved or stopped, or why not; "
        "or such a limit was undone.",
    )
    TUNING_BEGUN = (
        "tuning-begun",
        "A controller applies advice, and watches the VMs that it touches; the evidence names them.",
    )
    TUNING_KEPT = "tuning-kept", "A change in trial is kept: nothing that was looked at of its VMs got worse."
    TUNING_ROLLED_BACK = (
        "tuning-rolled-back",
        "A change in trial was rolled back: its VMs got worse, or nobody knows that they did not.",
    )
    TUNING_ENDED = (
        "tuning-ended",
        "A change in trial is left as it is found: somebody else changed the same, or the host was booted or is gone.",
    )
    TUNING_REFUSED = (
        "tuning-refused",
        "A controller does not try advice, and why; told again for another reason.",
    )
    LAYOUT_NOT_RESTORED = "layout-not-restored", "A host that was booted could not be brought back into its layout."
    SHARE_NOT_RESTORED = "share-not-restored", "The shares of a VM could not be made again after its host was booted."
    VM_NOT_RESTARTED = "vm-not-restarted", "A VM that its restart policy starts again could not start."

    EVENTS_PRUNED = "events-pruned", "Old events were deleted; this says how many and of which time."
    ROLE_GRANTED = "role-granted", "A role of the database got other rights on the store."
    STORE_BACKED_UP = "store-backed-up", "A backup of the store was written."
    STORE_RESTORED = "store-restored", "The store was restored from a backup, and is older than the hosts."
    MACHINE_GONE = (
        "machine-gone",
        "Commands and controllers of a machine were ended in the store, since it was said to be gone for good.",
    )
    STORE_MARKED = "store-marked", "The store was said to be older than the hosts, as after the loss of a primary."
    STORE_RECONCILED = "store-reconciled", "A restored store was compared with every host, and may change again."
    VM_FORGOTTEN = "vm-forgotten", "A VM left a restored store, since the hosts do not have it as the store said."
    VM_RECONCILED = "vm-reconciled", "A VM whose creation or deletion had not ended at the backup was noted as it is."
