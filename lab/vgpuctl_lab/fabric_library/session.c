/* SPDX-License-Identifier: Apache-2.0 */
/* fmLibInit, fmConnect and their opposites; how each call begins and ends. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric.h"

#define MOST_CONNECTIONS 64
#define LOOPBACK "127.0.0.1"

/* A connection to the socket of Fabric Manager's own processes is made and answers nothing. */
enum connection { CLOSED, OPEN, TO_INTERNAL_SOCKET };

static pthread_mutex_t session_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_initialized;
static unsigned char connections[MOST_CONNECTIONS];

/* Codes that somebody wants functions to return: lines `fmConnect -6` of the file nvfm_codes. */
static int injected(const char *function)
{
	char path[4096], name[64];
	int code, found = FM_ST_SUCCESS;
	FILE *file;

	snprintf(path, sizeof(path), "%s/nvfm_codes", getenv("VGPULAB_PROC") ?: "/etc/vgpulab");
	file = fopen(path, "re");
	while (file && fscanf(file, "%63s %d", name, &code) == 2)
		if (!strcmp(name, function))
			found = code;
	if (file)
		fclose(file);
	return found;
}

fmReturn_t fmLibInit(void)
{
	fmReturn_t ret = injected(__func__);

	pthread_mutex_lock(&session_lock);
	if (ret == FM_ST_SUCCESS && is_initialized)
		ret = FM_ST_IN_USE;
	if (ret == FM_ST_SUCCESS)
		is_initialized = true;
	pthread_mutex_unlock(&session_lock);
	return ret;
}

fmReturn_t fmLibShutdown(void)
{
	fmReturn_t ret = FM_ST_UNINITIALIZED;

	pthread_mutex_lock(&session_lock);
	if (is_initialized) {
		memset(connections, CLOSED, sizeof(connections));
		is_initialized = false;
		ret = FM_ST_SUCCESS;
	}
	pthread_mutex_unlock(&session_lock);
	return ret;
}

/* The next GPU of a board with NVSwitch in the card table; NULL after the last. */
const struct lab_line *next_gpu(const struct call *call, const struct lab_line *line)
{
	const struct lab_line *end = call->cards.lines + call->cards.count;

	for (line = line ? line + 1 : call->cards.lines; line && line < end; line++)
		if (!strcmp(line->kind, "card") && lab_number(line, "nvlink_switch", 0))
			return line;
	return NULL;
}

void close_call(struct call *call)
{
	lab_text_free(&call->cards);
	if (call->lock >= 0)
		close(call->lock);
}

/* Look at the host: not valid without boards with NVSwitch, or where Fabric Manager has ended. */
static fmReturn_t look(struct call *call)
{
	const struct lab_line *gpu;

	if (!lab_text_read(&call->cards, getenv("VGPULAB_PROC") ?: "/proc/vgpulab", "cards"))
		return FM_ST_CONNECTION_NOT_VALID;
	gpu = next_gpu(call, NULL);
	call->board = gpu ? board_of(lab_number(gpu, "nvlink_version", 0)) : NULL;
	call->mode = fabric_mode();
	fabric_read(&call->state);
	return call->board && !call->state.is_stopped ? FM_ST_SUCCESS : FM_ST_CONNECTION_NOT_VALID;
}

/* Begin a call. versioned: its structure, whose first word must be `version`; 0 for a call without. */
fmReturn_t begin(struct call *call, const char *function, fmHandle_t handle, const void *versioned, unsigned int version)
{
	size_t number = (unsigned char *)handle - connections;
	fmReturn_t ret = FM_ST_SUCCESS;
	char path[4096];

	pthread_mutex_lock(&session_lock);
	if (!is_initialized)
		ret = FM_ST_UNINITIALIZED;
	else if (version && !versioned)
		ret = FM_ST_BADPARAM;
	else if (version && *(const unsigned int *)versioned != version)
		ret = FM_ST_VERSION_MISMATCH;
	else if (!handle || number >= MOST_CONNECTIONS || connections[number] == CLOSED)
		ret = FM_ST_BADPARAM;
	else if (connections[number] == TO_INTERNAL_SOCKET)
		ret = FM_ST_UNINITIALIZED;
	pthread_mutex_unlock(&session_lock);
	if (ret == FM_ST_SUCCESS)
		ret = injected(function);
	if (ret != FM_ST_SUCCESS)
		return ret;
	mkdir(fabric_folder(), 0755);
	snprintf(path, sizeof(path), "%s/fabric.lock", fabric_folder());
	call->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (call->lock < 0 || flock(call->lock, LOCK_EX))
		return FM_ST_GENERIC_ERROR;
	ret = look(call);
	if (ret == FM_ST_SUCCESS && call->state.starting_until > fabric_now())
		ret = FM_ST_NOT_CONFIGURED;
	return ret;
}

/* A call about partitions. After a restart Fabric Manager answers none before it knows which are active. */
fmReturn_t begin_partitions(struct call *call, const char *function, fmHandle_t handle, const void *versioned,
			    unsigned int version)
{
	fmReturn_t ret = begin(call, function, handle, versioned, version);

	if (ret == FM_ST_SUCCESS && call->mode != FABRIC_SHARED && call->mode != FABRIC_VGPU)
		ret = FM_ST_NOT_SUPPORTED;
	if (ret == FM_ST_SUCCESS && call->state.window_ends)
		ret = FM_ST_NOT_CONFIGURED;
	return ret;
}

/* Keep what the call has changed. */
fmReturn_t end(struct call *call)
{
	return fabric_write(&call->state) ? FM_ST_SUCCESS : FM_ST_GENERIC_ERROR;
}

static bool is_inet_address(char *address, unsigned int *port)
{
	char *colon = strchr(address, ':'), *rest;
	struct in_addr unused;

	*port = FM_CMD_PORT_NUMBER;
	if (colon) {
		*colon = '\0';
		*port = strtoul(colon + 1, &rest, 10);
		if (!colon[1] || *rest || *port > 65535)
			return false;
	}
	if (!strcmp(address, "localhost"))
		strcpy(address, LOOPBACK);
	return inet_pton(AF_INET, address, &unused) == 1;
}

/* Fabric Manager listens at one address: a socket of its configuration, else at an interface of the network. */
static fmReturn_t reach(const fmConnectParams_t *params, bool is_v2, enum connection *connection)
{
	char address[FM_MAX_STR_LENGTH + 1], listening[FM_MAX_STR_LENGTH], internal[FM_MAX_STR_LENGTH], port_text[16];
	enum nvFmApiAddrTypes type = is_v2 ? params->addressType : NV_FM_API_ADDR_TYPE_UNKNOWN;
	unsigned int port;

	snprintf(address, sizeof(address), "%.*s", FM_MAX_STR_LENGTH, params->addressInfo);
	fabric_config("FM_CMD_UNIX_SOCKET_PATH", "", listening, sizeof(listening));
	if (type != NV_FM_API_ADDR_TYPE_INET && type != NV_FM_API_ADDR_TYPE_UNIX && type != NV_FM_API_ADDR_TYPE_VSOCK)
		type = params->addressIsUnixSocket ? NV_FM_API_ADDR_TYPE_UNIX : NV_FM_API_ADDR_TYPE_INET;
	*connection = OPEN;
	if (type == NV_FM_API_ADDR_TYPE_UNIX) {
		fabric_config("UNIX_SOCKET_PATH", "", internal, sizeof(internal));
		if (*internal && !strcmp(address, internal))
			*connection = TO_INTERNAL_SOCKET;
		else if (!*listening || strcmp(address, listening))
			return FM_ST_CONNECTION_NOT_VALID;
		return FM_ST_SUCCESS;
	}
	if (type == NV_FM_API_ADDR_TYPE_VSOCK)
		return FM_ST_CONNECTION_NOT_VALID;
	if (!is_inet_address(address, &port))
		return FM_ST_BADPARAM;
	if (*listening)
		return FM_ST_CONNECTION_NOT_VALID;
	fabric_config("FM_CMD_BIND_INTERFACE", LOOPBACK, listening, sizeof(listening));
	fabric_config("FM_CMD_PORT_NUMBER", "6666", port_text, sizeof(port_text));
	if (strcmp(address, listening) || port != strtoul(port_text, NULL, 10))
		return FM_ST_CONNECTION_NOT_VALID;
	return FM_ST_SUCCESS;
}

fmReturn_t fmConnect(fmConnectParams_t *params, fmHandle_t *handle)
{
	CALL(call);
	enum connection connection = OPEN;
	fmReturn_t ret = FM_ST_SUCCESS;

	if (!is_initialized)
		return FM_ST_UNINITIALIZED;
	if (!params || !handle)
		return FM_ST_BADPARAM;
	if (params->version != fmConnectV1Params_version1 && params->version != fmConnectV2Params_version2)
		return FM_ST_VERSION_MISMATCH;
	ret = injected(__func__);
	if (ret == FM_ST_SUCCESS)
		ret = reach(params, params->version == fmConnectV2Params_version2, &connection);
	if (ret == FM_ST_SUCCESS)
		ret = look(&call);
	if (ret != FM_ST_SUCCESS)
		return ret;
	ret = FM_ST_RESOURCE_EXHAUSTED;
	pthread_mutex_lock(&session_lock);
	for (size_t i = 0; i < MOST_CONNECTIONS && ret != FM_ST_SUCCESS; i++)
		if (connections[i] == CLOSED) {
			connections[i] = connection;
			*handle = &connections[i];
			ret = FM_ST_SUCCESS;
		}
	pthread_mutex_unlock(&session_lock);
	return ret;
}

fmReturn_t fmDisconnect(fmHandle_t handle)
{
	size_t number = (unsigned char *)handle - connections;
	fmReturn_t ret = FM_ST_SUCCESS;

	pthread_mutex_lock(&session_lock);
	if (!is_initialized)
		ret = FM_ST_UNINITIALIZED;
	else if (!handle || number >= MOST_CONNECTIONS || connections[number] == CLOSED)
		ret = FM_ST_BADPARAM;
	else
		connections[number] = CLOSED;
	pthread_mutex_unlock(&session_lock);
	return ret;
}
