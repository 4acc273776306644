/* A service that an attacker has taken over: it answers requests, and does what their paths say.
 *
 *     /owned/flood          a MiB of lines for error.log
 *     /owned/descriptors    to each process that it has a channel to, sockets whose closing takes its time
 *     /owned/back           the connection back, again and again, with garbage that its client is to have sent
 *     /owned/heads          the same with a request for another tenant's site before the garbage
 *
 * Runs in: the jail of a service that takes connections. Sees: requests of the benchmark. Never: uses anything of Bulkhead's.
 */

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE = 70000, CHANNELS = 64, CONTROL = 3, CREDITS = 8, HEAD = 2 + 8 + 18 + 18 + 1 + 4, TOGETHER = 60, MESSAGES = 16, FLOOD = 1 << 20, BACK = 110 };

#define GARBAGE "\1\2\3 / HTTP/9\r\n\r\n"

static struct pollfd watched[CHANNELS] = {{.fd = CONTROL, .events = POLLIN}};
static nfds_t count = 1;

struct rights {
    union {
        char bytes[CMSG_SPACE(TOGETHER * sizeof(int))];
        struct cmsghdr header;
    } control;
    struct iovec part;
    struct msghdr message;
};

static void attach(struct rights *rights, const int *descriptors, size_t number, void *data, size_t length) {
    memset(rights, 0, sizeof *rights);
    rights->part = (struct iovec){data, length};
    rights->message = (struct msghdr){.msg_iov = &rights->part, .msg_iovlen = 1, .msg_control = &rights->control,
                                      .msg_controllen = CMSG_SPACE(number * sizeof(int))};
    rights->control.header = (struct cmsghdr){CMSG_LEN(number * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&rights->control.header), descriptors, number * sizeof(int));
}

/* Sockets with full buffers, whose other ends are closed: who has the last copy of one has to take its content apart. */
static void send_descriptors(void) {
    static char full[16384];
    for (int message = 0; message < MESSAGES; message++) {
        int pairs[TOGETHER], number = 0, both[2];
        while (number < TOGETHER && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both) == 0) {
            while (send(both[1], full, sizeof full, MSG_NOSIGNAL) > 0) {}
            close(both[1]);
            pairs[number++] = both[0];
        }
        struct rights rights;
        for (nfds_t at = 0; number && at < count; at++) {
            attach(&rights, pairs, (size_t)number, (char[6]){1, 1, 0, 0, 0, 0}, 6);
            sendmsg(watched[at].fd, &rights.message, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        while (number) close(pairs[--number]);
    }
}

static void flood(void) {
    static char line[200];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (size_t written = 0; written < FLOOD; written += sizeof line)
        if (write(2, line, sizeof line) < 0) return;
}

/* Each is an offence of the client's, as far as whoever gets it back believes that. */
static void hand_back(int to, int connection, const char *read) {
    unsigned char message[14 + 200] = {1, 2};
    size_t length = strlen(read);
    memset(message + 2, 0xff, 8);
    message[10] = (unsigned char)length;
    memcpy(message + 14, read, length);
    for (int times = 0; times < BACK; times++) {
        struct rights rights;
        attach(&rights, &connection, 1, message, 14 + length);
        sendmsg(to, &rights.message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* The head came along, or has not been read from the connection yet. */
static void answer(int from, int connection, const char *head) {
    static const char said[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    static char own[4096];
    if (!*head) {
        poll(&(struct pollfd){connection, POLLIN, 0}, 1, 1000);
        ssize_t length = recv(connection, own, sizeof own - 1, MSG_DONTWAIT);
        own[length > 0 ? length : 0] = 0;
        head = own;
    }
    if (strstr(head, "/owned/flood")) flood();
    if (strstr(head, "/owned/descriptors")) send_descriptors();
    if (strstr(head, "/owned/back")) hand_back(from, connection, GARBAGE);
    /* The worker of that site answers, and hands back what comes behind. */
    if (strstr(head, "/owned/heads")) return hand_back(from, connection, "GET /page.txt HTTP/1.1\r\nHost: main.test\r\n\r\n" GARBAGE);
    send(connection, said, sizeof said - 1, MSG_NOSIGNAL);
    shutdown(connection, SHUT_WR);
}

/* A message and the descriptor that came along. */
static ssize_t receive(int from, unsigned char *data, int *descriptor) {
    struct rights rights;
    int none = -1;
    attach(&rights, &none, 1, data, MESSAGE);
    rights.message.msg_controllen = sizeof rights.control;
    ssize_t length = recvmsg(from, &rights.message, 0);
    struct cmsghdr *header = length > 0 ? CMSG_FIRSTHDR(&rights.message) : NULL;
    *descriptor = -1;
    if (header && header->cmsg_type == SCM_RIGHTS) memcpy(descriptor, CMSG_DATA(header), sizeof(int));
    return length;
}

static void give_credits(int to, unsigned char number, const unsigned char *done) {
    unsigned char message[14] = {1, 1, number, 0, done ? 1 : 0, 0};
    if (done) memcpy(message + 6, done, 8);
    send(to, message, done ? 14 : 6, MSG_NOSIGNAL);
}

static void take(nfds_t at) {
    static unsigned char data[MESSAGE + 1];
    int connection;
    ssize_t length = receive(watched[at].fd, data, &connection);
    if (length <= 0) {
        close(watched[at].fd);
        watched[at] = watched[--count];
        return;
    }
    if (length < HEAD || data[0] != 1 || data[1] != 1 || connection < 0) return;
    data[length] = 0;
    answer(watched[at].fd, connection, (const char *)data + HEAD);
    give_credits(watched[at].fd, 1, data + 2);
    close(connection);
}

int main(void) {
    static unsigned char data[MESSAGE];
    int channel, is_ready = 0;
    for (;;) {
        poll(watched, count, -1);
        for (nfds_t at = count; at-- > 1;)
            if (watched[at].revents) take(at);
        if (!watched[0].revents) continue;
        if (receive(CONTROL, data, &channel) <= 0) return 0;
        if (data[1] == 2) is_ready = 1, send(CONTROL, (char[2]){1, 1}, 2, MSG_NOSIGNAL);
        if (data[1] == 3 && count < CHANNELS) watched[count++] = (struct pollfd){.fd = channel, .events = POLLIN};
        if (data[1] == 4) send(CONTROL, (char[22]){1, 2}, 22, MSG_NOSIGNAL);
        if (is_ready && (data[1] == 2 || data[1] == 3))
            for (nfds_t at = data[1] == 2 ? 1 : count - 1; at < count; at++) give_credits(watched[at].fd, CREDITS, NULL);
    }
}
