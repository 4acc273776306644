/*
 * The bundle protocol in C: how a connection, and what is known of it, travels over a SOCK_SEQPACKET channel.
 *
 * Runs in: a guarded server (the preload library, the C library), a filter process. Sees: messages of the gate or of
 * the filter before. Never: allocates, keeps state or writes anything but its messages; safe in threads and after fork.
 *
 * Encoding (the crate `wire` is the other side): version byte 1, type byte, fields in order, integers little-endian; an
 * address is 16 bytes of IPv6 (IPv4 mapped) and a port; bytes are a u32 length and themselves. One message a packet.
 */
#ifndef CC_CORE_H
#define CC_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* LIMIT: a whole request head at its largest setting; the crate `wire` has the same number. */
#define CC_TAKEN_MAX 65536

/* The variable of the environment that holds the number of the control descriptor. */
#define CC_CONTROL_VARIABLE "BULKHEAD_GUARD"

/* The lowest number for descriptors that the server shall not meet by chance: above what small programs use, below
 * 1024, where select(2) and the default limit of descriptors end. */
#define CC_DESCRIPTOR_MIN 960

/* A connection on its way. */
struct cc_bundle {
    uint64_t id;                         /* the gate's number for it */
    struct sockaddr_storage peer, local; /* the client; the address of ours. AF_INET for a mapped IPv4 address */
    socklen_t peerlen, locallen;
    int relayed;                         /* the other end is a site worker, not a client */
    int fd;                              /* the connection itself; -1 if there is none */
    size_t taken;                        /* bytes that were read from it already: they come before what is in it */
    unsigned char *bytes;                /* where to put them: the caller's CC_TAKEN_MAX bytes, or NULL for no room */
};

/*
 * Takes the next bundle from `channel`. Before the call, `bytes` must be set (or NULL: then a bundle that has taken
 * bytes is refused with EMSGSIZE); everything else is set by the call. `flags` go to recvmsg(2): MSG_DONTWAIT,
 * MSG_CMSG_CLOEXEC. 1: got one, and `fd` is the caller's. 0: the end of the channel. -1: errno; EBADMSG for what is no
 * bundle. Interrupted calls are not repeated (EINTR), as accept(2) does not.
 */
int cc_core_receive(int channel, struct cc_bundle *bundle, int flags);

/* Sends `bundle` with `taken` (`len` bytes, at most CC_TAKEN_MAX) in the place of its own. The caller still owns `fd`
 * and closes it. 0, or -1 and errno; a signal does not interrupt it. */
int cc_core_send(int channel, const struct cc_bundle *bundle, const void *taken, size_t len);

/* The control descriptor that the environment names, or -1 if it names none or what it names is no such channel. */
int cc_core_control(void);

/*
 * Has the guard's gate accept on `listening_fd` (a TCP socket that listens), and returns our end of the channel on
 * which it sends what it accepts (close-on-exec; blocking), or -1 and errno. The caller still owns `listening_fd`,
 * and closes it. With -1 in its place, only the channel is made: the guard listens itself. `number` tells the
 * listeners of one control channel apart.
 */
int cc_core_adopt(int control, int listening_fd, uint64_t number);

/* Makes this process's own channel to the gate; returns our end (close-on-exec, a number from CC_DESCRIPTOR_MIN up), or
 * -1. A forked child needs one of its own: the end of the channel is, to the gate, the end of the process. */
int cc_core_process(int control);

/* Tell the gate on the process's channel: this connection was taken from the shared channel; it was closed; it comes
 * back with `len` bytes that were read beyond the request that was answered (the caller closes its copy of `fd`
 * then). 0, or -1 and errno: at EPIPE the gate has gone. */
int cc_core_took(int process_channel, const struct cc_bundle *bundle);
int cc_core_done(int process_channel, uint64_t id);
int cc_core_back(int process_channel, uint64_t id, int fd, const void *taken, size_t len);

/* How many connections a process may keep between two requests, and how long a head may be for which it does. */
struct cc_keep { uint32_t connections, head_bytes; };

/* Tell the gate that this process can keep connections, and that so many requests were answered on those it kept. 0, or
 * -1 and errno. */
int cc_core_keeps(int process_channel);
int cc_core_served(int process_channel, uint32_t requests);

/* The same as cc_core_took for each of the first ones, and then cc_core_done for each of the others, in one message; at
 * most CC_BATCH_MAX of each. */
#define CC_BATCH_MAX 32
int cc_core_batch(int process_channel, const uint64_t *took, size_t took_count, const uint64_t *done, size_t done_count);

/* What the gate has answered to cc_core_keeps, since: 1 and `keep`; 0 at the end of the channel; -1 and errno, EAGAIN
 * if there is nothing. Does not wait. */
int cc_core_keep(int process_channel, struct cc_keep *keep);

#endif
