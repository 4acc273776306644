/* A filter against the "beck" attack: a path of thousands of slashes, for which some servers search in quadratic time.
 *
 *     collapse [COMPONENTS]
 *
 * `//` becomes `/`, `/./` becomes `/`, `/a/../` becomes `/`, and `/../` at the top becomes `/`: any server then sees
 * one short path. A path that still has more than COMPONENTS components (default 64) is answered with 400. What comes
 * after `?` stays as it is, and so do `%2F` and `%2E`, which are the server's to judge.
 *
 * Runs in: a filter process, in a jail of its own. Sees: the heads of requests. Never: makes a request longer.
 *
 * Source: seed 001, 3.1 and 4.2. */
#include <cc_filter.h>
#include <stdlib.h>
#include <string.h>

static const char REFUSAL[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 35\r\n"
                              "Connection: close\r\n\r\nThe path has too many components.\r\n";

/* Where the last component of `path[0..end]` begins: just after its slash. */
static size_t before_last(const unsigned char *path, size_t end)
{
    while (end > 1 && path[end - 1] != '/')
        end--;
    return end;
}

/* Collapses a path, which begins with a slash, in place, and returns its new length; one pass, since nothing is looked
 * at again but what is then taken away. */
static size_t collapse(unsigned char *path, size_t length, size_t *components)
{
    size_t out = 1, in = 1; /* path[out - 1] is a slash whenever a component begins */
    *components = 0;
    while (in < length) {
        size_t end = in;
        while (end < length && path[end] != '/')
            end++;
        size_t size = end - in;
        if (size == 2 && path[in] == '.' && path[in + 1] == '.') {
            if (out > 1) {
                out = before_last(path, out - 1);
                --*components;
            }
        } else if (size > 0 && !(size == 1 && path[in] == '.')) {
            memmove(path + out, path + in, size);
            out += size;
            ++*components;
            if (end < length)
                path[out++] = '/';
        }
        in = end + 1;
    }
    return out;
}

/* The path of a request: from the first slash after the method (and after `http://host`) to `?`, a blank or the line's
 * end. NULL if it has none, as `OPTIONS *`. */
static unsigned char *find_path(struct cc_bundle *request, size_t *length)
{
    unsigned char *end = request->bytes + request->taken;
    unsigned char *at = memchr(request->bytes, ' ', request->taken);
    if (!at)
        return NULL;
    at++;
    if (end - at > 7 && memcmp(at, "http://", 7) == 0)
        for (at += 7; at < end && *at != '/' && *at > ' ' && *at != '?';)
            at++;
    if (at == end || *at != '/')
        return NULL;
    unsigned char *stop = at;
    while (stop < end && *stop > ' ' && *stop != '?')
        stop++;
    *length = (size_t)(stop - at);
    return at;
}

int main(int argc, char *argv[])
{
    size_t most = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    struct cc_bundle request = {0};
    while (cc_filter_next(&request) > 0) {
        size_t length, components = 0;
        unsigned char *path = find_path(&request, &length);
        if (path) {
            size_t shorter = collapse(path, length, &components);
            unsigned char *rest = path + length;
            memmove(path + shorter, rest, (size_t)(request.bytes + request.taken - rest));
            request.taken -= length - shorter;
        }
        if (components > most)
            cc_filter_drop(&request, REFUSAL);
        else
            cc_filter_pass(&request);
    }
    return 0;
}
