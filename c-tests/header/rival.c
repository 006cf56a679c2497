/* A program with an xsk_* of its own or somebody else's (see rival.sh): it makes as many AF_XDP sockets as it is told. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef COPY
int xsk_socket__create(void);
int xsk_socket__create(void)
{
	return socket(44, SOCK_RAW, 0);
}
#endif
#ifdef POINTER
int xsk_socket__create(void);
int (*volatile function)(void) = xsk_socket__create;
#endif

#ifndef LIBRARY
int main(int argc, char **argv)
{
	for (int left = argc > 1 ? atoi(argv[1]) : 0; left; left--) {
#ifdef COPY
		int fd = xsk_socket__create();
#else
		int fd = socket(44, SOCK_RAW, 0);
#endif

		if (fd >= 0)
			close(fd);
	}
	return 0;
}
#endif
