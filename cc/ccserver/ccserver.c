/* CCServer: a web server of files that handles one request at a time, and needs no more than that.
 *
 *     ccserver [ADDRESS:]PORT FOLDER [FILTER]...
 *
 * The gate behind cc_createlsock holds the clients that have not asked yet, and cc_accept brings one whose request is
 * whole. What fits into the socket's buffer is sent at once; a child sends the rest, or the whole of a large file, in
 * pieces, each within a time. So there is nothing that this process ever waits for but the next request and the disk.
 *
 * Runs in: one process, as whoever started it. Sees: requests, which are clients' bytes. Never: opens anything outside
 * of FOLDER, writes a file, or waits for a client.
 *
 * Source: seed 001, 4.1 and figure 3. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../include/cc.h"

#define MAXREQUEST 65536            /* the longest head that a gate passes on */
#define BACKLOG 511                 /* connections that the gate has not accepted yet */
#define SENDBUFSIZE (128 * 1024)    /* a larger file is a child's work */
#define PIECE (64 * 1024)           /* LIMIT: a client that takes less than a piece */
#define PIECE_MS 10000              /* within this time is given up: 6.5 KB/s */
#define CHILDREN_MAX 64             /* LIMIT: with 64, a child's few hundred KiB are 20 MiB */

struct request {
    bool body_wanted; /* GET, not HEAD */
    bool keep;        /* the connection can be used for another one */
    int status;       /* 0, or what is wrong with it */
    char path[PATH_MAX];
};

struct response {
    char head[512];
    size_t at, len; /* of the head: what is sent, what there is */
    int file;       /* -1 if there is none to send */
    off_t offset, size;
};

enum sending { COMPLETE, WOULD_WAIT, GONE };

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes a target into `path`, relative to the folder. False if it is none, or too long. */
static bool decode_path(const char *from, const char *end, char *path)
{
    size_t at = 0;
    for (from += strspn(from, "/"); from < end && *from != '?' && *from != '#'; from++) {
        int byte = *from;
        if (byte == '%' && end - from > 2 && hex(from[1]) >= 0 && hex(from[2]) >= 0) {
            byte = hex(from[1]) << 4 | hex(from[2]);
            from += 2;
        }
        if (byte == '\0' || at >= PATH_MAX - sizeof "index.html")
            return false;
        path[at++] = (char)byte;
    }
    path[at] = '\0';
    if (at == 0 || path[at - 1] == '/')
        strcpy(path + at, "index.html");
    return true;
}

/* The value of a header field, or NULL. `text` is the whole head, with a NUL after it. */
static const char *field(const char *text, const char *name)
{
    while ((text = strchr(text, '\n'))) {
        text++;
        size_t length = strlen(name);
        if (strncasecmp(text, name, length) == 0 && text[length] == ':')
            return text + length + 1;
    }
    return NULL;
}

/* Reads a head; the gate has checked its grammar. */
static struct request parse(const char *text)
{
    struct request request = {.body_wanted = true, .status = 400};
    const char *target = strchr(text, ' ');
    const char *end = target ? strchr(target + 1, ' ') : NULL;
    if (!end || strncmp(end, " HTTP/1.", 8) != 0)
        return request;
    if (strncmp(++target, "http://", 7) == 0)
        target += 7 + strcspn(target + 7, "/ ");
    if ((*target != '/' && target != end) || !decode_path(target, end, request.path))
        return request;

    const char *connection = field(text, "connection");
    bool close_wanted = connection && strcasestr(connection, "close") &&
                        strcasestr(connection, "close") < connection + strcspn(connection, "\r\n");
    /* Nobody reads a body here: what follows the head would be taken for the next request. */
    bool has_body = field(text, "content-length") || field(text, "transfer-encoding");
    request.keep = end[8] == '1' && !close_wanted && !has_body;
    request.body_wanted = strncmp(text, "HEAD ", 5) != 0;
    request.status = strncmp(text, "GET ", 4) == 0 || !request.body_wanted ? 0 : 405;
    return request;
}

/* Opens a file of the folder; sets the status: the kernel itself refuses what leads out of the folder. */
static int open_file(int folder, const char *path, struct stat *about, int *status)
{
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int file = (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
    *status = 200;
    if (file < 0)
        *status = errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG ? 404
                  : errno == EXDEV || errno == ELOOP || errno == EACCES || errno == EPERM ? 403 : 500;
    else if (fstat(file, about) < 0 || !S_ISREG(about->st_mode))
        *status = S_ISDIR(about->st_mode) ? 404 : 403;
    if (*status == 200)
        return file;
    if (file >= 0)
        close(file);
    return -1;
}

static const char *type_of(const char *path)
{
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"}, {".css", "text/css"}, {".js", "text/javascript"},
        {".txt", "text/plain; charset=utf-8"}, {".json", "application/json"}, {".svg", "image/svg+xml"},
        {".png", "image/png"}, {".jpg", "image/jpeg"}, {".gif", "image/gif"}, {".pdf", "application/pdf"}};
    const char *suffix = strrchr(path, '.');
    for (size_t i = 0; suffix && i < sizeof types / sizeof *types; i++)
        if (strcasecmp(suffix, types[i][0]) == 0)
            return types[i][1];
    return "application/octet-stream";
}

static const char *phrase(int status)
{
    switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 503: return "Service Unavailable";
    default: return "Internal Server Error";
    }
}

/* What is to be sent for a request; `busy` if no child can be had. */
static struct response respond(int folder, const struct request *request, bool busy)
{
    struct response response = {.file = -1};
    struct stat about = {0};
    int status = request->status;
    if (status == 0)
        response.file = open_file(folder, request->path, &about, &status);
    if (status == 200 && about.st_size > SENDBUFSIZE && request->body_wanted && busy)
        status = 503;

    char text[64], date[64];
    time_t now = time(NULL);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime(&now));
    snprintf(text, sizeof text, "%d %s\n", status, phrase(status));
    bool send_text = status != 200 && request->body_wanted;
    response.size = status == 200 ? about.st_size : (off_t)strlen(text);
    response.len = (size_t)snprintf(response.head, sizeof response.head,
        "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %lld\r\n%s%sConnection: %s\r\n\r\n%s",
        status, phrase(status), date, status == 200 ? type_of(request->path) : "text/plain",
        (long long)response.size, status == 405 ? "Allow: GET, HEAD\r\n" : "",
        status == 503 ? "Retry-After: 2\r\n" : "", request->keep ? "keep-alive" : "close", send_text ? text : "");
    if ((status != 200 || !request->body_wanted) && response.file >= 0) {
        close(response.file);
        response.file = -1;
    }
    return response;
}

/* Sends what can be sent without waiting, at most `most` bytes of the file. */
static enum sending send_now(int c, struct response *response, off_t most)
{
    while (response->at < response->len) {
        int more = response->file >= 0 && response->size > 0 ? MSG_MORE : 0;
        ssize_t sent = send(c, response->head + response->at, response->len - response->at,
                            MSG_DONTWAIT | MSG_NOSIGNAL | more);
        if (sent < 0)
            return errno == EAGAIN ? WOULD_WAIT : GONE;
        response->at += (size_t)sent;
    }
    while (response->file >= 0 && response->offset < response->size) {
        off_t left = response->size - response->offset;
        ssize_t sent = sendfile(c, response->file, &response->offset, (size_t)(left < most ? left : most));
        if (sent <= 0) /* 0: the file has become shorter than the head says */
            return sent < 0 && errno == EAGAIN ? WOULD_WAIT : GONE;
        if ((most -= sent) == 0 && response->offset < response->size)
            return WOULD_WAIT;
    }
    return COMPLETE;
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* In a child: sends all that is left, piece by piece, each within its time. */
static enum sending send_in_pieces(int c, struct response *response)
{
    long long deadline = now_ms() + PIECE_MS;
    off_t piece_end = response->offset + PIECE;
    enum sending state;
    while ((state = send_now(c, response, piece_end - response->offset)) == WOULD_WAIT) {
        if (response->offset >= piece_end) {
            deadline = now_ms() + PIECE_MS;
            piece_end = response->offset + PIECE;
        }
        struct pollfd writable = {.fd = c, .events = POLLOUT};
        long long left = deadline - now_ms();
        if (left <= 0 || poll(&writable, 1, (int)left) <= 0)
            return GONE;
    }
    return state;
}

/* Serves one request, here or in a child. */
static void serve(int s, int c, int folder, int *children)
{
    static char text[MAXREQUEST + 1];
    ssize_t got = cc_read(c, text, MAXREQUEST);
    text[got > 0 ? got : 0] = '\0';
    while (*children > 0 && waitpid(-1, NULL, WNOHANG) > 0)
        --*children;
    struct request request = parse(text);
    struct response response = respond(folder, &request, *children >= CHILDREN_MAX);

    int room = SENDBUFSIZE, mode = fcntl(c, F_GETFL);
    setsockopt(c, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    fcntl(c, F_SETFL, mode | O_NONBLOCK); /* sendfile(2) has no flag for it */
    bool large = response.file >= 0 && response.size > SENDBUFSIZE;
    enum sending state = large ? WOULD_WAIT : send_now(c, &response, SENDBUFSIZE);
    pid_t pid = -1;
    if (state == WOULD_WAIT && (pid = *children < CHILDREN_MAX ? cc_fork() : -1) == 0) {
        cc_close(s, 0);
        state = send_in_pieces(c, &response);
    }
    /* Each process is done with it; the last of them gives it back or ends it. */
    cc_close(c, state == GONE || (state == WOULD_WAIT && pid < 0) || !request.keep);
    if (response.file >= 0)
        close(response.file);
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        ++*children;
}

int main(int argc, char *argv[])
{
    char *colon = argc > 2 ? strrchr(argv[1], ':') : NULL;
    struct in_addr address = {.s_addr = htonl(INADDR_ANY)};
    if (colon)
        *colon = '\0';
    int port = argc > 2 ? atoi(colon ? colon + 1 : argv[1]) : 0;
    if (port <= 0 || port > 65535 || (colon && inet_pton(AF_INET, argv[1], &address) != 1)) {
        fprintf(stderr, "usage: ccserver [ADDRESS:]PORT FOLDER [FILTER]...\n");
        return 2;
    }
    int folder = open(argv[2], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        perror(argv[2]);
        return 1;
    }
    char *usual[] = {CC_FILTER_PRIOR, CC_FILTER_PERSIST, CC_FILTER_REQUEST, NULL};
    int s = cc_createlsock(address, htons((in_port_t)port), BACKLOG, argc > 3 ? argv + 3 : usual), c, children = 0;
    if (s < 0) {
        perror("ccserver: cc_createlsock");
        return 1;
    }
    signal(SIGPIPE, SIG_IGN); /* sendfile(2) has no flag for this either */
    while ((c = cc_accept(s, NULL, NULL)) >= 0)
        serve(s, c, folder, &children);
    perror("ccserver: cc_accept");
    return 1;
}
