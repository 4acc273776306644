/* See head.h.
 *
 * Runs in: a service. Sees: fields of clients, behind the site's worker, which has refused what two readers could understand
 * differently. Never: guesses: what that worker does not write is refused here. */
#define _GNU_SOURCE
#include "head.h"

#include <string.h>

/* LIMIT: digits that are more than any body here. */
enum { LENGTH_DIGITS = 18 };

size_t head_find_end(const uint8_t *bytes, size_t length)
{
    const uint8_t *end = memmem(bytes, length, "\r\n\r\n", 4);
    return end == NULL ? 0 : (size_t)(end - bytes) + 4;
}

static bool is_token_byte(uint8_t byte)
{
    return (byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') ||
           (byte != 0 && strchr("!#$%&'*+.^_`|~-", byte) != NULL);
}

bool is_token(const char *text)
{
    size_t at = 0;
    while (is_token_byte((uint8_t)text[at]))
        at++;
    return at > 0 && text[at] == 0;
}

static bool is_value_byte(uint8_t byte)
{
    return byte == '\t' || (byte >= ' ' && byte != 0x7f);
}

bool is_field_value(const char *text)
{
    while (is_value_byte((uint8_t)*text))
        text++;
    return *text == 0;
}

static char lower(char byte)
{
    return byte >= 'A' && byte <= 'Z' ? (char)(byte | 0x20) : byte;
}

bool is_same_name(const char *one, const char *other)
{
    while (*one != 0 && lower(*one) == lower(*other))
        one++, other++;
    return lower(*one) == lower(*other);
}

/* `GET /path?query HTTP/1.1`, which ends with NUL. */
static bool parse_request_line(char *line, struct head *head)
{
    char *target = strchr(line, ' ');
    if (target == NULL)
        return false;
    *target++ = 0;
    char *version = strchr(target, ' ');
    if (!is_token(line) || version == NULL || version == target || strcmp(version, " HTTP/1.1") != 0)
        return false;
    *version = 0;
    if (*target != '/' && strcmp(target, "*") != 0)
        return false;
    for (const char *at = target; *at != 0; at++)
        if ((uint8_t)*at <= ' ' || *at == 0x7f)
            return false;
    char *query = strchr(target, '?');
    head->method = line;
    head->path = target;
    head->query = query == NULL ? version : query + 1;
    if (query != NULL)
        *query = 0;
    return true;
}

/* `name: value`, which ends with NUL. */
static bool parse_field(char *text, struct line *line)
{
    char *value = strchr(text, ':');
    if (value == NULL)
        return false;
    *value++ = 0;
    value += strspn(value, " \t");
    char *end = value + strlen(value);
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = 0;
    if (!is_token(text) || !is_field_value(value))
        return false;
    for (char *at = text; *at != 0; at++)
        *at = lower(*at);
    *line = (struct line){text, value};
    return true;
}

/* `0`, or digits of which the first is none. */
static bool parse_length(const char *text, uint64_t *length)
{
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > LENGTH_DIGITS || text[digits] != 0 || (text[0] == '0' && digits > 1))
        return false;
    for (*length = 0; *text != 0; text++)
        *length = *length * 10 + (uint64_t)(*text - '0');
    return true;
}

/* Whether one of the words between commas is `close`. */
static bool names_close(const char *value)
{
    for (;;) {
        value += strspn(value, ", \t");
        const size_t length = strcspn(value, ", \t");
        if (length == 0)
            return false;
        char word[] = "close";
        if (length == 5 && is_same_name(memcpy(word, value, 5), "close"))
            return true;
        value += length;
    }
}

/* An IPv4 address is one, also where it came as IPv6: `[::ffff:192.0.2.1]:1024`. */
static const char *client_of(char *value)
{
    static const char mapped[] = "[::ffff:";
    char *end = strchr(value, ']');
    if (strncmp(value, mapped, sizeof mapped - 1) != 0 || strchr(value, '.') == NULL || end == NULL)
        return value;
    memmove(end, end + 1, strlen(end));
    return value + sizeof mapped - 1;
}

/* What the fields say of the body and of the connection. */
static bool parse_framing(struct head *head)
{
    size_t lengths = 0, codings = 0;
    for (size_t i = 0; i < head->count; i++) {
        const struct line *line = &head->lines[i];
        if (strcmp(line->name, "content-length") == 0) {
            if (lengths++ > 0 || !parse_length(line->value, &head->length))
                return false;
        } else if (strcmp(line->name, "transfer-encoding") == 0) {
            if (codings++ > 0 || !is_same_name(line->value, "chunked"))
                return false;
        } else if (strcmp(line->name, "connection") == 0 && names_close(line->value)) {
            head->keeps = false;
        }
    }
    head->is_chunked = codings > 0;
    return lengths + codings <= 1;
}

bool head_parse(char *bytes, size_t length, struct head *head)
{
    *head = (struct head){.client = "", .keeps = true};
    /* Without the empty line, so that each line has its end. */
    char *const end = bytes + length - 2;
    bool is_first = true;
    for (char *line = bytes; line < end; is_first = false) {
        char *next = memmem(line, (size_t)(end - line), "\r\n", 2);
        *next = 0;
        if (strlen(line) != (size_t)(next - line))
            return false;
        struct line *field = &head->lines[head->count];
        if (is_first ? !parse_request_line(line, head) : head->count == LINES_MAX || !parse_field(line, field))
            return false;
        line = next + 2;
        if (is_first)
            continue;
        if (strcmp(field->name, "bulkhead-client") == 0)
            head->client = client_of((char *)field->value);
        else
            head->count++;
    }
    return !is_first && parse_framing(head);
}
