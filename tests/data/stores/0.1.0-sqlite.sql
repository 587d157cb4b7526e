-- Store of vgpuctl 0.1.0 (commit abdeb08d, schema 0023), written by tests/release/first_release.py.
BEGIN TRANSACTION;
CREATE TABLE addresses (
	network_id TEXT NOT NULL, 
	address TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	CONSTRAINT pk_addresses PRIMARY KEY (network_id, address), 
	CONSTRAINT fk_addresses_network_id_networks FOREIGN KEY(network_id) REFERENCES networks (id)
);
INSERT INTO "addresses" VALUES('b861243e-c9f2-4c49-a7d8-68be441acb57','10.20.0.1','gateway','b861243e-c9f2-4c49-a7d8-68be441acb57');
CREATE TABLE controllers (
	id TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	hostname TEXT NOT NULL, 
	machine TEXT NOT NULL, 
	process_start TEXT NOT NULL, 
	beat INTEGER NOT NULL, 
	serves TEXT NOT NULL, 
	begun_at DOUBLE NOT NULL, 
	CONSTRAINT pk_controllers PRIMARY KEY (id)
);
CREATE TABLE events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at DOUBLE NOT NULL, 
	kind TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	detail TEXT NOT NULL
, tenant TEXT, host TEXT, command TEXT, os_user TEXT, client_host TEXT, database_role TEXT, "before" TEXT, "after" TEXT, evidence TEXT);
INSERT INTO "events" VALUES(1,1.79572148842349624633e+09,'tenant-created','acme','','acme',NULL,'create-tenant','root','vm',NULL,NULL,'{"reclaim":"never","preempt":"ask","grace_s":30.0}',NULL);
INSERT INTO "events" VALUES(2,1.79572148958271527287e+09,'tenant-created','umbrella','','umbrella',NULL,'create-tenant','root','vm',NULL,NULL,'{"reclaim":"never","preempt":"ask","grace_s":30.0}',NULL);
INSERT INTO "events" VALUES(3,1.79572149059764838222e+09,'quota-set','acme','','acme',NULL,'set-quota','root','vm',NULL,'{"shares:A40-8Q":null,"vms":null}','{"shares:A40-8Q":"up to 6","vms":"up to 9"}',NULL);
INSERT INTO "events" VALUES(4,1.79572149213314080241e+09,'network-created','acme.back','','acme','sim-001','create-network','root','vm',NULL,NULL,'{"cidr":"10.20.0.0/24","backend":"libvirt"}',NULL);
INSERT INTO "events" VALUES(5,1.79572149588410019879e+09,'lease-reserved','acme.web-1','','acme','sim-001','create-vm','root','vm',NULL,NULL,'{"state":"reserved","profile":"A40-24Q","device":"0000:41:00.4","gpu":"0000:41:00.0"}',NULL);
INSERT INTO "events" VALUES(6,1.79572149609333753588e+09,'volume-made','acme.web-1','disk','acme','sim-001','create-vm','root','vm',NULL,NULL,'{"pool":"default","name":"4f3eb775-2860-4ada-975a-ecfee638cdd9.qcow2","path":"/var/lib/libvirt/images/4f3eb775-2860-4ada-975a-ecfee638cdd9.qcow2"}',NULL);
INSERT INTO "events" VALUES(7,1.79572149631321811673e+09,'vm-created','acme.web-1','','acme','sim-001','create-vm','root','vm',NULL,NULL,'{"state":"running","host":"sim-001","shares":["A40-24Q on 0000:41:00.4"]}',NULL);
INSERT INTO "events" VALUES(8,1.79572149858235716821e+09,'lease-reserved','acme.web-2','','acme','sim-001','create-vm','root','vm',NULL,NULL,'{"state":"reserved","profile":"A40-24Q","device":"0000:41:00.5","gpu":"0000:41:00.0"}',NULL);
INSERT INTO "events" VALUES(9,1.79572149936358070373e+09,'volume-made','acme.web-2','disk','acme','sim-001','create-vm','root','vm',NULL,NULL,'{"pool":"default","name":"43c3de73-0a11-4439-8287-7f143f8d7b21.qcow2","path":"/var/lib/libvirt/images/43c3de73-0a11-4439-8287-7f143f8d7b21.qcow2"}',NULL);
INSERT INTO "events" VALUES(10,1795721499.48839,'vm-created','acme.web-2','','acme','sim-001','create-vm','root','vm',NULL,NULL,'{"state":"running","host":"sim-001","shares":["A40-24Q on 0000:41:00.5"]}',NULL);
INSERT INTO "events" VALUES(11,1.79572150168121886255e+09,'lease-reserved','umbrella.idle','','umbrella','sim-002','create-vm','root','vm',NULL,NULL,'{"state":"reserved","profile":"A40-24Q","device":"0000:41:00.4","gpu":"0000:41:00.0"}',NULL);
INSERT INTO "events" VALUES(12,1.79572150269494557376e+09,'volume-made','umbrella.idle','disk','umbrella','sim-002','create-vm','root','vm',NULL,NULL,'{"pool":"default","name":"4f539c0d-2b60-43d1-90eb-55d7258992db.qcow2","path":"/var/lib/libvirt/images/4f539c0d-2b60-43d1-90eb-55d7258992db.qcow2"}',NULL);
INSERT INTO "events" VALUES(13,1.79572150284304571151e+09,'vm-created','umbrella.idle','','umbrella','sim-002','create-vm','root','vm',NULL,NULL,'{"state":"running","host":"sim-002","shares":["A40-24Q on 0000:41:00.4"]}',NULL);
INSERT INTO "events" VALUES(14,1.7957215046163640022e+09,'vm-stopped','umbrella.idle','','umbrella','sim-002','stop-vm','root','vm',NULL,'{"state":"running","host":"sim-002","shares":["A40-24Q on 0000:41:00.4"]}','{"state":"stopped","host":"sim-002","shares":["A40-24Q on 0000:41:00.4"]}',NULL);
INSERT INTO "events" VALUES(15,1.79572150662762856487e+09,'vm-queued','umbrella.nightly','no GPU can take A40-48Q for VM umbrella/nightly','umbrella',NULL,'create-vm','root','vm',NULL,NULL,'{"gpus":["A40-48Q"],"together with":[]}',NULL);
INSERT INTO "events" VALUES(16,1.79572150798827552794e+09,'reservation-created','acme.batch','','acme','sim-001','reserve','root','vm',NULL,NULL,'{"gpus":["A40-24Q"],"shares":["A40-24Q on 0000:41:00.6"],"begin":"2036-12-01 00:00","end":"2036-12-02 00:00","every":null}',NULL);
INSERT INTO "events" VALUES(17,1.79572150891885328298e+09,'host-cordoned','sim-002','memory',NULL,'sim-002','cordon-host','root','vm',NULL,NULL,'{"cordon":"memory"}',NULL);
CREATE TABLE external_addresses (
	external_network TEXT NOT NULL, 
	address TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	CONSTRAINT pk_external_addresses PRIMARY KEY (external_network, address), 
	CONSTRAINT uq_external_addresses_tenant_holder UNIQUE (tenant, holder), 
	CONSTRAINT fk_external_addresses_external_network_external_networks FOREIGN KEY(external_network) REFERENCES external_networks (name), 
	CONSTRAINT fk_external_addresses_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name)
);
CREATE TABLE external_networks (
	name TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	CONSTRAINT pk_external_networks PRIMARY KEY (name)
);
CREATE TABLE host_claims (
	host TEXT NOT NULL, 
	controller TEXT NOT NULL, 
	CONSTRAINT pk_host_claims PRIMARY KEY (host), 
	CONSTRAINT fk_host_claims_controller_controllers FOREIGN KEY(controller) REFERENCES controllers (id) ON DELETE CASCADE
);
CREATE TABLE host_records (
	host TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	content TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	CONSTRAINT pk_host_records PRIMARY KEY (host, kind)
);
INSERT INTO "host_records" VALUES('sim-002','identity','["boot:b5a868a3-469a-4dd6-9b91-582b119b2bce","gpu:GPU-e539f364-24f6-5526-8c08-87d1185d427c","machine-id:340464e6456046cb6aa5f38810268889","name:sim-002"]',1.79572149582392907147e+09);
INSERT INTO "host_records" VALUES('sim-002','observations','{"read_at":1795721506.514349,"boot_id":"b5a868a3-469a-4dd6-9b91-582b119b2bce","first_boot_id":"b5a868a3-469a-4dd6-9b91-582b119b2bce","booted_at":1795721495.8213058,"silence":null,"libvirt_silence":null,"layout":null,"gpus":{"0000:41:00.0":{"state":"present","at":1795721506.514349,"uuid":"GPU-e539f364-24f6-5526-8c08-87d1185d427c","problems":[],"last":null}},"vms":{"4f539c0d-2b60-43d1-90eb-55d7258992db":{"state":"shut-off","at":1795721504.609396,"as_declared":true,"name":null,"has_failed":false}},"shares":{"04d92ddf-b340-4fa7-9e08-7f63510ad246":{"state":"free","at":1795721506.514349,"as_declared":true,"name":null,"has_failed":false}}}',1.79572150651746106149e+09);
INSERT INTO "host_records" VALUES('sim-001','identity','["boot:786b7592-8a5f-4134-af70-3c6f60fb8c88","gpu:GPU-fd87b815-a5d8-5ab7-9fc4-150487dc5f23","machine-id:98f2c9c916d2c006dfa16a92abf09c65","name:sim-001"]',1.79572149585299658779e+09);
INSERT INTO "host_records" VALUES('sim-001','observations','{"read_at":1795721506.6038232,"boot_id":"786b7592-8a5f-4134-af70-3c6f60fb8c88","first_boot_id":"786b7592-8a5f-4134-af70-3c6f60fb8c88","booted_at":1795721495.8517983,"silence":null,"libvirt_silence":null,"layout":null,"gpus":{"0000:41:00.0":{"state":"present","at":1795721506.6038232,"uuid":"GPU-fd87b815-a5d8-5ab7-9fc4-150487dc5f23","problems":[],"last":null}},"vms":{"4f3eb775-2860-4ada-975a-ecfee638cdd9":{"state":"running","at":1795721496.312885,"as_declared":true,"name":null,"has_failed":false},"43c3de73-0a11-4439-8287-7f143f8d7b21":{"state":"running","at":1795721499.4880185,"as_declared":true,"name":null,"has_failed":false}},"shares":{"380df818-c898-464f-9909-e97995f40ace":{"state":"held","at":1795721506.6038232,"as_declared":true,"name":null,"has_failed":false},"ae64aab0-dcc3-4037-9ec5-bbee8ba2b05e":{"state":"held","at":1795721506.6038232,"as_declared":true,"name":null,"has_failed":false}}}',1.79572150660534358024e+09);
INSERT INTO "host_records" VALUES('sim-001','health','{"boot_id": "786b7592-8a5f-4134-af70-3c6f60fb8c88", "gpus": [{"address": "0000:41:00.0", "kernel_ids": "10de:2235", "config_ids": "10de:2235", "driver": "nvidia", "bars": [{"number": 0, "size_bytes": 16777216, "is_assigned": true}, {"number": 1, "size_bytes": 68719476736, "is_assigned": true}, {"number": 3, "size_bytes": 33554432, "is_assigned": true}], "reset_methods": ["flr", "bus"], "uuid": "GPU-fd87b815-a5d8-5ab7-9fc4-150487dc5f23", "vbios": "94.02.00.00.00", "volatile": {"corrected": 0, "uncorrected": 0}, "aggregate": {"corrected": 0, "uncorrected": 0}, "remapped": {"corrected": 0, "uncorrected": 0, "is_pending": false, "has_failed": false}, "retired": null, "nvml_state": null, "xids": [], "unread": []}], "read_at_s": 19285.419078475, "log_begins_s": 0.004009, "scrubs_memory": null, "unread": []}',1.79572149592501306529e+09);
INSERT INTO "host_records" VALUES('sim-002','health','{"boot_id": "b5a868a3-469a-4dd6-9b91-582b119b2bce", "gpus": [{"address": "0000:41:00.0", "kernel_ids": "10de:2235", "config_ids": "10de:2235", "driver": "nvidia", "bars": [{"number": 0, "size_bytes": 16777216, "is_assigned": true}, {"number": 1, "size_bytes": 68719476736, "is_assigned": true}, {"number": 3, "size_bytes": 33554432, "is_assigned": true}], "reset_methods": ["flr", "bus"], "uuid": "GPU-e539f364-24f6-5526-8c08-87d1185d427c", "vbios": "94.02.00.00.00", "volatile": {"corrected": 0, "uncorrected": 0}, "aggregate": {"corrected": 0, "uncorrected": 0}, "remapped": {"corrected": 0, "uncorrected": 0, "is_pending": false, "has_failed": false}, "retired": null, "nvml_state": null, "xids": [], "unread": []}], "read_at_s": 19291.934725219, "log_begins_s": 0.000558, "scrubs_memory": null, "unread": []}',1.79572150245250964162e+09);
CREATE TABLE hosts (
	name TEXT NOT NULL, 
	generation INTEGER NOT NULL, 
	facts TEXT, 
	facts_shape TEXT, 
	read_at DOUBLE, 
	CONSTRAINT pk_hosts PRIMARY KEY (name), 
	CONSTRAINT ck_hosts_ck_hosts_generation CHECK (generation >= 0)
);
INSERT INTO "hosts" VALUES('sim-002',2,'{"hostname":"sim-002","boot_id":"b5a868a3-469a-4dd6-9b91-582b119b2bce","kernel":"6.8.0-simulated","kernel_command_line":"root=/dev/vda1 intel_iommu=on iommu=pt","operating_system":"Simulated host of vgpuctl''s lab","python":"3.11.7","cpus":64,"memory_mib":524288,"memory_available_mib":524288,"numa_nodes":[{"number":0,"cpus":"0-63","memory_mib":524288,"memory_available_mib":524288,"hugepages":[{"size_kib":2048,"total":0,"free":0,"is_mounted":null},{"size_kib":1048576,"total":0,"free":0,"is_mounted":null}],"cores":["0,32","1,33","2,34","3,35","4,36","5,37","6,38","7,39","8,40","9,41","10,42","11,43","12,44","13,45","14,46","15,47","16,48","17,49","18,50","19,51","20,52","21,53","22,54","23,55","24,56","25,57","26,58","27,59","28,60","29,61","30,62","31,63"]}],"iommu_active":true,"kvm":true,"libvirt_version":"10.0.0","qemu_version":"7.2.22","nvidia_driver":"580.105.06","nvml_version":"13.580.105.06","nvml_problem":null,"gpus":[{"address":"0000:41:00.0","vendor_id":"10de","device_id":"2235","subsystem_id":"10de:145a","pci_class":"030200","name":"NVIDIA A40","uuid":"GPU-e539f364-24f6-5526-8c08-87d1185d427c","driver":"nvidia","iommu_group":1000,"iommu_group_members":["0000:41:00.0"],"numa_node":0,"local_cpus":"0-63","companions":[],"sharing":["vf-profile"],"total_vfs":32,"vfs":[{"address":"0000:41:00.4","number":0,"driver":"nvidia","iommu_group":1001,"current_type":"565","mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":1,"vgpu_params":""},{"address":"0000:41:00.5","number":1,"driver":"nvidia","iommu_group":1002,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:00.6","number":2,"driver":"nvidia","iommu_group":1003,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:00.7","number":3,"driver":"nvidia","iommu_group":1004,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.0","number":4,"driver":"nvidia","iommu_group":1005,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.1","number":5,"driver":"nvidia","iommu_group":1006,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.2","number":6,"driver":"nvidia","iommu_group":1007,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.3","number":7,"driver":"nvidia","iommu_group":1008,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.4","number":8,"driver":"nvidia","iommu_group":1009,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.5","number":9,"driver":"nvidia","iommu_group":1010,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.6","number":10,"driver":"nvidia","iommu_group":1011,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.7","number":11,"driver":"nvidia","iommu_group":1012,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.0","number":12,"driver":"nvidia","iommu_group":1013,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.1","number":13,"driver":"nvidia","iommu_group":1014,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.2","number":14,"driver":"nvidia","iommu_group":1015,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.3","number":15,"driver":"nvidia","iommu_group":1016,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.4","number":16,"driver":"nvidia","iommu_group":1017,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.5","number":17,"driver":"nvidia","iommu_group":1018,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.6","number":18,"driver":"nvidia","iommu_group":1019,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.7","number":19,"driver":"nvidia","iommu_group":1020,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.0","number":20,"driver":"nvidia","iommu_group":1021,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.1","number":21,"driver":"nvidia","iommu_group":1022,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.2","number":22,"driver":"nvidia","iommu_group":1023,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.3","number":23,"driver":"nvidia","iommu_group":1024,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.4","number":24,"driver":"nvidia","iommu_group":1025,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.5","number":25,"driver":"nvidia","iommu_group":1026,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.6","number":26,"driver":"nvidia","iommu_group":1027,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.7","number":27,"driver":"nvidia","iommu_group":1028,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.0","number":28,"driver":"nvidia","iommu_group":1029,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.1","number":29,"driver":"nvidia","iommu_group":1030,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.2","number":30,"driver":"nvidia","iommu_group":1031,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.3","number":31,"driver":"nvidia","iommu_group":1032,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null}],"types":[{"type_id":"555","name":"A40-1B","full_name":"NVIDIA A40-1B","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}},{"type_id":"556","name":"A40-2B","full_name":"NVIDIA A40-2B","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}},{"type_id":"557","name":"A40-1Q","full_name":"NVIDIA A40-1Q","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":60}},{"type_id":"558","name":"A40-2Q","full_name":"NVIDIA A40-2Q","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"559","name":"A40-3Q","full_name":"NVIDIA A40-3Q","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"560","name":"A40-4Q","full_name":"NVIDIA A40-4Q","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"561","name":"A40-6Q","full_name":"NVIDIA A40-6Q","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"562","name":"A40-8Q","full_name":"NVIDIA A40-8Q","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"563","name":"A40-12Q","full_name":"NVIDIA A40-12Q","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"564","name":"A40-16Q","full_name":"NVIDIA A40-16Q","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"565","name":"A40-24Q","full_name":"NVIDIA A40-24Q","framebuffer_mib":24576,"max_instances":2,"creatable":1,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"566","name":"A40-48Q","full_name":"NVIDIA A40-48Q","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"567","name":"A40-1A","full_name":"NVIDIA A40-1A","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"568","name":"A40-2A","full_name":"NVIDIA A40-2A","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"569","name":"A40-3A","full_name":"NVIDIA A40-3A","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"570","name":"A40-4A","full_name":"NVIDIA A40-4A","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"571","name":"A40-6A","full_name":"NVIDIA A40-6A","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"572","name":"A40-8A","full_name":"NVIDIA A40-8A","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"573","name":"A40-12A","full_name":"NVIDIA A40-12A","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"574","name":"A40-16A","full_name":"NVIDIA A40-16A","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"575","name":"A40-24A","full_name":"NVIDIA A40-24A","framebuffer_mib":24576,"max_instances":2,"creatable":1,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"576","name":"A40-48A","full_name":"NVIDIA A40-48A","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"581","name":"A40-4C","full_name":"NVIDIA A40-4C","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"582","name":"A40-6C","full_name":"NVIDIA A40-6C","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"583","name":"A40-8C","full_name":"NVIDIA A40-8C","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"584","name":"A40-12C","full_name":"NVIDIA A40-12C","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"585","name":"A40-16C","full_name":"NVIDIA A40-16C","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"586","name":"A40-24C","full_name":"NVIDIA A40-24C","framebuffer_mib":24576,"max_instances":2,"creatable":1,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"587","name":"A40-48C","full_name":"NVIDIA A40-48C","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"60004","name":"A40-3B","full_name":"NVIDIA A40-3B","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}}],"mdevs":[],"bars_bytes":[16777216,68719476736,33554432],"reset_methods":["flr","bus"],"memory_mib":46068,"mig_mode":null,"holders":[],"problems":[],"users":[],"mig":null,"heterogeneous":false,"scheduler":{"policy":"best-effort","time_slice_us":null},"unread":[],"utilisation_percent":0,"strangers":[],"displays":[],"persistence":[],"topology":{"root":"pci0000:40","bridges":["0000:40:01.0"],"nvlinks":[],"fabric":null,"module":null}}],"read_at":1795721506.5069711,"services":[{"name":"libvirtd.service","active":true},{"name":"nvidia-dcgm.service","active":false},{"name":"nvidia-persistenced.service","active":false},{"name":"nvidia-vgpu-mgr.service","active":true},{"name":"nvidia-vgpud.service","active":false},{"name":"openvswitch-switch.service","active":false},{"name":"ovn-controller.service","active":false},{"name":"ssh.service","active":true}],"hugepages":[{"size_kib":2048,"total":0,"free":0,"is_mounted":true},{"size_kib":1048576,"total":0,"free":0,"is_mounted":true}],"network_interfaces":["eno1","eno2","lo","virbr0"],"boot":null,"ovn":{"missing":[],"modules":["openvswitch","geneve","vxlan"],"switch_active":false,"controller_active":false,"chassis":null,"bridges":[],"interfaces":[{"name":"eno1","mtu":1500,"addresses":["10.84.0.2/16"]},{"name":"eno2","mtu":1500,"addresses":[]}],"has_certificate":false,"not_enabled":[],"managed":[]},"mdevctl":[],"unread_functions":[],"addresses":null,"selinux":null,"distribution":["debian"],"guest_firmwares":[{"descriptor":"40-edk2-x86_64-secure-enrolled.json","features":["acpi-s3","amd-sev","enrolled-keys","requires-smm","secure-boot","verbose-dynamic"],"code":"/usr/share/OVMF/OVMF_CODE_4M.ms.fd","variables_format":"raw","variables_bytes":0},{"descriptor":"60-edk2-x86_64.json","features":["acpi-s3","amd-sev","verbose-dynamic"],"code":"/usr/share/OVMF/OVMF_CODE_4M.fd","variables_format":"raw","variables_bytes":0}],"machine_id":"340464e6456046cb6aa5f38810268889","tpm_programs":["swtpm","swtpm_setup"]}','6ff7501bfc090981',1.79572150650697112085e+09);
INSERT INTO "hosts" VALUES('sim-001',3,'{"hostname":"sim-001","boot_id":"786b7592-8a5f-4134-af70-3c6f60fb8c88","kernel":"6.8.0-simulated","kernel_command_line":"root=/dev/vda1 intel_iommu=on iommu=pt","operating_system":"Simulated host of vgpuctl''s lab","python":"3.11.7","cpus":64,"memory_mib":524288,"memory_available_mib":524288,"numa_nodes":[{"number":0,"cpus":"0-63","memory_mib":524288,"memory_available_mib":524288,"hugepages":[{"size_kib":2048,"total":0,"free":0,"is_mounted":null},{"size_kib":1048576,"total":0,"free":0,"is_mounted":null}],"cores":["0,32","1,33","2,34","3,35","4,36","5,37","6,38","7,39","8,40","9,41","10,42","11,43","12,44","13,45","14,46","15,47","16,48","17,49","18,50","19,51","20,52","21,53","22,54","23,55","24,56","25,57","26,58","27,59","28,60","29,61","30,62","31,63"]}],"iommu_active":true,"kvm":true,"libvirt_version":"10.0.0","qemu_version":"7.2.22","nvidia_driver":"580.105.06","nvml_version":"13.580.105.06","nvml_problem":null,"gpus":[{"address":"0000:41:00.0","vendor_id":"10de","device_id":"2235","subsystem_id":"10de:145a","pci_class":"030200","name":"NVIDIA A40","uuid":"GPU-fd87b815-a5d8-5ab7-9fc4-150487dc5f23","driver":"nvidia","iommu_group":1000,"iommu_group_members":["0000:41:00.0"],"numa_node":0,"local_cpus":"0-63","companions":[],"sharing":["vf-profile"],"total_vfs":32,"vfs":[{"address":"0000:41:00.4","number":0,"driver":"nvidia","iommu_group":1001,"current_type":"565","mdev_uuid":null,"holders":[{"pid":10000,"command":"qemu-system-x86_64","vm_uuid":"4f3eb775-2860-4ada-975a-ecfee638cdd9"}],"problem":null,"offers_types":true,"last_use":1,"vgpu_params":""},{"address":"0000:41:00.5","number":1,"driver":"nvidia","iommu_group":1002,"current_type":"565","mdev_uuid":null,"holders":[{"pid":10001,"command":"qemu-system-x86_64","vm_uuid":"43c3de73-0a11-4439-8287-7f143f8d7b21"}],"problem":null,"offers_types":true,"last_use":2,"vgpu_params":""},{"address":"0000:41:00.6","number":2,"driver":"nvidia","iommu_group":1003,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:00.7","number":3,"driver":"nvidia","iommu_group":1004,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.0","number":4,"driver":"nvidia","iommu_group":1005,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.1","number":5,"driver":"nvidia","iommu_group":1006,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.2","number":6,"driver":"nvidia","iommu_group":1007,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.3","number":7,"driver":"nvidia","iommu_group":1008,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.4","number":8,"driver":"nvidia","iommu_group":1009,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.5","number":9,"driver":"nvidia","iommu_group":1010,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.6","number":10,"driver":"nvidia","iommu_group":1011,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:01.7","number":11,"driver":"nvidia","iommu_group":1012,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.0","number":12,"driver":"nvidia","iommu_group":1013,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.1","number":13,"driver":"nvidia","iommu_group":1014,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.2","number":14,"driver":"nvidia","iommu_group":1015,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.3","number":15,"driver":"nvidia","iommu_group":1016,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.4","number":16,"driver":"nvidia","iommu_group":1017,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.5","number":17,"driver":"nvidia","iommu_group":1018,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.6","number":18,"driver":"nvidia","iommu_group":1019,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:02.7","number":19,"driver":"nvidia","iommu_group":1020,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.0","number":20,"driver":"nvidia","iommu_group":1021,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.1","number":21,"driver":"nvidia","iommu_group":1022,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.2","number":22,"driver":"nvidia","iommu_group":1023,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.3","number":23,"driver":"nvidia","iommu_group":1024,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.4","number":24,"driver":"nvidia","iommu_group":1025,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.5","number":25,"driver":"nvidia","iommu_group":1026,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.6","number":26,"driver":"nvidia","iommu_group":1027,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:03.7","number":27,"driver":"nvidia","iommu_group":1028,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.0","number":28,"driver":"nvidia","iommu_group":1029,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.1","number":29,"driver":"nvidia","iommu_group":1030,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.2","number":30,"driver":"nvidia","iommu_group":1031,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null},{"address":"0000:41:04.3","number":31,"driver":"nvidia","iommu_group":1032,"current_type":null,"mdev_uuid":null,"holders":[],"problem":null,"offers_types":true,"last_use":0,"vgpu_params":null}],"types":[{"type_id":"555","name":"A40-1B","full_name":"NVIDIA A40-1B","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}},{"type_id":"556","name":"A40-2B","full_name":"NVIDIA A40-2B","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}},{"type_id":"557","name":"A40-1Q","full_name":"NVIDIA A40-1Q","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":60}},{"type_id":"558","name":"A40-2Q","full_name":"NVIDIA A40-2Q","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"559","name":"A40-3Q","full_name":"NVIDIA A40-3Q","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"560","name":"A40-4Q","full_name":"NVIDIA A40-4Q","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"561","name":"A40-6Q","full_name":"NVIDIA A40-6Q","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"562","name":"A40-8Q","full_name":"NVIDIA A40-8Q","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"563","name":"A40-12Q","full_name":"NVIDIA A40-12Q","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"564","name":"A40-16Q","full_name":"NVIDIA A40-16Q","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"565","name":"A40-24Q","full_name":"NVIDIA A40-24Q","framebuffer_mib":24576,"max_instances":2,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"566","name":"A40-48Q","full_name":"NVIDIA A40-48Q","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[7680,4320],"frame_rate_limit":60}},{"type_id":"567","name":"A40-1A","full_name":"NVIDIA A40-1A","framebuffer_mib":1024,"max_instances":32,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"568","name":"A40-2A","full_name":"NVIDIA A40-2A","framebuffer_mib":2048,"max_instances":24,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"569","name":"A40-3A","full_name":"NVIDIA A40-3A","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"570","name":"A40-4A","full_name":"NVIDIA A40-4A","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"571","name":"A40-6A","full_name":"NVIDIA A40-6A","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"572","name":"A40-8A","full_name":"NVIDIA A40-8A","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"573","name":"A40-12A","full_name":"NVIDIA A40-12A","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"574","name":"A40-16A","full_name":"NVIDIA A40-16A","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"575","name":"A40-24A","full_name":"NVIDIA A40-24A","framebuffer_mib":24576,"max_instances":2,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"576","name":"A40-48A","full_name":"NVIDIA A40-48A","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[1280,1024],"frame_rate_limit":60}},{"type_id":"581","name":"A40-4C","full_name":"NVIDIA A40-4C","framebuffer_mib":4096,"max_instances":12,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"582","name":"A40-6C","full_name":"NVIDIA A40-6C","framebuffer_mib":6144,"max_instances":8,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"583","name":"A40-8C","full_name":"NVIDIA A40-8C","framebuffer_mib":8192,"max_instances":6,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"584","name":"A40-12C","full_name":"NVIDIA A40-12C","framebuffer_mib":12288,"max_instances":4,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"585","name":"A40-16C","full_name":"NVIDIA A40-16C","framebuffer_mib":16384,"max_instances":3,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"586","name":"A40-24C","full_name":"NVIDIA A40-24C","framebuffer_mib":24576,"max_instances":2,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"587","name":"A40-48C","full_name":"NVIDIA A40-48C","framebuffer_mib":49152,"max_instances":1,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":1,"max_resolution":[3840,2400],"frame_rate_limit":60}},{"type_id":"60004","name":"A40-3B","full_name":"NVIDIA A40-3B","framebuffer_mib":3072,"max_instances":16,"creatable":0,"creatable_starts":null,"placement_size":0,"display":{"heads":4,"max_resolution":[5120,2880],"frame_rate_limit":45}}],"mdevs":[],"bars_bytes":[16777216,68719476736,33554432],"reset_methods":["flr","bus"],"memory_mib":46068,"mig_mode":null,"holders":[],"problems":[],"users":[],"mig":null,"heterogeneous":false,"scheduler":{"policy":"best-effort","time_slice_us":null},"unread":[],"utilisation_percent":48,"strangers":[],"displays":[],"persistence":[],"topology":{"root":"pci0000:40","bridges":["0000:40:01.0"],"nvlinks":[],"fabric":null,"module":null}}],"read_at":1795721506.597187,"services":[{"name":"libvirtd.service","active":true},{"name":"nvidia-dcgm.service","active":false},{"name":"nvidia-persistenced.service","active":false},{"name":"nvidia-vgpu-mgr.service","active":true},{"name":"nvidia-vgpud.service","active":false},{"name":"openvswitch-switch.service","active":false},{"name":"ovn-controller.service","active":false},{"name":"ssh.service","active":true}],"hugepages":[{"size_kib":2048,"total":0,"free":0,"is_mounted":true},{"size_kib":1048576,"total":0,"free":0,"is_mounted":true}],"network_interfaces":["eno1","eno2","lo","virbr0"],"boot":null,"ovn":{"missing":[],"modules":["openvswitch","geneve","vxlan"],"switch_active":false,"controller_active":false,"chassis":null,"bridges":[],"interfaces":[{"name":"eno1","mtu":1500,"addresses":["10.84.0.1/16"]},{"name":"eno2","mtu":1500,"addresses":[]}],"has_certificate":false,"not_enabled":[],"managed":[]},"mdevctl":[],"unread_functions":[],"addresses":null,"selinux":null,"distribution":["debian"],"guest_firmwares":[{"descriptor":"40-edk2-x86_64-secure-enrolled.json","features":["acpi-s3","amd-sev","enrolled-keys","requires-smm","secure-boot","verbose-dynamic"],"code":"/usr/share/OVMF/OVMF_CODE_4M.ms.fd","variables_format":"raw","variables_bytes":0},{"descriptor":"60-edk2-x86_64.json","features":["acpi-s3","amd-sev","verbose-dynamic"],"code":"/usr/share/OVMF/OVMF_CODE_4M.fd","variables_format":"raw","variables_bytes":0}],"machine_id":"98f2c9c916d2c006dfa16a92abf09c65","tpm_programs":["swtpm","swtpm_setup"]}','6ff7501bfc090981',1.79572150659718704221e+09);
CREATE TABLE image_copies (
	image TEXT NOT NULL, 
	host TEXT NOT NULL, 
	real_path TEXT NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	device TEXT NOT NULL, 
	inode TEXT NOT NULL, 
	changed_ns INTEGER NOT NULL, 
	verified_at DOUBLE NOT NULL, 
	CONSTRAINT pk_image_copies PRIMARY KEY (image, host), 
	CONSTRAINT fk_image_copies_image_images FOREIGN KEY(image) REFERENCES images (name)
);
CREATE TABLE images (
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	format TEXT NOT NULL, 
	sha256 TEXT NOT NULL, 
	path TEXT, 
	pool TEXT, 
	volume TEXT, 
	os TEXT, 
	created_at DOUBLE NOT NULL, guest_driver TEXT, 
	CONSTRAINT pk_images PRIMARY KEY (name)
);
CREATE TABLE leases (
	id TEXT NOT NULL, 
	vm_uuid TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	vm_name TEXT NOT NULL, 
	host TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	device TEXT NOT NULL, 
	share TEXT NOT NULL, 
	share_version INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	problem TEXT, 
	created_at DOUBLE NOT NULL, 
	changed_at DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (id), 
	CONSTRAINT fk_leases_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name), 
	CONSTRAINT fk_leases_host_hosts FOREIGN KEY(host) REFERENCES hosts (name)
);
INSERT INTO "leases" VALUES('380df818-c898-464f-9909-e97995f40ace','4f3eb775-2860-4ada-975a-ecfee638cdd9','acme','web-1','sim-001',0,'0000:41:00.4','{"gpu":"0000:41:00.0","sharing":"vf-profile","profile":"A40-24Q","function":"0000:41:00.4","type_id":"565","mdev_uuid":null,"framebuffer_mib":24576,"companions":[],"numa_node":0,"first_drivers":[],"placement_start":null}',2,'running',NULL,1.79572149587730669974e+09,1.79572149630934762955e+09);
INSERT INTO "leases" VALUES('ae64aab0-dcc3-4037-9ec5-bbee8ba2b05e','43c3de73-0a11-4439-8287-7f143f8d7b21','acme','web-2','sim-001',0,'0000:41:00.5','{"gpu":"0000:41:00.0","sharing":"vf-profile","profile":"A40-24Q","function":"0000:41:00.5","type_id":"565","mdev_uuid":null,"framebuffer_mib":24576,"companions":[],"numa_node":0,"first_drivers":[],"placement_start":null}',2,'running',NULL,1.79572149857274532313e+09,1.7957214994843404293e+09);
INSERT INTO "leases" VALUES('04d92ddf-b340-4fa7-9e08-7f63510ad246','4f539c0d-2b60-43d1-90eb-55d7258992db','umbrella','idle','sim-002',0,'0000:41:00.4','{"gpu":"0000:41:00.0","sharing":"vf-profile","profile":"A40-24Q","function":"0000:41:00.4","type_id":"565","mdev_uuid":null,"framebuffer_mib":24576,"companions":[],"numa_node":0,"first_drivers":[],"placement_start":null}',2,'built',NULL,1.79572150168021917341e+09,1.79572150461079645157e+09);
CREATE TABLE licence_pools (
	name TEXT NOT NULL, 
	edition TEXT NOT NULL, 
	seats INTEGER NOT NULL, 
	lease_s DOUBLE NOT NULL, 
	server TEXT, 
	token TEXT, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_licence_pools PRIMARY KEY (name)
);
CREATE TABLE licence_seats (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	pool TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	vm_uuid TEXT NOT NULL, 
	vm_name TEXT NOT NULL, 
	edition TEXT NOT NULL, 
	taken_at DOUBLE NOT NULL, 
	used_at DOUBLE, 
	released_at DOUBLE, 
	CONSTRAINT fk_licence_seats_pool_licence_pools FOREIGN KEY(pool) REFERENCES licence_pools (name), 
	CONSTRAINT fk_licence_seats_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name)
);
CREATE TABLE networks (
	id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	name TEXT NOT NULL, 
	backend TEXT NOT NULL, 
	host TEXT, 
	state TEXT NOT NULL, 
	request TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, label TEXT, 
	CONSTRAINT pk_networks PRIMARY KEY (id), 
	CONSTRAINT uq_networks_tenant_name UNIQUE (tenant, name), 
	CONSTRAINT fk_networks_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name)
);
INSERT INTO "networks" VALUES('b861243e-c9f2-4c49-a7d8-68be441acb57','acme','back','libvirt','sim-001','ready','{"name":"back","tenant":"acme","cidr":"10.20.0.0/24","dns":[],"isolated":false,"backend":"libvirt","host":"sim-001"}',1795721491.76319,'acme.back');
CREATE TABLE operations (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	kind TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	hostname TEXT NOT NULL, 
	machine TEXT NOT NULL, 
	process_start TEXT NOT NULL, 
	begun_at DOUBLE NOT NULL
);
CREATE TABLE pool_grants (
	pool TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	CONSTRAINT pk_pool_grants PRIMARY KEY (pool, tenant), 
	CONSTRAINT fk_pool_grants_pool_pools FOREIGN KEY(pool) REFERENCES pools (name), 
	CONSTRAINT fk_pool_grants_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name)
);
CREATE TABLE pool_hosts (
	host TEXT NOT NULL, 
	pool TEXT NOT NULL, 
	CONSTRAINT pk_pool_hosts PRIMARY KEY (host), 
	CONSTRAINT fk_pool_hosts_pool_pools FOREIGN KEY(pool) REFERENCES pools (name)
);
CREATE TABLE pools (
	name TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_pools PRIMARY KEY (name)
);
CREATE TABLE ports (
	id TEXT NOT NULL, 
	network_id TEXT NOT NULL, 
	vm_uuid TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	mac_address TEXT NOT NULL, 
	address TEXT NOT NULL, 
	CONSTRAINT pk_ports PRIMARY KEY (id), 
	CONSTRAINT uq_ports_mac_address UNIQUE (mac_address), 
	CONSTRAINT uq_ports_network_id_address UNIQUE (network_id, address), 
	CONSTRAINT uq_ports_vm_uuid_position UNIQUE (vm_uuid, position), 
	CONSTRAINT fk_ports_network_id_networks FOREIGN KEY(network_id) REFERENCES networks (id)
);
CREATE TABLE proofs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	vm_uuid TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	kept BOOLEAN, 
	content TEXT NOT NULL
);
CREATE TABLE queue (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	kind TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	name TEXT NOT NULL, 
	request TEXT NOT NULL, 
	request_version INTEGER NOT NULL, 
	queued_at DOUBLE NOT NULL, 
	reason TEXT, may_preempt BOOLEAN, secrets TEXT, 
	CONSTRAINT uq_queue_tenant_name UNIQUE (tenant, name), 
	CONSTRAINT fk_queue_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name)
);
INSERT INTO "queue" VALUES(1,'create','umbrella','nightly','{"name":"nightly","tenant":"umbrella","gpus":[{"text":"A40-48Q","count":1,"profile":"A40-48Q","sharing":null,"board":null,"minimum_memory_mib":null,"exact_memory_mib":null,"series":null,"monitors":null,"position":null,"spare_port":null}],"vcpus":1,"memory_mib":96,"disk":{"size_mib":64,"base_image":null,"pool":"default","bus":null,"cache":null,"iops":null,"mbps":null},"network":null,"firmware":"bios","cloud_init":{"ssh_authorized_keys":[],"user_data":{"digest":"sha256:c54bb9552aaf4e2bcdc2d281301bcd259201007828209b9dcdcb5a59bbffcb55"},"network_config":null,"hostname":null,"licence_token":null},"direct_kernel":null,"host":null,"autostart":false,"restart":"never","priority":500,"preemptible":null,"constraints":{"policy":null,"required":[],"preferred":[],"group":null,"together":"prefer-apart"},"security_groups":[],"bandwidth_mbps":null,"duration_s":28800.0,"domain":null,"hugepages_kib":null,"workload":null,"guest_metrics":null,"os":null,"secure_boot":null,"tpm":null,"data_disks":[],"install":null,"nic_model":null,"nics":[],"display":{"kind":null,"video":null,"vgpu":null},"vgpu_params":[],"guest_driver":{"source":"none","version":null,"repository":null,"key":null,"package":null,"url":null,"sha256":null,"toolkit":false,"hold_kernel":true},"licence":null,"licence_pool":null,"spare_ports":null}',9,1.79572150662045884128e+09,'no GPU can take A40-48Q for VM umbrella/nightly',0,'gAAAAABrCIkih7eyZ9DunXW3M_EeZCT2hO7VYQkrsNSt0Bje3vO8KadcZ3v7n_GpeZdzQUOJRUDfIAL43x5FxWYqmb27hGlfm4Nv6l4DEVuIuw5rfsiEgmSp8uklEklHZbdtkzEujRs9mjo8QYONRaE3ifV3KJ8ww7acN5jh6uQdH4heci4B0K4=');
CREATE TABLE quotas (
	tenant TEXT NOT NULL, 
	resource TEXT NOT NULL, 
	most INTEGER, 
	guaranteed INTEGER, 
	CONSTRAINT pk_quotas PRIMARY KEY (tenant, resource), 
	CONSTRAINT fk_quotas_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name)
);
INSERT INTO "quotas" VALUES('acme','shares:A40-8Q',6,NULL);
INSERT INTO "quotas" VALUES('acme','vms',9,NULL);
CREATE TABLE reclaims (
	operation_id INTEGER NOT NULL, 
	tenant TEXT NOT NULL, 
	vm_name TEXT NOT NULL, 
	resource TEXT NOT NULL, 
	amount INTEGER NOT NULL, 
	CONSTRAINT pk_reclaims PRIMARY KEY (operation_id, vm_name, resource), 
	CONSTRAINT fk_reclaims_operation_id_operations FOREIGN KEY(operation_id) REFERENCES operations (id) ON DELETE CASCADE, 
	CONSTRAINT fk_reclaims_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name)
);
CREATE TABLE reservations (
	tenant TEXT NOT NULL, 
	name TEXT NOT NULL, 
	host TEXT NOT NULL, 
	content TEXT NOT NULL, 
	content_version INTEGER NOT NULL, 
	vm_uuid TEXT, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_reservations PRIMARY KEY (tenant, name), 
	CONSTRAINT fk_reservations_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name)
);
INSERT INTO "reservations" VALUES('acme','batch','sim-001','{"tenant":"acme","name":"batch","gpus":[{"text":"A40-24Q","count":1,"profile":"A40-24Q","sharing":null,"board":null,"minimum_memory_mib":null,"exact_memory_mib":null,"series":null,"monitors":null,"position":null,"spare_port":null}],"host":"sim-001","shares":[{"gpu":"0000:41:00.0","sharing":"vf-profile","profile":"A40-24Q","function":"0000:41:00.6","type_id":"565","mdev_uuid":null,"framebuffer_mib":24576,"companions":[],"numa_node":0,"first_drivers":[],"placement_start":null}],"begin":2111702400.0,"end":2111788800.0,"every_s":null,"vm_uuid":null}',1,NULL,1.79572150798519301418e+09);
CREATE TABLE restrictions (
	host TEXT NOT NULL, 
	device TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	finding TEXT, 
	gpu_uuid TEXT, 
	set_by TEXT NOT NULL, 
	set_at DOUBLE NOT NULL, 
	CONSTRAINT pk_restrictions PRIMARY KEY (host, device, kind)
);
INSERT INTO "restrictions" VALUES('sim-002','','cordon','memory',NULL,NULL,'root@vm',1.79572150891554403306e+09);
CREATE TABLE settings (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_settings PRIMARY KEY (name)
);
CREATE TABLE tenants (
	name TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, reclaim TEXT, preempt TEXT, grace_s DOUBLE, guest_probe BOOLEAN, 
	CONSTRAINT pk_tenants PRIMARY KEY (name)
);
INSERT INTO "tenants" VALUES('acme',1.79572148842254447932e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tenants" VALUES('umbrella',1.79572148958141398428e+09,NULL,NULL,NULL,NULL);
CREATE TABLE usage (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	lease_id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	vm_uuid TEXT NOT NULL, 
	vm_name TEXT NOT NULL, 
	host TEXT NOT NULL, 
	gpu TEXT NOT NULL, 
	profile TEXT NOT NULL, 
	framebuffer_mib INTEGER NOT NULL, 
	compute_slices INTEGER NOT NULL, 
	card_part DOUBLE NOT NULL, 
	begun_at DOUBLE NOT NULL, 
	ended_at DOUBLE
);
INSERT INTO "usage" VALUES(1,'380df818-c898-464f-9909-e97995f40ace','acme','4f3eb775-2860-4ada-975a-ecfee638cdd9','web-1','sim-001','0000:41:00.0','A40-24Q',24576,0,0.5,1.79572149612901449207e+09,NULL);
INSERT INTO "usage" VALUES(2,'ae64aab0-dcc3-4037-9ec5-bbee8ba2b05e','acme','43c3de73-0a11-4439-8287-7f143f8d7b21','web-2','sim-001','0000:41:00.0','A40-24Q',24576,0,0.5,1.79572149939269399641e+09,NULL);
INSERT INTO "usage" VALUES(3,'04d92ddf-b340-4fa7-9e08-7f63510ad246','umbrella','4f539c0d-2b60-43d1-90eb-55d7258992db','idle','sim-002','0000:41:00.0','A40-24Q',24576,0,0.5,1.79572150272438645361e+09,NULL);
CREATE TABLE vgpuctl_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT vgpuctl_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "vgpuctl_version" VALUES('0023');
CREATE TABLE vms (
	uuid TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	name TEXT NOT NULL, 
	host TEXT NOT NULL, 
	state TEXT NOT NULL, 
	problem TEXT, 
	request TEXT NOT NULL, 
	request_version INTEGER NOT NULL, 
	created_at DOUBLE NOT NULL, ends_at DOUBLE, gang TEXT, preempted_at DOUBLE, preempted_by TEXT, domain TEXT, nodes TEXT, preempted_for_good BOOLEAN, guest_driver TEXT, 
	CONSTRAINT pk_vms PRIMARY KEY (uuid), 
	CONSTRAINT uq_vms_tenant_name UNIQUE (tenant, name), 
	CONSTRAINT fk_vms_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name)
);
INSERT INTO "vms" VALUES('4f3eb775-2860-4ada-975a-ecfee638cdd9','acme','web-1','sim-001','running',NULL,'{"name":"web-1","tenant":"acme","gpus":[{"text":"A40-24Q","count":1,"profile":"A40-24Q","sharing":null,"board":null,"minimum_memory_mib":null,"exact_memory_mib":null,"series":null,"monitors":null,"position":null,"spare_port":null}],"vcpus":1,"memory_mib":96,"disk":{"size_mib":64,"base_image":null,"pool":"default","bus":null,"cache":null,"iops":null,"mbps":null},"network":null,"firmware":"bios","cloud_init":{"ssh_authorized_keys":[],"user_data":null,"network_config":null,"hostname":null,"licence_token":null},"direct_kernel":null,"host":null,"autostart":false,"restart":"never","priority":500,"preemptible":null,"constraints":{"policy":null,"required":[],"preferred":[],"group":null,"together":"prefer-apart"},"security_groups":[],"bandwidth_mbps":null,"duration_s":null,"domain":null,"hugepages_kib":null,"workload":null,"guest_metrics":null,"os":null,"secure_boot":null,"tpm":null,"data_disks":[],"install":null,"nic_model":null,"nics":[],"display":{"kind":null,"video":null,"vgpu":null},"vgpu_params":[],"guest_driver":{"source":"none","version":null,"repository":null,"key":null,"package":null,"url":null,"sha256":null,"toolkit":false,"hold_kernel":true},"licence":null,"licence_pool":null,"spare_ports":null}',9,1.79572149588971400257e+09,NULL,NULL,NULL,NULL,'acme.web-1',NULL,NULL,NULL);
INSERT INTO "vms" VALUES('43c3de73-0a11-4439-8287-7f143f8d7b21','acme','web-2','sim-001','running',NULL,'{"name":"web-2","tenant":"acme","gpus":[{"text":"A40-24Q","count":1,"profile":"A40-24Q","sharing":null,"board":null,"minimum_memory_mib":null,"exact_memory_mib":null,"series":null,"monitors":null,"position":null,"spare_port":null}],"vcpus":1,"memory_mib":96,"disk":{"size_mib":64,"base_image":null,"pool":"default","bus":null,"cache":null,"iops":null,"mbps":null},"network":null,"firmware":"bios","cloud_init":{"ssh_authorized_keys":[],"user_data":null,"network_config":null,"hostname":null,"licence_token":null},"direct_kernel":null,"host":null,"autostart":false,"restart":"never","priority":500,"preemptible":null,"constraints":{"policy":null,"required":[],"preferred":[],"group":null,"together":"prefer-apart"},"security_groups":[],"bandwidth_mbps":null,"duration_s":28800.0,"domain":null,"hugepages_kib":null,"workload":null,"guest_metrics":null,"os":null,"secure_boot":null,"tpm":null,"data_disks":[],"install":null,"nic_model":null,"nics":[],"display":{"kind":null,"video":null,"vgpu":null},"vgpu_params":[],"guest_driver":{"source":"none","version":null,"repository":null,"key":null,"package":null,"url":null,"sha256":null,"toolkit":false,"hold_kernel":true},"licence":null,"licence_pool":null,"spare_ports":null}',9,1.7957214985835909843e+09,1.7957502994853155613e+09,NULL,NULL,NULL,'acme.web-2',NULL,NULL,NULL);
INSERT INTO "vms" VALUES('4f539c0d-2b60-43d1-90eb-55d7258992db','umbrella','idle','sim-002','stopped',NULL,'{"name":"idle","tenant":"umbrella","gpus":[{"text":"A40-24Q","count":1,"profile":"A40-24Q","sharing":null,"board":null,"minimum_memory_mib":null,"exact_memory_mib":null,"series":null,"monitors":null,"position":null,"spare_port":null}],"vcpus":1,"memory_mib":96,"disk":{"size_mib":64,"base_image":null,"pool":"default","bus":null,"cache":null,"iops":null,"mbps":null},"network":null,"firmware":"bios","cloud_init":{"ssh_authorized_keys":[],"user_data":null,"network_config":null,"hostname":null,"licence_token":null},"direct_kernel":null,"host":null,"autostart":false,"restart":"never","priority":500,"preemptible":null,"constraints":{"policy":null,"required":[],"preferred":[],"group":null,"together":"prefer-apart"},"security_groups":[],"bandwidth_mbps":null,"duration_s":null,"domain":null,"hugepages_kib":null,"workload":null,"guest_metrics":null,"os":null,"secure_boot":null,"tpm":null,"data_disks":[],"install":null,"nic_model":null,"nics":[],"display":{"kind":null,"video":null,"vgpu":null},"vgpu_params":[],"guest_driver":{"source":"none","version":null,"repository":null,"key":null,"package":null,"url":null,"sha256":null,"toolkit":false,"hold_kernel":true},"licence":null,"licence_pool":null,"spare_ports":null}',9,1.79572150168248701089e+09,NULL,NULL,NULL,NULL,'umbrella.idle',NULL,NULL,NULL);
CREATE TABLE "volumes" (
	host TEXT NOT NULL, 
	pool TEXT NOT NULL, 
	name TEXT NOT NULL, 
	vm_uuid TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	vm_name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	state TEXT NOT NULL, 
	capacity_bytes INTEGER, 
	"key" TEXT, 
	path TEXT, 
	created_at DOUBLE NOT NULL, 
	format TEXT, 
	backing_path TEXT, 
	label TEXT DEFAULT '' NOT NULL, 
	keep BOOLEAN, 
	CONSTRAINT pk_volumes PRIMARY KEY (host, pool, name), 
	CONSTRAINT fk_volumes_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name), 
	CONSTRAINT uq_volumes_vm_uuid_host_kind_label UNIQUE (vm_uuid, host, kind, label)
);
INSERT INTO "volumes" VALUES('sim-001','default','4f3eb775-2860-4ada-975a-ecfee638cdd9.qcow2','4f3eb775-2860-4ada-975a-ecfee638cdd9','acme','web-1','disk','made',67108864,'/var/lib/libvirt/images/4f3eb775-2860-4ada-975a-ecfee638cdd9.qcow2','/var/lib/libvirt/images/4f3eb775-2860-4ada-975a-ecfee638cdd9.qcow2',1.79572149603699541091e+09,'qcow2',NULL,'',NULL);
INSERT INTO "volumes" VALUES('sim-001','default','43c3de73-0a11-4439-8287-7f143f8d7b21.qcow2','43c3de73-0a11-4439-8287-7f143f8d7b21','acme','web-2','disk','made',67108864,'/var/lib/libvirt/images/43c3de73-0a11-4439-8287-7f143f8d7b21.qcow2','/var/lib/libvirt/images/43c3de73-0a11-4439-8287-7f143f8d7b21.qcow2',1.79572149928297543526e+09,'qcow2',NULL,'',NULL);
INSERT INTO "volumes" VALUES('sim-002','default','4f539c0d-2b60-43d1-90eb-55d7258992db.qcow2','4f539c0d-2b60-43d1-90eb-55d7258992db','umbrella','idle','disk','made',67108864,'/var/lib/libvirt/images/4f539c0d-2b60-43d1-90eb-55d7258992db.qcow2','/var/lib/libvirt/images/4f539c0d-2b60-43d1-90eb-55d7258992db.qcow2',1.79572150264435577392e+09,'qcow2',NULL,'',NULL);
CREATE TABLE vpc_objects (
	tenant TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	name TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	CONSTRAINT pk_vpc_objects PRIMARY KEY (tenant, kind, name), 
	CONSTRAINT fk_vpc_objects_tenant_tenants FOREIGN KEY(tenant) REFERENCES tenants (name)
);
CREATE INDEX ix_vms_host ON vms (host);
CREATE INDEX ix_leases_vm_uuid ON leases (vm_uuid);
CREATE UNIQUE INDEX uq_leases_live_device ON leases (host, device) WHERE state <> 'gone';
CREATE UNIQUE INDEX uq_leases_live_position ON leases (vm_uuid, position) WHERE state <> 'gone';
CREATE INDEX ix_events_subject ON events (subject);
CREATE INDEX ix_usage_tenant_begun_at ON usage (tenant, begun_at);
CREATE UNIQUE INDEX uq_usage_open_lease ON usage (lease_id) WHERE ended_at IS NULL;
CREATE INDEX ix_addresses_holder ON addresses (holder);
CREATE INDEX ix_events_at ON events (at);
CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END;
CREATE INDEX ix_licence_seats_vm_uuid ON licence_seats (vm_uuid);
CREATE UNIQUE INDEX uq_licence_seats_held_vm ON licence_seats (vm_uuid) WHERE released_at IS NULL;
CREATE INDEX ix_proofs_vm_uuid ON proofs (vm_uuid);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',17);
INSERT INTO "sqlite_sequence" VALUES('operations',5);
INSERT INTO "sqlite_sequence" VALUES('usage',3);
INSERT INTO "sqlite_sequence" VALUES('queue',1);
COMMIT;