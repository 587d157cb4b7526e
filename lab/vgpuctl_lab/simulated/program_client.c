/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of a simulated host, as a login on it starts it: the program server runs it with this one's streams.
 *
 * `lab up` compiles it and puts it in `bin/` under the name of each program. In C, since the start of Python is nearly
 * all that a client in Python costs, and each login starts two.
 *
 * The message is the folder, the number of arguments, the arguments and the environment, each ended by a zero byte
 * (program_server.py reads it); the answers are the program's process id and then its exit code.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MOST_BYTES (1 << 20)

static char message[MOST_BYTES];
static size_t length;

static int add(const char *text)
{
	size_t size = strlen(text) + 1;

	if (size > sizeof(message) - length) {
		errno = E2BIG;
		return -1;
	}
	memcpy(message + length, text, size);
	length += size;
	return 0;
}

static int fill(int argc, char **argv)
{
	char folder[PATH_MAX], count[16];

	if (!getcwd(folder, sizeof(folder)))
		return -1;
	snprintf(count, sizeof(count), "%d", argc);
	if (add(folder) || add(count))
		return -1;
	for (int one = 0; one < argc; one++)
		if (add(argv[one]))
			return -1;
	for (char **one = environ; *one; one++)
		if (add(*one))
			return -1;
	return 0;
}

/* The socket lies two folders above the host's. Through /proc, because a socket's path has at most 107 bytes. */
static int reach_server(void)
{
	const char *host = getenv("VGPUCTL_SIMULATED_HOST");
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char folder[PATH_MAX];
	int directory, server;

	if (!host || snprintf(folder, sizeof(folder), "%s/../..", host) >= (int)sizeof(folder)) {
		errno = ENOENT;
		return -1;
	}
	directory = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		return -1;
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/programs.sock", directory);
	server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (server < 0 || connect(server, (struct sockaddr *)&address, sizeof(address)))
		return -1;
	return server;
}

static int send_with_streams(int server)
{
	int streams[] = { 0, 1, 2 };
	char control[CMSG_SPACE(sizeof(streams))] = { 0 };
	struct iovec part = { .iov_base = message, .iov_len = length };
	struct msghdr packet = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&packet);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(streams));
	memcpy(CMSG_DATA(header), streams, sizeof(streams));
	return sendmsg(server, &packet, 0) < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
	char answer[17] = "";
	ssize_t size = -1;
	int server, code;

	if (!fill(argc, argv) && (server = reach_server()) >= 0 && !send_with_streams(server) &&
	    recv(server, answer, sizeof(answer) - 1, 0) >= 0)
		size = recv(server, answer, sizeof(answer) - 1, 0);
	if (size < 0) {
		fprintf(stderr, "%s: the lab daemon runs no programs: %s\n", argv[0], strerror(errno));
		return 1;
	}
	answer[size] = 0;
	code = size ? atoi(answer) : 255;
	_exit(code >= 0 ? code : 128 - code);
}
