-- Store of vgpuctl 0.1.0 (commit abdeb08d, schema 0023), written by tests/release/first_release.py.
--
-- PostgreSQL database dump
--

\restrict BKfDkPwu2pv6HoED36JpzP9yY2rOY85rRLOmCmISGxZZvo3EJ3u1T1Dqyweh0EM

-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: addresses; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.addresses (
    network_id text NOT NULL,
    address text NOT NULL,
    kind text NOT NULL,
    holder text NOT NULL
);


--
-- Name: controllers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.controllers (
    id text NOT NULL,
    pid bigint NOT NULL,
    hostname text NOT NULL,
    machine text NOT NULL,
    process_start text NOT NULL,
    beat bigint NOT NULL,
    serves text NOT NULL,
    begun_at double precision NOT NULL
);


--
-- Name: events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.events (
    id bigint NOT NULL,
    at double precision NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    detail text NOT NULL,
    tenant text,
    host text,
    command text,
    os_user text,
    client_host text,
    database_role text DEFAULT SESSION_USER,
    before text,
    after text,
    evidence text
);


--
-- Name: events_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: events_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.events_id_seq OWNED BY public.events.id;


--
-- Name: external_addresses; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.external_addresses (
    external_network text NOT NULL,
    address text NOT NULL,
    tenant text NOT NULL,
    holder text NOT NULL
);


--
-- Name: external_networks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.external_networks (
    name text NOT NULL,
    spec text NOT NULL
);


--
-- Name: host_claims; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.host_claims (
    host text NOT NULL,
    controller text NOT NULL
);


--
-- Name: host_records; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.host_records (
    host text NOT NULL,
    kind text NOT NULL,
    content text NOT NULL,
    at double precision NOT NULL
);


--
-- Name: hosts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.hosts (
    name text NOT NULL,
    generation bigint NOT NULL,
    facts text,
    facts_shape text,
    read_at double precision,
    CONSTRAINT ck_hosts_ck_hosts_generation CHECK ((generation >= 0))
);


--
-- Name: image_copies; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.image_copies (
    image text NOT NULL,
    host text NOT NULL,
    real_path text NOT NULL,
    size_bytes bigint NOT NULL,
    device text NOT NULL,
    inode text NOT NULL,
    changed_ns bigint NOT NULL,
    verified_at double precision NOT NULL
);


--
-- Name: images; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.images (
    name text NOT NULL,
    kind text NOT NULL,
    format text NOT NULL,
    sha256 text NOT NULL,
    path text,
    pool text,
    volume text,
    os text,
    created_at double precision NOT NULL,
    guest_driver text
);


--
-- Name: leases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.leases (
    id text NOT NULL,
    vm_uuid text NOT NULL,
    tenant text NOT NULL,
    vm_name text NOT NULL,
    host text NOT NULL,
    "position" integer NOT NULL,
    device text NOT NULL,
    share text NOT NULL,
    share_version integer NOT NULL,
    state text NOT NULL,
    problem text,
    created_at double precision NOT NULL,
    changed_at double precision NOT NULL
);


--
-- Name: licence_pools; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.licence_pools (
    name text NOT NULL,
    edition text NOT NULL,
    seats integer NOT NULL,
    lease_s double precision NOT NULL,
    server text,
    token text,
    created_at double precision NOT NULL
);


--
-- Name: licence_seats; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.licence_seats (
    id bigint NOT NULL,
    pool text NOT NULL,
    tenant text NOT NULL,
    vm_uuid text NOT NULL,
    vm_name text NOT NULL,
    edition text NOT NULL,
    taken_at double precision NOT NULL,
    used_at double precision,
    released_at double precision
);


--
-- Name: licence_seats_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.licence_seats_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: licence_seats_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.licence_seats_id_seq OWNED BY public.licence_seats.id;


--
-- Name: networks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.networks (
    id text NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    backend text NOT NULL,
    host text,
    state text NOT NULL,
    request text NOT NULL,
    created_at double precision NOT NULL,
    label text
);


--
-- Name: operations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.operations (
    id bigint NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    detail text NOT NULL,
    pid bigint NOT NULL,
    hostname text NOT NULL,
    machine text NOT NULL,
    process_start text NOT NULL,
    begun_at double precision NOT NULL
);


--
-- Name: operations_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.operations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: operations_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.operations_id_seq OWNED BY public.operations.id;


--
-- Name: pool_grants; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.pool_grants (
    pool text NOT NULL,
    tenant text NOT NULL
);


--
-- Name: pool_hosts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.pool_hosts (
    host text NOT NULL,
    pool text NOT NULL
);


--
-- Name: pools; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.pools (
    name text NOT NULL,
    created_at double precision NOT NULL
);


--
-- Name: ports; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.ports (
    id text NOT NULL,
    network_id text NOT NULL,
    vm_uuid text NOT NULL,
    "position" integer NOT NULL,
    mac_address text NOT NULL,
    address text NOT NULL
);


--
-- Name: proofs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.proofs (
    id bigint NOT NULL,
    vm_uuid text NOT NULL,
    at double precision NOT NULL,
    kept boolean,
    content text NOT NULL
);


--
-- Name: proofs_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.proofs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: proofs_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.proofs_id_seq OWNED BY public.proofs.id;


--
-- Name: queue; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.queue (
    id bigint NOT NULL,
    kind text NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    request text NOT NULL,
    request_version integer NOT NULL,
    queued_at double precision NOT NULL,
    reason text,
    may_preempt boolean,
    secrets text
);


--
-- Name: queue_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.queue_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: queue_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.queue_id_seq OWNED BY public.queue.id;


--
-- Name: quotas; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.quotas (
    tenant text NOT NULL,
    resource text NOT NULL,
    most bigint,
    guaranteed bigint
);


--
-- Name: reclaims; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.reclaims (
    operation_id bigint NOT NULL,
    tenant text NOT NULL,
    vm_name text NOT NULL,
    resource text NOT NULL,
    amount bigint NOT NULL
);


--
-- Name: reservations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.reservations (
    tenant text NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    content text NOT NULL,
    content_version integer NOT NULL,
    vm_uuid text,
    created_at double precision NOT NULL
);


--
-- Name: restrictions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.restrictions (
    host text NOT NULL,
    device text NOT NULL,
    kind text NOT NULL,
    reason text NOT NULL,
    finding text,
    gpu_uuid text,
    set_by text NOT NULL,
    set_at double precision NOT NULL
);


--
-- Name: settings; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.settings (
    name text NOT NULL,
    value text NOT NULL
);


--
-- Name: tenants; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tenants (
    name text NOT NULL,
    created_at double precision NOT NULL,
    reclaim text,
    preempt text,
    grace_s double precision,
    guest_probe boolean
);


--
-- Name: usage; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.usage (
    id bigint NOT NULL,
    lease_id text NOT NULL,
    tenant text NOT NULL,
    vm_uuid text NOT NULL,
    vm_name text NOT NULL,
    host text NOT NULL,
    gpu text NOT NULL,
    profile text NOT NULL,
    framebuffer_mib bigint NOT NULL,
    compute_slices integer NOT NULL,
    card_part double precision NOT NULL,
    begun_at double precision NOT NULL,
    ended_at double precision
);


--
-- Name: usage_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.usage_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: usage_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.usage_id_seq OWNED BY public.usage.id;


--
-- Name: vgpuctl_version; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.vgpuctl_version (
    version_num character varying(32) NOT NULL
);


--
-- Name: vms; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.vms (
    uuid text NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    state text NOT NULL,
    problem text,
    request text NOT NULL,
    request_version integer NOT NULL,
    created_at double precision NOT NULL,
    ends_at double precision,
    gang text,
    preempted_at double precision,
    preempted_by text,
    domain text,
    nodes text,
    preempted_for_good boolean,
    guest_driver text
);


--
-- Name: volumes; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.volumes (
    host text NOT NULL,
    pool text NOT NULL,
    name text NOT NULL,
    vm_uuid text NOT NULL,
    tenant text NOT NULL,
    vm_name text NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    capacity_bytes bigint,
    key text,
    path text,
    created_at double precision NOT NULL,
    format text,
    backing_path text,
    label text DEFAULT ''::text NOT NULL,
    keep boolean
);


--
-- Name: vpc_objects; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.vpc_objects (
    tenant text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    spec text NOT NULL
);


--
-- Name: events id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events ALTER COLUMN id SET DEFAULT nextval('public.events_id_seq'::regclass);


--
-- Name: licence_seats id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.licence_seats ALTER COLUMN id SET DEFAULT nextval('public.licence_seats_id_seq'::regclass);


--
-- Name: operations id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operations ALTER COLUMN id SET DEFAULT nextval('public.operations_id_seq'::regclass);


--
-- Name: proofs id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.proofs ALTER COLUMN id SET DEFAULT nextval('public.proofs_id_seq'::regclass);


--
-- Name: queue id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.queue ALTER COLUMN id SET DEFAULT nextval('public.queue_id_seq'::regclass);


--
-- Name: usage id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.usage ALTER COLUMN id SET DEFAULT nextval('public.usage_id_seq'::regclass);


--
-- Data for Name: addresses; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.addresses VALUES ('420a46a2-3b59-4c90-9354-6aff4b8bede1', '10.20.0.1', 'gateway', '420a46a2-3b59-4c90-9354-6aff4b8bede1');


--
-- Data for Name: controllers; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: events; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.events VALUES (1, 1795721461.4230113, 'tenant-created', 'acme', '', 'acme', NULL, 'create-tenant', 'root', 'vm', 'vgpuctl_test', NULL, '{"reclaim":"never","preempt":"ask","grace_s":30.0}', NULL);
INSERT INTO public.events VALUES (2, 1795721462.2571352, 'tenant-created', 'umbrella', '', 'umbrella', NULL, 'create-tenant', 'root', 'vm', 'vgpuctl_test', NULL, '{"reclaim":"never","preempt":"ask","grace_s":30.0}', NULL);
INSERT INTO public.events VALUES (3, 1795721463.7079048, 'quota-set', 'acme', '', 'acme', NULL, 'set-quota', 'root', 'vm', 'vgpuctl_test', '{"shares:A40-8Q":null,"vms":null}', '{"shares:A40-8Q":"up to 6","vms":"up to 9"}', NULL);
INSERT INTO public.events VALUES (4, 1795721465.2405505, 'network-created', 'acme.back', '', 'acme', 'sim-001', 'create-network', 'root', 'vm', 'vgpuctl_test', NULL, '{"cidr":"10.20.0.0/24","backend":"libvirt"}', NULL);
INSERT INTO public.events VALUES (5, 1795721467.7275252, 'lease-reserved', 'acme.web-1', '', 'acme', 'sim-001', 'create-vm', 'root', 'vm', 'vgpuctl_test', NULL, '{"state":"reserved","profile":"A40-24Q","device":"0000:41:00.4","gpu":"0000:41:00.0"}', NULL);
INSERT INTO public.events VALUES (6, 1795721467.9200356, 'volume-made', 'acme.web-1', 'disk', 'acme', 'sim-001', 'create-vm', 'root', 'vm', 'vgpuctl_test', NULL, '{"pool":"default","name":"69784a2b-3b5f-4a71-b27c-8c82b8cd7241.qcow2","path":"/var/lib/libvirt/images/69784a2b-3b5f-4a71-b27c-8c82b8cd7241.qcow2"}', NULL);
INSERT INTO public.events VALUES (7, 1795721468.097863, 'vm-created', 'acme.web-1', '', 'acme', 'sim-001', 'create-vm', 'root', 'vm', 'vgpuctl_test', NULL, '{"state":"running","host":"sim-001","shares":["A40-24Q on 0000:41:00.4"]}', NULL);
INSERT INTO public.events VALUES (8, 1795721469.7304533, 'lease-reserved', 'acme.web-2', '', 'acme', 'sim-001', 'create-vm', 'root', 'vm', 'vgpuctl_test', NULL, '{"state":"reserved","profile":"A40-24Q","device":"0000:41:00.5","gpu":"0000:41:00.0"}', NULL);
INSERT INTO public.events VALUES (9, 1795721470.5496168, 'volume-made', 'acme.web-2', 'disk', 'acme', 'sim-001', 'create-vm', 'root', 'vm', 'vgpuctl_test', NULL, '{"pool":"default","name":"016f3ce3-2207-4590-a6d4-181f020a1516.qcow2","path":"/var/lib/libvirt/images/016f3ce3-2207-4590-a6d4-181f020a1516.qcow2"}', NULL);
INSERT INTO public.events VALUES (10, 1795721470.6924438, 'vm-created', 'acme.web-2', '', 'acme', 'sim-001', 'create-vm', 'root', 'vm', 'vgpuctl_test', NULL, '{"state":"running","host":"sim-001","shares":["A40-24Q on 0000:41:00.5"]}', NULL);
INSERT INTO public.events VALUES (11, 1795721472.4875672, 'lease-reserved', 'umbrella.idle', '', 'umbrella', 'sim-002', 'create-vm', 'root', 'vm', 'vgpuctl_test', NULL, '{"state":"reserved","profile":"A40-24Q","device":"0000:41:00.4","gpu":"0000:41:00.0"}', NULL);
INSERT INTO public.events VALUES (12, 1795721473.60747, 'volume-made', 'umbrella.idle', 'disk', 'umbrella', 'sim-002', 'create-vm', 'root', 'vm', 'vgpuctl_test', NULL, '{"pool":"default","name":"ef4ea9a8-cabe-4a4a-9478-20f533e040b1.qcow2","path":"/var/lib/libvirt/images/ef4ea9a8-cabe-4a4a-9478-20f533e040b1.qcow2"}', NULL);
INSERT INTO public.events VALUES (13, 1795721473.8927257, 'vm-created', 'umbrella.idle', '', 'umbrella', 'sim-002', 'create-vm', 'root', 'vm', 'vgpuctl_test', NULL, '{"state":"running","host":"sim-002","shares":["A40-24Q on 0000:41:00.4"]}', NULL);
INSERT INTO public.events VALUES (14, 1795721478.7984357, 'vm-stopped', 'umbrella.idle', '', 'umbrella', 'sim-002', 'stop-vm', 'root', 'vm', 'vgpuctl_test', '{"state":"running","host":"sim-002","shares":["A40-24Q on 0000:41:00.4"]}', '{"state":"stopped","host":"sim-002","shares":["A40-24Q on 0000:41:00.4"]}', NULL);
INSERT INTO public.events VALUES (15, 1795721481.470048, 'vm-queued', 'umbrella.nightly', 'no GPU can take A40-48Q for VM umbrella/nightly', 'umbrella', NULL, 'create-vm', 'root', 'vm', 'vgpuctl_test', NULL, '{"gpus":["A40-48Q"],"together with":[]}', NULL);
INSERT INTO public.events VALUES (16, 1795721483.450439, 'reservation-created', 'acme.batch', '', 'acme', 'sim-001', 'reserve', 'root', 'vm', 'vgpuctl_test', NULL, '{"gpus":["A40-24Q"],"shares":["A40-24Q on 0000:41:00.6"],"begin":"2036-12-01 00:00","end":"2036-12-02 00:00","every":null}', NULL);
INSERT INTO public.events VALUES (17, 1795721484.8730102, 'host-cordoned', 'sim-002', 'memory', NULL, 'sim-002', 'cordon-host', 'root', 'vm', 'vgpuctl_test', NULL, '{"cordon":"memory"}', NULL);


--
-- Data for Name: external_addresses; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: external_networks; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: host_claims; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: host_records; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.host_records VALUES ('sim-001', 'identity', '["boot:7fcd124a-ddfc-40d5-8c9f-a181da8a2d59","gpu:GPU-fd87b815-a5d8-5ab7-9fc4-150487dc5f23","machine-id:98f2c9c916d2c006dfa16a92abf09c65","name:sim-001"]', 1795721467.6764498);
INSERT INTO public.host_records VALUES ('sim-002', 'identity', '["boot:76052355-c8dd-4d7a-8486-cb0d12236796","gpu:GPU-e539f364-24f6-5526-8c08-87d1185d427c","machine-id:340464e6456046cb6aa5f38810268889","name:sim-002"]', 1795721467.697958);
INSERT INTO public.host_records VALUES ('sim-001', 'health', '{"boot_id": "7fcd124a-ddfc-40d5-8c9f-a181da8a2d59", "gpus": [{"address": "0000:41:00.0", "kernel_ids": "10de:2235", "config_ids": "10de:2235", "driver": "nvidia", "bars": [{"number": 0, "size_bytes": 16777216, "is_assigned": true}, {"number": 1, "size_bytes": 68719476736, "is_assigned": true}, {"number": 3, "size_bytes": 33554432, "is_assigned": true}], "reset_methods": ["flr", "bus"], "uuid": "GPU-fd87b815-a5d8-5ab7-9fc4-150487dc5f23", "vbios": "94.02.00.00.00", "volatile": {"corrected": 0, "uncorrected": 0}, "aggregate": {"corrected": 0, "uncorrected": 0}, "remapped": {"corrected": 0, "uncorrected": 0, "is_pending": false, "has_failed": false}, "retired": null, "nvml_state": null, "xids": [], "unread": []}], "read_at_s": 19257.250148299, "log_begins_s": 0.006994, "scrubs_memory": null, "unread": []}', 1795721467.7784884);
INSERT INTO public.host_records VALUES ('sim-001', 'observations', '{"read_at":1795721481.3931851,"boot_id":"7fcd124a-ddfc-40d5-8c9f-a181da8a2d59","first_boot_id":"7fcd124a-ddfc-40d5-8c9f-a181da8a2d59","booted_at":1795721467.65582,"silence":null,"libvirt_silence":null,"layout":null,"gpus":{"0000:41:00.0":{"state":"present","at":1795721481.3931851,"uuid":"GPU-fd87b815-a5d8-5ab7-9fc4-150487dc5f23","problems":[],"last":null}},"vms":{"69784a2b-3b5f-4a71-b27c-8c82b8cd7241":{"state":"running","at":1795721468.0971947,"as_declared":true,"name":null,"has_failed":false},"016f3ce3-2207-4590-a6d4-181f020a1516":{"state":"running","at":1795721470.6915386,"as_declared":true,"name":null,"has_failed":false}},"shares":{"ddecd658-6446-45e7-9ac5-191bafd65850":{"state":"held","at":1795721481.3931851,"as_declared":true,"name":null,"has_failed":false},"68490907-7b14-436a-a9a5-617ad15d133b":{"state":"held","at":1795721481.3931851,"as_declared":true,"name":null,"has_failed":false}}}', 1795721481.3997455);
INSERT INTO public.host_records VALUES ('sim-002', 'health', '{"boot_id": "76052355-c8dd-4d7a-8486-cb0d12236796", "gpus": [{"address": "0000:41:00.0", "kernel_ids": "10de:2235", "config_ids": "10de:2235", "driver": "nvidia", "bars": [{"number": 0, "size_bytes": 16777216, "is_assigned": true}, {"number": 1, "size_bytes": 68719476736, "is_assigned": true}, {"number": 3, "size_bytes": 33554432, "is_assigned": true}], "reset_methods": ["flr", "bus"], "uuid": "GPU-e539f364-24f6-5526-8c08-87d1185d427c", "vbios": "94.02.00.00.00", "volatile": {"corrected": 0, "uncorrected": 0}, "aggregate": {"corrected": 0, "uncorrected": 0}, "remapped": {"corrected": 0, "uncorrected": 0, "is_pending": false, "has_failed": false}, "retired": null, "nvml_state": null, "xids": [], "unread": []}], "read_at_s": 19262.87102689, "log_begins_s": 0.000881, "scrubs_memory": null, "unread": []}', 1795721473.4085124);
INSERT INTO public.host_records VALUES ('sim-002', 'observations', '{"read_at":1795721481.352782,"boot_id":"76052355-c8dd-4d7a-8486-cb0d12236796","first_boot_id":"76052355-c8dd-4d7a-8486-cb0d12236796","booted_at":1795721467.6929147,"silence":null,"libvirt_silence":null,"layout":null,"gpus":{"0000:41:00.0":{"state":"present","at":1795721481.352782,"uuid":"GPU-e539f364-24f6-5526-8c08-87d1185d427c","problems":[],"last":null}},"vms":{"ef4ea9a8-cabe-4a4a-9478-20f533e040b1":{"state":"shut-off","at":1795721478.7580569,"as_declared":true,"name":null,"has_failed":false}},"shares":{"eff4d960-247c-40a8-b645-cc1291f07e56":{"state":"free","at":1795721481.352782,"as_declared":true,"name":null,"has_failed":false}}}', 1795721481.3710434);


--
-- Data for Name: hosts; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.hosts VALUES ('sim-001', 3, '{"hostname":"sim-001","boot_id":"7fcd124a-ddfc-40d5-8c9f-a181da8a2d59","kernel":"6.8.0-simulated","kernel_command_line":"root=/dev/vda1 intel_iommu=on iommu=pt","operating_system":"Simulated host of vgpuctl''s lab","python":"3.11.7","cpus":64,"memory_mib":524288,"memory_available_mib":524288,"numa_nodes":[{"number":0,"cpus":"0-63","memory_mib":524288,"memory_available_mib":524288,"hugepages":[{"size_kib":2048,"total":0,"free":0,"is_mounted":null},{"size_kib":1048576,"total":0,"free":0,"is_mounted":null}],"cores":["0,32","1,33","2,34","3,35","4,36","5,37","6,38","7,39","8,40","9,41","10,42","11,43","12,44","13,45","14,46","15,47","16,48","17,49","18,50","19,51","20,52","21,53","22,54","23,55","24,56","25,57","26,58","27,59","28,60","29,61","30,62","31,63"]}],"iommu_active":true,"kvm":true,"libvirt_version":"10.0.0","qemu_version":"7.2.22","nvidia_driver":"580.105.06","nvml_version":"13.580.105.06","nvml_problem":null,"gpus":[{"address":"0000:41:00.0","vendor_id":"10de","device_id":"2235","subsystem_id":"10de:145a","pci_class":"030200","name":"NVIDIA A40","uuid":"GPU-fd87b815-a5d8-5ab7-9fc4-150487dc5f23","driver":"nvidia","iommu_group":1000,"iommu_group_members":["0000:41:00.0"],"numa_node":0,"local_cpus":"0-63","companions":[],"sharing":["vf-profile"],"total_vfs":32,"vfs":[{"address":"0000:41:00.4","number":0,"driver":"nvidia","iommu_group":1001,"current_type":"565","mdev_uuid":null,"holders":[{"pid":10000,"command":"qemu-system-x86_64","vm_uuid":"69784a2b-3b5f-4a71-b27c-8c82b8cd7241"}],"problem":null,"offers_types":true,"last_use":1,"vgpu_params":""},{"address":"0000:41:00.5","number":1,"driver":"nvidia","iommu_group":1002,"current_type":"565","mdev_uuid":null,"holders":[{"pid":10001,"command":"qemu-system-x86_64","vm_uuid":"016f3ce3-2207-4590-a6d4-181f020a1516"}],"problem":null,"offers_types":true,"last_use":2,"vgpu_params":""},{"address":"0000:41:00.6","number":2,"driver":"nvidia","iommu_group":1003,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:00.7","number":3,"driver":"nvidia","iommu_group":1004,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.0","number":4,"driver":"nvidia","iommu_group":1005,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.1","number":5,"driver":"nvidia","iommu_group":1006,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.2","number":6,"driver":"nvidia","iommu_group":1007,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.3","number":7,"driver":"nvidia","iommu_group":1008,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.4","number":8,"driver":"nvidia","iommu_group":1009,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.5","number":9,"driver":"nvidia","iommu_group":1010,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.6","number":10,"driver":"nvidia","iommu_group":1011,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.7","number":11,"driver":"nvidia","iommu_group":1012,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.0","number":12,"driver":"nvidia","iommu_group":1013,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.1","number":13,"driver":"nvidia","iommu_group":1014,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.2","number":14,"driver":"nvidia","iommu_group":1015,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.3","number":15,"driver":"nvidia","iommu_group":1016,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.4","number":16,"driver":"nvidia","iommu_group":1017,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.5","number":17,"driver":"nvidia","iommu_group":1018,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.6","number":18,"driver":"nvidia","iommu_group":1019,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.7","number":19,"driver":"nvidia","iommu_group":1020,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.0","number":20,"driver":"nvidia","iommu_group":1021,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.1","number":21,"driver":"nvidia","iommu_group":1022,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.2","number":22,"driver":"nvidia","iommu_group":1023,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.3","number":23,"driver":"nvidia","iommu_group":1024,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.4","number":24,"driver":"nvidia","iommu_group":1025,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.5","number":25,"driver":"nvidia","iommu_group":1026,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.6","number":26,"driver":"nvidia","iommu_group":1027,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.7","number":27,"driver":"nvidia","iommu_group":1028,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.0","number":28,"driver":"nvidia","iommu_group":1029,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.1","number":29,"driver":"nvidia","iommu_group":1030,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.2","number":30,"driver":"nvidia","iommu_group":1031,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.3","number":31,"driver":"nvidia","iommu_group":1032,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null}],"types":[{"type_id":"555","name":"A40-1B","full_name":"NVIDIA A40-1B","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}},{"type_id":"556","name":"A40-2B","full_name":"NVIDIA A40-2B","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}},{"type_id":"557","name":"A40-1Q","full_name":"NVIDIA A40-1Q","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":60}},{"type_id":"558","name":"A40-2Q","full_name":"NVIDIA A40-2Q","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"559","name":"A40-3Q","full_name":"NVIDIA A40-3Q","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"560","name":"A40-4Q","full_name":"NVIDIA A40-4Q","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"561","name":"A40-6Q","full_name":"NVIDIA A40-6Q","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"562","name":"A40-8Q","full_name":"NVIDIA A40-8Q","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"563","name":"A40-12Q","full_name":"NVIDIA A40-12Q","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"564","name":"A40-16Q","full_name":"NVIDIA A40-16Q","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"565","name":"A40-24Q","full_name":"NVIDIA A40-24Q","framebuffer_mib":24576,"max_instances":2,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"566","name":"A40-48Q","full_name":"NVIDIA A40-48Q","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"567","name":"A40-1A","full_name":"NVIDIA A40-1A","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"568","name":"A40-2A","full_name":"NVIDIA A40-2A","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"569","name":"A40-3A","full_name":"NVIDIA A40-3A","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"570","name":"A40-4A","full_name":"NVIDIA A40-4A","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"571","name":"A40-6A","full_name":"NVIDIA A40-6A","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"572","name":"A40-8A","full_name":"NVIDIA A40-8A","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"573","name":"A40-12A","full_name":"NVIDIA A40-12A","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"574","name":"A40-16A","full_name":"NVIDIA A40-16A","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"575","name":"A40-24A","full_name":"NVIDIA A40-24A","framebuffer_mib":24576,"max_instances":2,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"576","name":"A40-48A","full_name":"NVIDIA A40-48A","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"581","name":"A40-4C","full_name":"NVIDIA A40-4C","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"582","name":"A40-6C","full_name":"NVIDIA A40-6C","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"583","name":"A40-8C","full_name":"NVIDIA A40-8C","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"584","name":"A40-12C","full_name":"NVIDIA A40-12C","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"585","name":"A40-16C","full_name":"NVIDIA A40-16C","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"586","name":"A40-24C","full_name":"NVIDIA A40-24C","framebuffer_mib":24576,"max_instances":2,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"587","name":"A40-48C","full_name":"NVIDIA A40-48C","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"60004","name":"A40-3B","full_name":"NVIDIA A40-3B","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}}],"mdevs":[],"bars_bytes":[16777216,68719476736,33554432],"reset_methods":["flr","bus"],"memory_mib":46068,"mig_mode":null,"holders":[],"problems":[],"users":[],"mig":null,"heterogeneous":false,"scheduler":{"policy":"best-effort","time_slice_us":null},"unread":[],"utilisation_percent":54,"strangers":[],"displays":[],"persistence":[],"topology":{"root":"pci0000:40","bridges":["0000:40:01.0"],"nvlinks":[],"fabric":null,"module":null}}],"read_at":1795721481.3828719,"services":[{"name":"libvirtd.service","active":true},{"name":"nvidia-dcgm.service","active":false},{"name":"nvidia-persistenced.service","active":false},{"name":"nvidia-vgpu-mgr.service","active":true},{"name":"nvidia-vgpud.service","active":false},{"name":"openvswitch-switch.service","active":false},{"name":"ovn-controller.service","active":false},{"name":"ssh.service","active":true}],"hugepages":[{"size_kib":2048,"total":0,"free":0,"is_mounted":true},{"size_kib":1048576,"total":0,"free":0,"is_mounted":true}],"network_interfaces":["eno1","eno2","lo","virbr0"],"boot":null,"ovn":{"missing":[],"modules":["openvswitch","geneve","vxlan"],"switch_active":false,"controller_active":false,"chassis":null,"bridges":[],"interfaces":[{"name":"eno1","mtu":1500,"addresses":["10.84.0.1/16"]},{"name":"eno2","mtu":1500,"addresses":[]}],"has_certificate":false,"not_enabled":[],"managed":[]},"mdevctl":[],"unread_functions":[],"addresses":null,"selinux":null,"distribution":["debian"],"guest_firmwares":[{"descriptor":"40-edk2-x86_64-secure-enrolled.json","features":["acpi-s3","amd-sev","enrolled-keys","requires-smm","secure-boot","verbose-dynamic"],"code":"/usr/share/OVMF/OVMF_CODE_4M.ms.fd","variables_format":"raw","variables_bytes":0},{"descriptor":"60-edk2-x86_64.json","features":["acpi-s3","amd-sev","verbose-dynamic"],"code":"/usr/share/OVMF/OVMF_CODE_4M.fd","variables_format":"raw","variables_bytes":0}],"machine_id":"98f2c9c916d2c006dfa16a92abf09c65","tpm_programs":["swtpm","swtpm_setup"]}', '6ff7501bfc090981', 1795721481.3828719);
INSERT INTO public.hosts VALUES ('sim-002', 2, '{"hostname":"sim-002","boot_id":"76052355-c8dd-4d7a-8486-cb0d12236796","kernel":"6.8.0-simulated","kernel_command_line":"root=/dev/vda1 intel_iommu=on iommu=pt","operating_system":"Simulated host of vgpuctl''s lab","python":"3.11.7","cpus":64,"memory_mib":524288,"memory_available_mib":524288,"numa_nodes":[{"number":0,"cpus":"0-63","memory_mib":524288,"memory_available_mib":524288,"hugepages":[{"size_kib":2048,"total":0,"free":0,"is_mounted":null},{"size_kib":1048576,"total":0,"free":0,"is_mounted":null}],"cores":["0,32","1,33","2,34","3,35","4,36","5,37","6,38","7,39","8,40","9,41","10,42","11,43","12,44","13,45","14,46","15,47","16,48","17,49","18,50","19,51","20,52","21,53","22,54","23,55","24,56","25,57","26,58","27,59","28,60","29,61","30,62","31,63"]}],"iommu_active":true,"kvm":true,"libvirt_version":"10.0.0","qemu_version":"7.2.22","nvidia_driver":"580.105.06","nvml_version":"13.580.105.06","nvml_problem":null,"gpus":[{"address":"0000:41:00.0","vendor_id":"10de","device_id":"2235","subsystem_id":"10de:145a","pci_class":"030200","name":"NVIDIA A40","uuid":"GPU-e539f364-24f6-5526-8c08-87d1185d427c","driver":"nvidia","iommu_group":1000,"iommu_group_members":["0000:41:00.0"],"numa_node":0,"local_cpus":"0-63","companions":[],"sharing":["vf-profile"],"total_vfs":32,"vfs":[{"address":"0000:41:00.4","number":0,"driver":"nvidia","iommu_group":1001,"current_type":"565","mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":1,"vgpu_params":""},{"address":"0000:41:00.5","number":1,"driver":"nvidia","iommu_group":1002,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:00.6","number":2,"driver":"nvidia","iommu_group":1003,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:00.7","number":3,"driver":"nvidia","iommu_group":1004,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.0","number":4,"driver":"nvidia","iommu_group":1005,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.1","number":5,"driver":"nvidia","iommu_group":1006,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.2","number":6,"driver":"nvidia","iommu_group":1007,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.3","number":7,"driver":"nvidia","iommu_group":1008,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.4","number":8,"driver":"nvidia","iommu_group":1009,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.5","number":9,"driver":"nvidia","iommu_group":1010,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.6","number":10,"driver":"nvidia","iommu_group":1011,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.7","number":11,"driver":"nvidia","iommu_group":1012,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.0","number":12,"driver":"nvidia","iommu_group":1013,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.1","number":13,"driver":"nvidia","iommu_group":1014,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.2","number":14,"driver":"nvidia","iommu_group":1015,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.3","number":15,"driver":"nvidia","iommu_group":1016,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.4","number":16,"driver":"nvidia","iommu_group":1017,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.5","number":17,"driver":"nvidia","iommu_group":1018,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.6","number":18,"driver":"nvidia","iommu_group":1019,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.7","number":19,"driver":"nvidia","iommu_group":1020,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.0","number":20,"driver":"nvidia","iommu_group":1021,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.1","number":21,"driver":"nvidia","iommu_group":1022,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.2","number":22,"driver":"nvidia","iommu_group":1023,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.3","number":23,"driver":"nvidia","iommu_group":1024,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.4","number":24,"driver":"nvidia","iommu_group":1025,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.5","number":25,"driver":"nvidia","iommu_group":1026,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.6","number":26,"driver":"nvidia","iommu_group":1027,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.7","number":27,"driver":"nvidia","iommu_group":1028,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.0","number":28,"driver":"nvidia","iommu_group":1029,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.1","number":29,"driver":"nvidia","iommu_group":1030,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.2","number":30,"driver":"nvidia","iommu_group":1031,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.3","number":31,"driver":"nvidia","iommu_group":1032,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null}],"types":[{"type_id":"555","name":"A40-1B","full_name":"NVIDIA A40-1B","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}},{"type_id":"556","name":"A40-2B","full_name":"NVIDIA A40-2B","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}},{"type_id":"557","name":"A40-1Q","full_name":"NVIDIA A40-1Q","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":60}},{"type_id":"558","name":"A40-2Q","full_name":"NVIDIA A40-2Q","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"559","name":"A40-3Q","full_name":"NVIDIA A40-3Q","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"560","name":"A40-4Q","full_name":"NVIDIA A40-4Q","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"561","name":"A40-6Q","full_name":"NVIDIA A40-6Q","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"562","name":"A40-8Q","full_name":"NVIDIA A40-8Q","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"563","name":"A40-12Q","full_name":"NVIDIA A40-12Q","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"564","name":"A40-16Q","full_name":"NVIDIA A40-16Q","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"565","name":"A40-24Q","full_name":"NVIDIA A40-24Q","framebuffer_mib":24576,"max_instances":2,"creatable":1,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"566","name":"A40-48Q","full_name":"NVIDIA A40-48Q","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"567","name":"A40-1A","full_name":"NVIDIA A40-1A","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"568","name":"A40-2A","full_name":"NVIDIA A40-2A","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"569","name":"A40-3A","full_name":"NVIDIA A40-3A","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"570","name":"A40-4A","full_name":"NVIDIA A40-4A","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"571","name":"A40-6A","full_name":"NVIDIA A40-6A","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"572","name":"A40-8A","full_name":"NVIDIA A40-8A","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"573","name":"A40-12A","full_name":"NVIDIA A40-12A","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"574","name":"A40-16A","full_name":"NVIDIA A40-16A","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"575","name":"A40-24A","full_name":"NVIDIA A40-24A","framebuffer_mib":24576,"max_instances":2,"creatable":1,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"576","name":"A40-48A","full_name":"NVIDIA A40-48A","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"581","name":"A40-4C","full_name":"NVIDIA A40-4C","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"582","name":"A40-6C","full_name":"NVIDIA A40-6C","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"583","name":"A40-8C","full_name":"NVIDIA A40-8C","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"584","name":"A40-12C","full_name":"NVIDIA A40-12C","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"585","name":"A40-16C","full_name":"NVIDIA A40-16C","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"586","name":"A40-24C","full_name":"NVIDIA A40-24C","framebuffer_mib":24576,"max_instances":2,"creatable":1,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"587","name":"A40-48C","full_name":"NVIDIA A40-48C","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"60004","name":"A40-3B","full_name":"NVIDIA A40-3B","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}}],"mdevs":[],"bars_bytes":[16777216,68719476736,33554432],"reset_methods":["flr","bus"],"memory_mib":46068,"mig_mode":null,"holders":[],"problems":[],"users":[],"mig":null,"heterogeneous":false,"scheduler":{"policy":"best-effort","time_slice_us":null},"unread":[],"utilisation_percent":0,"strangers":[],"displays":[],"persistence":[],"topology":{"root":"pci0000:40","bridges":["0000:40:01.0"],"nvlinks":[],"fabric":null,"module":null}}],"read_at":1795721481.3282754,"services":[{"name":"libvirtd.service","active":true},{"name":"nvidia-dcgm.service","active":false},{"name":"nvidia-persistenced.service","active":false},{"name":"nvidia-vgpu-mgr.service","active":true},{"name":"nvidia-vgpud.service","active":false},{"name":"openvswitch-switch.service","active":false},{"name":"ovn-controller.service","active":false},{"name":"ssh.service","active":true}],"hugepages":[{"size_kib":2048,"total":0,"free":0,"is_mounted":true},{"size_kib":1048576,"total":0,"free":0,"is_mounted":true}],"network_interfaces":["eno1","eno2","lo","virbr0"],"boot":null,"ovn":{"missing":[],"modules":["openvswitch","geneve","vxlan"],"switch_active":false,"controller_active":false,"chassis":null,"bridges":[],"interfaces":[{"name":"eno1","mtu":1500,"addresses":["10.84.0.2/16"]},{"name":"eno2","mtu":1500,"addresses":[]}],"has_certificate":false,"not_enabled":[],"managed":[]},"mdevctl":[],"unread_functions":[],"addresses":null,"selinux":null,"distribution":["debian"],"guest_firmwares":[{"descriptor":"40-edk2-x86_64-secure-enrolled.json","features":["acpi-s3","amd-sev","enrolled-keys","requires-smm","secure-boot","verbose-dynamic"],"code":"/usr/share/OVMF/OVMF_CODE_4M.ms.fd","variables_format":"raw","variables_bytes":0},{"descriptor":"60-edk2-x86_64.json","features":["acpi-s3","amd-sev","verbose-dynamic"],"code":"/usr/share/OVMF/OVMF_CODE_4M.fd","variables_format":"raw","variables_bytes":0}],"machine_id":"340464e6456046cb6aa5f38810268889","tpm_programs":["swtpm","swtpm_setup"]}', '6ff7501bfc090981', 1795721481.3282754);


--
-- Data for Name: image_copies; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: images; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: leases; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.leases VALUES ('ddecd658-6446-45e7-9ac5-191bafd65850', '69784a2b-3b5f-4a71-b27c-8c82b8cd7241', 'acme', 'web-1', 'sim-001', 0, '0000:41:00.4', '{"gpu":"0000:41:00.0","sharing":"vf-profile","profile":"A40-24Q","function":"0000:41:00.4","type_id":"565","mdev_uuid":null,"framebuffer_mib":24576,"companions":[],"numa_node":0,"first_drivers":[],"placement_start":null}', 2, 'running', NULL, 1795721467.725998, 1795721468.0901322);
INSERT INTO public.leases VALUES ('68490907-7b14-436a-a9a5-617ad15d133b', '016f3ce3-2207-4590-a6d4-181f020a1516', 'acme', 'web-2', 'sim-001', 0, '0000:41:00.5', '{"gpu":"0000:41:00.0","sharing":"vf-profile","profile":"A40-24Q","function":"0000:41:00.5","type_id":"565","mdev_uuid":null,"framebuffer_mib":24576,"companions":[],"numa_node":0,"first_drivers":[],"placement_start":null}', 2, 'running', NULL, 1795721469.725784, 1795721470.6830106);
INSERT INTO public.leases VALUES ('eff4d960-247c-40a8-b645-cc1291f07e56', 'ef4ea9a8-cabe-4a4a-9478-20f533e040b1', 'umbrella', 'idle', 'sim-002', 0, '0000:41:00.4', '{"gpu":"0000:41:00.0","sharing":"vf-profile","profile":"A40-24Q","function":"0000:41:00.4","type_id":"565","mdev_uuid":null,"framebuffer_mib":24576,"companions":[],"numa_node":0,"first_drivers":[],"placement_start":null}', 2, 'built', NULL, 1795721472.4857771, 1795721478.7661262);


--
-- Data for Name: licence_pools; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: licence_seats; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: networks; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.networks VALUES ('420a46a2-3b59-4c90-9354-6aff4b8bede1', 'acme', 'back', 'libvirt', 'sim-001', 'ready', '{"name":"back","tenant":"acme","cidr":"10.20.0.0/24","dns":[],"isolated":false,"backend":"libvirt","host":"sim-001"}', 1795721464.9764855, 'acme.back');


--
-- Data for Name: operations; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: pool_grants; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: pool_hosts; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: pools; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: ports; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: proofs; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: queue; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.queue VALUES (1, 'create', 'umbrella', 'nightly', '{"name":"nightly","tenant":"umbrella","gpus":[{"text":"A40-48Q","count":1,"profile":"A40-48Q","sharing":null,"board":null,"minimum_memory_mib":null,"exact_memory_mib":null,"series":null,"monitors":null,"position":null,"spare_port":null}],"vcpus":1,"memory_mib":96,"disk":{"size_mib":64,"base_image":null,"pool":"default","bus":null,"cache":null,"iops":null,"mbps":null},"network":null,"firmware":"bios","cloud_init":{"ssh_authorized_keys":[],"user_data":{"digest":"sha256:c54bb9552aaf4e2bcdc2d281301bcd259201007828209b9dcdcb5a59bbffcb55"},"network_config":null,"hostname":null,"licence_token":null},"direct_kernel":null,"host":null,"autostart":false,"restart":"never","priority":500,"preemptible":null,"constraints":{"policy":null,"required":[],"preferred":[],"group":null,"together":"prefer-apart"},"security_groups":[],"bandwidth_mbps":null,"duration_s":28800.0,"domain":null,"hugepages_kib":null,"workload":null,"guest_metrics":null,"os":null,"secure_boot":null,"tpm":null,"data_disks":[],"install":null,"nic_model":null,"nics":[],"display":{"kind":null,"video":null,"vgpu":null},"vgpu_params":[],"guest_driver":{"source":"none","version":null,"repository":null,"key":null,"package":null,"url":null,"sha256":null,"toolkit":false,"hold_kernel":true},"licence":null,"licence_pool":null,"spare_ports":null}', 9, 1795721481.4610188, 'no GPU can take A40-48Q for VM umbrella/nightly', false, 'gAAAAABrCIkJhuwFcULzhyQ7vqKzrxyErzAznRaTQumRjKDLObnwRmtkuiLmC1PKK3-jowuZYDTqX5Gx99MTaje-4seb7GGqzHBC8zajzc9DUtPhpz5ZRQ4StRcnd7TOyDhQInbVXVV_EV8gY86tbg5grae289MkoEJ48GoLALK7Y_63zSJy9RQ=');


--
-- Data for Name: quotas; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.quotas VALUES ('acme', 'shares:A40-8Q', 6, NULL);
INSERT INTO public.quotas VALUES ('acme', 'vms', 9, NULL);


--
-- Data for Name: reclaims; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: reservations; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.reservations VALUES ('acme', 'batch', 'sim-001', '{"tenant":"acme","name":"batch","gpus":[{"text":"A40-24Q","count":1,"profile":"A40-24Q","sharing":null,"board":null,"minimum_memory_mib":null,"exact_memory_mib":null,"series":null,"monitors":null,"position":null,"spare_port":null}],"host":"sim-001","shares":[{"gpu":"0000:41:00.0","sharing":"vf-profile","profile":"A40-24Q","function":"0000:41:00.6","type_id":"565","mdev_uuid":null,"framebuffer_mib":24576,"companions":[],"numa_node":0,"first_drivers":[],"placement_start":null}],"begin":2111702400.0,"end":2111788800.0,"every_s":null,"vm_uuid":null}', 1, NULL, 1795721483.4446874);


--
-- Data for Name: restrictions; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.restrictions VALUES ('sim-002', '', 'cordon', 'memory', NULL, NULL, 'root@vm', 1795721484.8684666);


--
-- Data for Name: settings; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.settings VALUES ('recent-commits', 'a810e5513c214310971871b0e884d6d0 821bc9a741ac41d99fcdce3dff37bec1 e5fcb8fb1000450992d9012b82ebfc0c 2d54e4d41e874745843252071970efbc 43cc397e3e554860922156bfa3043a8d 1cc92216a9284716b24602a1bc517ffb 467b4656124149d39e696292710b1e62 f37e4854a47c4f698d3c13011c4b59f4 51f06a7833f149e3947b60c54b397062 cced5ac89e954200bdce4c621116ce6d b296b7bb245c4a58b14db405aa0b43d7 7c5aa4464d3b47f8858e73ed3d78d217 c3b1f8316ece4dea8d522f078ee724e4 6570ecdca74c49e5a27a575a90cbff78 6ffb28f149cb41c198d92b7ba548da33 47015817805c4e738169695240fd5953 a31ab9bf53404186a3751a3befff17ff 265131331016422ea6986ac05ee3338f 75ef8f8811d14d22bbb9aea6f30ad25b b85ba1511657491f949d6a47546d73ba b8cdb1582af44b6c8126942ec4223969 fcb7b7be6cb645eea85aa2863dfa5373 81ceca1963b543278fe5845c88c051fb b32bc665471249d693284df5348a27fd 0cb0629e59e24aaf90967ba571f5ac4f 9646bd2488a743fbb963161d93131deb 67fa12a325954e1e91af4cee2a3033d2 bac4f182f1244008a03fb43b3ad94792 fcb14ccaf2f947faa19352f466c33f4d ab2b665a8188426b8aeea19be5a7ec15 c13a634602934a709d66f7951228f58c d32710fb953d4a6bbd9d39cdbd25e4e3 394990d1ed704f6aa175e4706b1a1c80 7709e09e487e41b5ad07993bc7369c62 51c117a3dc664ef08f80f701a404be50 ');


--
-- Data for Name: tenants; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.tenants VALUES ('acme', 1795721461.4215572, NULL, NULL, NULL, NULL);
INSERT INTO public.tenants VALUES ('umbrella', 1795721462.255771, NULL, NULL, NULL, NULL);


--
-- Data for Name: usage; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.usage VALUES (1, 'ddecd658-6446-45e7-9ac5-191bafd65850', 'acme', '69784a2b-3b5f-4a71-b27c-8c82b8cd7241', 'web-1', 'sim-001', '0000:41:00.0', 'A40-24Q', 24576, 0, 0.5, 1795721467.9480057, NULL);
INSERT INTO public.usage VALUES (2, '68490907-7b14-436a-a9a5-617ad15d133b', 'acme', '016f3ce3-2207-4590-a6d4-181f020a1516', 'web-2', 'sim-001', '0000:41:00.0', 'A40-24Q', 24576, 0, 0.5, 1795721470.5939937, NULL);
INSERT INTO public.usage VALUES (3, 'eff4d960-247c-40a8-b645-cc1291f07e56', 'umbrella', 'ef4ea9a8-cabe-4a4a-9478-20f533e040b1', 'idle', 'sim-002', '0000:41:00.0', 'A40-24Q', 24576, 0, 0.5, 1795721473.6583576, NULL);


--
-- Data for Name: vgpuctl_version; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.vgpuctl_version VALUES ('0023');


--
-- Data for Name: vms; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.vms VALUES ('69784a2b-3b5f-4a71-b27c-8c82b8cd7241', 'acme', 'web-1', 'sim-001', 'running', NULL, '{"name":"web-1","tenant":"acme","gpus":[{"text":"A40-24Q","count":1,"profile":"A40-24Q","sharing":null,"board":null,"minimum_memory_mib":null,"exact_memory_mib":null,"series":null,"monitors":null,"position":null,"spare_port":null}],"vcpus":1,"memory_mib":96,"disk":{"size_mib":64,"base_image":null,"pool":"default","bus":null,"cache":null,"iops":null,"mbps":null},"network":null,"firmware":"bios","cloud_init":{"ssh_authorized_keys":[],"user_data":null,"network_config":null,"hostname":null,"licence_token":null},"direct_kernel":null,"host":null,"autostart":false,"restart":"never","priority":500,"preemptible":null,"constraints":{"policy":null,"required":[],"preferred":[],"group":null,"together":"prefer-apart"},"security_groups":[],"bandwidth_mbps":null,"duration_s":null,"domain":null,"hugepages_kib":null,"workload":null,"guest_metrics":null,"os":null,"secure_boot":null,"tpm":null,"data_disks":[],"install":null,"nic_model":null,"nics":[],"display":{"kind":null,"video":null,"vgpu":null},"vgpu_params":[],"guest_driver":{"source":"none","version":null,"repository":null,"key":null,"package":null,"url":null,"sha256":null,"toolkit":false,"hold_kernel":true},"licence":null,"licence_pool":null,"spare_ports":null}', 9, 1795721467.7298748, NULL, NULL, NULL, NULL, 'acme.web-1', NULL, NULL, NULL);
INSERT INTO public.vms VALUES ('016f3ce3-2207-4590-a6d4-181f020a1516', 'acme', 'web-2', 'sim-001', 'running', NULL, '{"name":"web-2","tenant":"acme","gpus":[{"text":"A40-24Q","count":1,"profile":"A40-24Q","sharing":null,"board":null,"minimum_memory_mib":null,"exact_memory_mib":null,"series":null,"monitors":null,"position":null,"spare_port":null}],"vcpus":1,"memory_mib":96,"disk":{"size_mib":64,"base_image":null,"pool":"default","bus":null,"cache":null,"iops":null,"mbps":null},"network":null,"firmware":"bios","cloud_init":{"ssh_authorized_keys":[],"user_data":null,"network_config":null,"hostname":null,"licence_token":null},"direct_kernel":null,"host":null,"autostart":false,"restart":"never","priority":500,"preemptible":null,"constraints":{"policy":null,"required":[],"preferred":[],"group":null,"together":"prefer-apart"},"security_groups":[],"bandwidth_mbps":null,"duration_s":28800.0,"domain":null,"hugepages_kib":null,"workload":null,"guest_metrics":null,"os":null,"secure_boot":null,"tpm":null,"data_disks":[],"install":null,"nic_model":null,"nics":[],"display":{"kind":null,"video":null,"vgpu":null},"vgpu_params":[],"guest_driver":{"source":"none","version":null,"repository":null,"key":null,"package":null,"url":null,"sha256":null,"toolkit":false,"hold_kernel":true},"licence":null,"licence_pool":null,"spare_ports":null}', 9, 1795721469.7380095, 1795750270.6852434, NULL, NULL, NULL, 'acme.web-2', NULL, NULL, NULL);
INSERT INTO public.vms VALUES ('ef4ea9a8-cabe-4a4a-9478-20f533e040b1', 'umbrella', 'idle', 'sim-002', 'stopped', NULL, '{"name":"idle","tenant":"umbrella","gpus":[{"text":"A40-24Q","count":1,"profile":"A40-24Q","sharing":null,"board":null,"minimum_memory_mib":null,"exact_memory_mib":null,"series":null,"monitors":null,"position":null,"spare_port":null}],"vcpus":1,"memory_mib":96,"disk":{"size_mib":64,"base_image":null,"pool":"default","bus":null,"cache":null,"iops":null,"mbps":null},"network":null,"firmware":"bios","cloud_init":{"ssh_authorized_keys":[],"user_data":null,"network_config":null,"hostname":null,"licence_token":null},"direct_kernel":null,"host":null,"autostart":false,"restart":"never","priority":500,"preemptible":null,"constraints":{"policy":null,"required":[],"preferred":[],"group":null,"together":"prefer-apart"},"security_groups":[],"bandwidth_mbps":null,"duration_s":null,"domain":null,"hugepages_kib":null,"workload":null,"guest_metrics":null,"os":null,"secure_boot":null,"tpm":null,"data_disks":[],"install":null,"nic_model":null,"nics":[],"display":{"kind":null,"video":null,"vgpu":null},"vgpu_params":[],"guest_driver":{"source":"none","version":null,"repository":null,"key":null,"package":null,"url":null,"sha256":null,"toolkit":false,"hold_kernel":true},"licence":null,"licence_pool":null,"spare_ports":null}', 9, 1795721472.4897592, NULL, NULL, NULL, NULL, 'umbrella.idle', NULL, NULL, NULL);


--
-- Data for Name: volumes; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.volumes VALUES ('sim-001', 'default', '69784a2b-3b5f-4a71-b27c-8c82b8cd7241.qcow2', '69784a2b-3b5f-4a71-b27c-8c82b8cd7241', 'acme', 'web-1', 'disk', 'made', 67108864, '/var/lib/libvirt/images/69784a2b-3b5f-4a71-b27c-8c82b8cd7241.qcow2', '/var/lib/libvirt/images/69784a2b-3b5f-4a71-b27c-8c82b8cd7241.qcow2', 1795721467.8794303, 'qcow2', NULL, '', NULL);
INSERT INTO public.volumes VALUES ('sim-001', 'default', '016f3ce3-2207-4590-a6d4-181f020a1516.qcow2', '016f3ce3-2207-4590-a6d4-181f020a1516', 'acme', 'web-2', 'disk', 'made', 67108864, '/var/lib/libvirt/images/016f3ce3-2207-4590-a6d4-181f020a1516.qcow2', '/var/lib/libvirt/images/016f3ce3-2207-4590-a6d4-181f020a1516.qcow2', 1795721470.5092473, 'qcow2', NULL, '', NULL);
INSERT INTO public.volumes VALUES ('sim-002', 'default', 'ef4ea9a8-cabe-4a4a-9478-20f533e040b1.qcow2', 'ef4ea9a8-cabe-4a4a-9478-20f533e040b1', 'umbrella', 'idle', 'disk', 'made', 67108864, '/var/lib/libvirt/images/ef4ea9a8-cabe-4a4a-9478-20f533e040b1.qcow2', '/var/lib/libvirt/images/ef4ea9a8-cabe-4a4a-9478-20f533e040b1.qcow2', 1795721473.5504951, 'qcow2', NULL, '', NULL);


--
-- Data for Name: vpc_objects; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Name: events_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.events_id_seq', 17, true);


--
-- Name: licence_seats_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.licence_seats_id_seq', 1, false);


--
-- Name: operations_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.operations_id_seq', 5, true);


--
-- Name: proofs_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.proofs_id_seq', 1, false);


--
-- Name: queue_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.queue_id_seq', 1, true);


--
-- Name: usage_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.usage_id_seq', 3, true);


--
-- Name: addresses pk_addresses; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.addresses
    ADD CONSTRAINT pk_addresses PRIMARY KEY (network_id, address);


--
-- Name: controllers pk_controllers; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.controllers
    ADD CONSTRAINT pk_controllers PRIMARY KEY (id);


--
-- Name: events pk_events; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events
    ADD CONSTRAINT pk_events PRIMARY KEY (id);


--
-- Name: external_addresses pk_external_addresses; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.external_addresses
    ADD CONSTRAINT pk_external_addresses PRIMARY KEY (external_network, address);


--
-- Name: external_networks pk_external_networks; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.external_networks
    ADD CONSTRAINT pk_external_networks PRIMARY KEY (name);


--
-- Name: host_claims pk_host_claims; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.host_claims
    ADD CONSTRAINT pk_host_claims PRIMARY KEY (host);


--
-- Name: host_records pk_host_records; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.host_records
    ADD CONSTRAINT pk_host_records PRIMARY KEY (host, kind);


--
-- Name: hosts pk_hosts; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.hosts
    ADD CONSTRAINT pk_hosts PRIMARY KEY (name);


--
-- Name: image_copies pk_image_copies; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.image_copies
    ADD CONSTRAINT pk_image_copies PRIMARY KEY (image, host);


--
-- Name: images pk_images; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.images
    ADD CONSTRAINT pk_images PRIMARY KEY (name);


--
-- Name: leases pk_leases; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT pk_leases PRIMARY KEY (id);


--
-- Name: licence_pools pk_licence_pools; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.licence_pools
    ADD CONSTRAINT pk_licence_pools PRIMARY KEY (name);


--
-- Name: licence_seats pk_licence_seats; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.licence_seats
    ADD CONSTRAINT pk_licence_seats PRIMARY KEY (id);


--
-- Name: networks pk_networks; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.networks
    ADD CONSTRAINT pk_networks PRIMARY KEY (id);


--
-- Name: operations pk_operations; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operations
    ADD CONSTRAINT pk_operations PRIMARY KEY (id);


--
-- Name: pool_grants pk_pool_grants; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.pool_grants
    ADD CONSTRAINT pk_pool_grants PRIMARY KEY (pool, tenant);


--
-- Name: pool_hosts pk_pool_hosts; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.pool_hosts
    ADD CONSTRAINT pk_pool_hosts PRIMARY KEY (host);


--
-- Name: pools pk_pools; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.pools
    ADD CONSTRAINT pk_pools PRIMARY KEY (name);


--
-- Name: ports pk_ports; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.ports
    ADD CONSTRAINT pk_ports PRIMARY KEY (id);


--
-- Name: proofs pk_proofs; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.proofs
    ADD CONSTRAINT pk_proofs PRIMARY KEY (id);


--
-- Name: queue pk_queue; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.queue
    ADD CONSTRAINT pk_queue PRIMARY KEY (id);


--
-- Name: quotas pk_quotas; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.quotas
    ADD CONSTRAINT pk_quotas PRIMARY KEY (tenant, resource);


--
-- Name: reclaims pk_reclaims; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.reclaims
    ADD CONSTRAINT pk_reclaims PRIMARY KEY (operation_id, vm_name, resource);


--
-- Name: reservations pk_reservations; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT pk_reservations PRIMARY KEY (tenant, name);


--
-- Name: restrictions pk_restrictions; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.restrictions
    ADD CONSTRAINT pk_restrictions PRIMARY KEY (host, device, kind);


--
-- Name: settings pk_settings; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.settings
    ADD CONSTRAINT pk_settings PRIMARY KEY (name);


--
-- Name: tenants pk_tenants; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT pk_tenants PRIMARY KEY (name);


--
-- Name: usage pk_usage; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.usage
    ADD CONSTRAINT pk_usage PRIMARY KEY (id);


--
-- Name: vms pk_vms; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.vms
    ADD CONSTRAINT pk_vms PRIMARY KEY (uuid);


--
-- Name: volumes pk_volumes; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.volumes
    ADD CONSTRAINT pk_volumes PRIMARY KEY (host, pool, name);


--
-- Name: vpc_objects pk_vpc_objects; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.vpc_objects
    ADD CONSTRAINT pk_vpc_objects PRIMARY KEY (tenant, kind, name);


--
-- Name: external_addresses uq_external_addresses_tenant_holder; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.external_addresses
    ADD CONSTRAINT uq_external_addresses_tenant_holder UNIQUE (tenant, holder);


--
-- Name: networks uq_networks_tenant_name; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.networks
    ADD CONSTRAINT uq_networks_tenant_name UNIQUE (tenant, name);


--
-- Name: ports uq_ports_mac_address; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.ports
    ADD CONSTRAINT uq_ports_mac_address UNIQUE (mac_address);


--
-- Name: ports uq_ports_network_id_address; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.ports
    ADD CONSTRAINT uq_ports_network_id_address UNIQUE (network_id, address);


--
-- Name: ports uq_ports_vm_uuid_position; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.ports
    ADD CONSTRAINT uq_ports_vm_uuid_position UNIQUE (vm_uuid, "position");


--
-- Name: queue uq_queue_tenant_name; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.queue
    ADD CONSTRAINT uq_queue_tenant_name UNIQUE (tenant, name);


--
-- Name: vms uq_vms_tenant_name; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.vms
    ADD CONSTRAINT uq_vms_tenant_name UNIQUE (tenant, name);


--
-- Name: volumes uq_volumes_vm_uuid_host_kind_label; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.volumes
    ADD CONSTRAINT uq_volumes_vm_uuid_host_kind_label UNIQUE (vm_uuid, host, kind, label);


--
-- Name: vgpuctl_version vgpuctl_version_pkc; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.vgpuctl_version
    ADD CONSTRAINT vgpuctl_version_pkc PRIMARY KEY (version_num);


--
-- Name: ix_addresses_holder; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_addresses_holder ON public.addresses USING btree (holder);


--
-- Name: ix_events_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_events_at ON public.events USING btree (at);


--
-- Name: ix_events_subject; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_events_subject ON public.events USING btree (subject);


--
-- Name: ix_leases_vm_uuid; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_leases_vm_uuid ON public.leases USING btree (vm_uuid);


--
-- Name: ix_licence_seats_vm_uuid; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_licence_seats_vm_uuid ON public.licence_seats USING btree (vm_uuid);


--
-- Name: ix_proofs_vm_uuid; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_proofs_vm_uuid ON public.proofs USING btree (vm_uuid);


--
-- Name: ix_usage_tenant_begun_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_usage_tenant_begun_at ON public.usage USING btree (tenant, begun_at);


--
-- Name: ix_vms_host; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_vms_host ON public.vms USING btree (host);


--
-- Name: uq_leases_live_device; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX uq_leases_live_device ON public.leases USING btree (host, device) WHERE (state <> 'gone'::text);


--
-- Name: uq_leases_live_position; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX uq_leases_live_position ON public.leases USING btree (vm_uuid, "position") WHERE (state <> 'gone'::text);


--
-- Name: uq_licence_seats_held_vm; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX uq_licence_seats_held_vm ON public.licence_seats USING btree (vm_uuid) WHERE (released_at IS NULL);


--
-- Name: uq_usage_open_lease; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX uq_usage_open_lease ON public.usage USING btree (lease_id) WHERE (ended_at IS NULL);


--
-- Name: addresses fk_addresses_network_id_networks; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.addresses
    ADD CONSTRAINT fk_addresses_network_id_networks FOREIGN KEY (network_id) REFERENCES public.networks(id);


--
-- Name: external_addresses fk_external_addresses_external_network_external_networks; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.external_addresses
    ADD CONSTRAINT fk_external_addresses_external_network_external_networks FOREIGN KEY (external_network) REFERENCES public.external_networks(name);


--
-- Name: external_addresses fk_external_addresses_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.external_addresses
    ADD CONSTRAINT fk_external_addresses_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- Name: host_claims fk_host_claims_controller_controllers; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.host_claims
    ADD CONSTRAINT fk_host_claims_controller_controllers FOREIGN KEY (controller) REFERENCES public.controllers(id) ON DELETE CASCADE;


--
-- Name: image_copies fk_image_copies_image_images; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.image_copies
    ADD CONSTRAINT fk_image_copies_image_images FOREIGN KEY (image) REFERENCES public.images(name);


--
-- Name: leases fk_leases_host_hosts; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT fk_leases_host_hosts FOREIGN KEY (host) REFERENCES public.hosts(name);


--
-- Name: leases fk_leases_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT fk_leases_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- Name: licence_seats fk_licence_seats_pool_licence_pools; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.licence_seats
    ADD CONSTRAINT fk_licence_seats_pool_licence_pools FOREIGN KEY (pool) REFERENCES public.licence_pools(name);


--
-- Name: licence_seats fk_licence_seats_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.licence_seats
    ADD CONSTRAINT fk_licence_seats_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- Name: networks fk_networks_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.networks
    ADD CONSTRAINT fk_networks_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- Name: pool_grants fk_pool_grants_pool_pools; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.pool_grants
    ADD CONSTRAINT fk_pool_grants_pool_pools FOREIGN KEY (pool) REFERENCES public.pools(name);


--
-- Name: pool_grants fk_pool_grants_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.pool_grants
    ADD CONSTRAINT fk_pool_grants_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- Name: pool_hosts fk_pool_hosts_pool_pools; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.pool_hosts
    ADD CONSTRAINT fk_pool_hosts_pool_pools FOREIGN KEY (pool) REFERENCES public.pools(name);


--
-- Name: ports fk_ports_network_id_networks; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.ports
    ADD CONSTRAINT fk_ports_network_id_networks FOREIGN KEY (network_id) REFERENCES public.networks(id);


--
-- Name: queue fk_queue_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.queue
    ADD CONSTRAINT fk_queue_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- Name: quotas fk_quotas_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.quotas
    ADD CONSTRAINT fk_quotas_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- Name: reclaims fk_reclaims_operation_id_operations; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.reclaims
    ADD CONSTRAINT fk_reclaims_operation_id_operations FOREIGN KEY (operation_id) REFERENCES public.operations(id) ON DELETE CASCADE;


--
-- Name: reclaims fk_reclaims_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.reclaims
    ADD CONSTRAINT fk_reclaims_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- Name: reservations fk_reservations_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT fk_reservations_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- Name: vms fk_vms_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.vms
    ADD CONSTRAINT fk_vms_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- Name: volumes fk_volumes_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.volumes
    ADD CONSTRAINT fk_volumes_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- Name: vpc_objects fk_vpc_objects_tenant_tenants; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.vpc_objects
    ADD CONSTRAINT fk_vpc_objects_tenant_tenants FOREIGN KEY (tenant) REFERENCES public.tenants(name);


--
-- PostgreSQL database dump complete
--

\unrestrict BKfDkPwu2pv6HoED36JpzP9yY2rOY85rRLOmCmISGxZZvo3EJ3u1T1Dqyweh0EM

