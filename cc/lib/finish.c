/* The end of a connection, for servers and filters alike.
 *
 * Runs in: a guarded server, a filter process. Sees: bytes that nobody wants. Never: waits for a client. */
#define _GNU_SOURCE
#include "finish.h"

#include <sys/socket.h>

/* LIMIT: 64 KiB; whoever has more on its way gets a reset, as from any server. */
enum { PIECE = 4096, PIECES = 16 };

void cci_finish(int fd)
{
    char unread[PIECE];
    shutdown(fd, SHUT_WR);
    /* Bytes that nobody read would make close(2) send a reset, which can overtake the end of the response. */
    for (int i = 0; i < PIECES && recv(fd, unread, sizeof unread, MSG_DONTWAIT) > 0; i++)
        ;
}
