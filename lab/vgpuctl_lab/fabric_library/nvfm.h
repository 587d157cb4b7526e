/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary interface of Fabric Manager's SDK, written from its published description: the Fabric Manager user guide,
 * section "Fabric Manager SDK", and the names that its clients use. A version word is the size of the structure, and
 * its version in the highest byte.
 */
#ifndef NVFM_H
#define NVFM_H

#define FM_MAX_STR_LENGTH 256
#define FM_UUID_BUFFER_SIZE 80
#define FM_DEVICE_PCI_BUS_ID_BUFFER_SIZE 32
#define FM_MAX_NUM_GPUS 16
#define FM_MAX_NUM_NVSWITCHES 12
#define FM_MAX_FABRIC_PARTITIONS 64
#define FM_MAX_NUM_NVLINK_PORTS 64
#define FM_CMD_PORT_NUMBER 6666
#define MAKE_FM_PARAM_VERSION(type, number) ((unsigned int)(sizeof(type) | (number) << 24))

typedef enum {
	FM_ST_SUCCESS = 0,
	FM_ST_BADPARAM = -1,
	FM_ST_GENERIC_ERROR = -2,
	FM_ST_NOT_SUPPORTED = -3,
	FM_ST_UNINITIALIZED = -4,
	FM_ST_TIMEOUT = -5,
	FM_ST_VERSION_MISMATCH = -6,
	FM_ST_IN_USE = -7,
	FM_ST_NOT_CONFIGURED = -8,
	FM_ST_CONNECTION_NOT_VALID = -9,
	FM_ST_NVLINK_ERROR = -10,
	FM_ST_RESOURCE_BAD = -11,
	FM_ST_RESOURCE_IN_USE = -12,
	FM_ST_RESOURCE_NOT_IN_USE = -13,
	FM_ST_RESOURCE_EXHAUSTED = -14,
	FM_ST_RESOURCE_NOT_READY = -15,
	FM_ST_PARTITION_EXISTS = -16,
	FM_ST_PARTITION_ID_IN_USE = -17,
	FM_ST_PARTITION_ID_NOT_IN_USE = -18,
	FM_ST_PARTITION_NAME_IN_USE = -19,
	FM_ST_PARTITION_NAME_NOT_IN_USE = -20,
	FM_ST_PARTITION_ID_NAME_MISMATCH = -21,
	FM_ST_NOT_READY = -22,
	FM_ST_RESOURCE_USED_IN_THIS_PARTITION = -23,
	FM_ST_RESOURCE_USED_IN_ANOTHER_PARTITION = -24,
	FM_ST_PARTITION_MISWIRED_TRUNKS = -25,
	FM_ST_PARTITION_INSUFFICIENT_TRUNKS = -26,
	FM_ST_PARTITION_MISSING_SWITCHES = -27,
	FM_ST_PARTITION_NETWORK_CONFIG_ERROR = -28,
	FM_ST_PARTITION_ROUTE_PROGRAMMING_ERROR = -29,
} fmReturn_t;

typedef void *fmHandle_t;
typedef unsigned int fmFabricPartitionId_t;

enum nvFmApiAddrTypes {
	NV_FM_API_ADDR_TYPE_UNKNOWN,
	NV_FM_API_ADDR_TYPE_INET,
	NV_FM_API_ADDR_TYPE_UNIX,
	NV_FM_API_ADDR_TYPE_VSOCK,
};

typedef struct {
	unsigned int version;
	char addressInfo[FM_MAX_STR_LENGTH];
	unsigned int timeoutMs;
	unsigned int addressIsUnixSocket;
} fmConnectParams_v1;

typedef struct {
	unsigned int version;
	char addressInfo[FM_MAX_STR_LENGTH];
	unsigned int timeoutMs;
	unsigned int addressIsUnixSocket;
	enum nvFmApiAddrTypes addressType;
} fmConnectParams_v2;
typedef fmConnectParams_v2 fmConnectParams_t;
#define fmConnectV1Params_version1 MAKE_FM_PARAM_VERSION(fmConnectParams_v1, 1)
#define fmConnectV2Params_version2 MAKE_FM_PARAM_VERSION(fmConnectParams_v2, 2)
#define fmConnectParams_version fmConnectV2Params_version2

/* function: up to 255 where the bus has ARI. */
typedef struct {
	unsigned int domain, bus, device, function;
} fmPciDevice_t;

/* physicalId: the module of NVML. uuid and pciBusId are empty from H100 on. */
typedef struct {
	unsigned int physicalId;
	char uuid[FM_UUID_BUFFER_SIZE];
	char pciBusId[FM_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
	unsigned int numNvLinksAvailable, maxNumNvLinks, nvlinkLineRateMBps;
} fmFabricPartitionGpuInfo_t;

typedef struct {
	fmFabricPartitionId_t partitionId;
	unsigned int isActive, numGpus;
	fmFabricPartitionGpuInfo_t gpuInfo[FM_MAX_NUM_GPUS];
} fmFabricPartitionInfo_t;

/* The second of its name, and its version word says 1. */
typedef struct {
	unsigned int version, numPartitions, maxNumPartitions;
	fmFabricPartitionInfo_t partitionInfo[FM_MAX_FABRIC_PARTITIONS];
} fmFabricPartitionList_v2;
typedef fmFabricPartitionList_v2 fmFabricPartitionList_t;
#define fmFabricPartitionList_version MAKE_FM_PARAM_VERSION(fmFabricPartitionList_v2, 1)

typedef struct {
	unsigned int version, numPartitions;
	fmFabricPartitionId_t partitionIds[FM_MAX_FABRIC_PARTITIONS];
} fmActivatedFabricPartitionList_v1;
typedef fmActivatedFabricPartitionList_v1 fmActivatedFabricPartitionList_t;
#define fmActivatedFabricPartitionList_version MAKE_FM_PARAM_VERSION(fmActivatedFabricPartitionList_v1, 1)

typedef struct {
	char uuid[FM_UUID_BUFFER_SIZE];
	char pciBusId[FM_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
	unsigned int numPorts;
	unsigned int portNum[FM_MAX_NUM_NVLINK_PORTS];
} fmNvlinkFailedDeviceInfo_t;

typedef struct {
	unsigned int version, numGpus, numSwitches;
	fmNvlinkFailedDeviceInfo_t gpuInfo[FM_MAX_NUM_GPUS];
	fmNvlinkFailedDeviceInfo_t switchInfo[FM_MAX_NUM_NVSWITCHES];
} fmNvlinkFailedDevices_v1;
typedef fmNvlinkFailedDevices_v1 fmNvlinkFailedDevices_t;
#define fmNvlinkFailedDevices_version MAKE_FM_PARAM_VERSION(fmNvlinkFailedDevices_v1, 1)

typedef struct {
	fmFabricPartitionId_t partitionId;
	unsigned int numGpus;
	unsigned int gpuPhysicalIds[FM_MAX_NUM_GPUS];
} fmUnsupportedFabricPartitionInfo_t;

typedef struct {
	unsigned int version, numPartitions;
	fmUnsupportedFabricPartitionInfo_t partitionInfo[FM_MAX_FABRIC_PARTITIONS];
} fmUnsupportedFabricPartitionList_v1;
typedef fmUnsupportedFabricPartitionList_v1 fmUnsupportedFabricPartitionList_t;
#define fmUnsupportedFabricPartitionList_version MAKE_FM_PARAM_VERSION(fmUnsupportedFabricPartitionList_v1, 1)

#define FM_LIB_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

FM_LIB_API fmReturn_t fmLibInit(void);
FM_LIB_API fmReturn_t fmLibShutdown(void);
FM_LIB_API fmReturn_t fmConnect(fmConnectParams_t *params, fmHandle_t *handle);
FM_LIB_API fmReturn_t fmDisconnect(fmHandle_t handle);
FM_LIB_API fmReturn_t fmGetSupportedFabricPartitions(fmHandle_t handle, fmFabricPartitionList_t *list);
FM_LIB_API fmReturn_t fmActivateFabricPartition(fmHandle_t handle, fmFabricPartitionId_t id);
FM_LIB_API fmReturn_t fmActivateFabricPartitionWithVFs(fmHandle_t handle, fmFabricPartitionId_t id, fmPciDevice_t *vfs,
						       unsigned int count);
FM_LIB_API fmReturn_t fmDeactivateFabricPartition(fmHandle_t handle, fmFabricPartitionId_t id);
FM_LIB_API fmReturn_t fmSetActivatedFabricPartitions(fmHandle_t handle, fmActivatedFabricPartitionList_t *list);
FM_LIB_API fmReturn_t fmGetNvlinkFailedDevices(fmHandle_t handle, fmNvlinkFailedDevices_t *devices);
FM_LIB_API fmReturn_t fmGetUnsupportedFabricPartitions(fmHandle_t handle, fmUnsupportedFabricPartitionList_t *list);

#ifdef __cplusplus
}
#endif

#endif /* NVFM_H */
