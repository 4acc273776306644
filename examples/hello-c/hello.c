/* Greets by name, and counts the greetings in a database. */
#include <bulkhead.h>
#include <stdio.h>

/* A row of the other statement for each line. */
static int list(struct bulkhead_request *r, struct bulkhead_rows *rows)
{
    while (bulkhead_next(rows)) {
        const struct bulkhead_value name = bulkhead_get(rows, "name");
        bulkhead_print(r, "<li>");
        bulkhead_html(r, name.bytes, name.length);
        bulkhead_print(r, ": %lld\n", (long long)bulkhead_get(rows, "times").integer);
    }
    return bulkhead_print(r, "</ul>\n");
}

static int process(struct bulkhead *b, struct bulkhead_request *r, void *state)
{
    (void)state;
    char name[64];
    if (bulkhead_param(r, "name", name, sizeof name) <= 0)
        snprintf(name, sizeof name, "you");
    const struct bulkhead_value parameters[] = {bulkhead_text(name)};
    struct bulkhead_rows *times, *others;
    if (bulkhead_call(b, "greetings", "greeted", parameters, 1, &times) != BULKHEAD_OK ||
        bulkhead_call(b, "greetings", "others", parameters, 1, &others) != BULKHEAD_OK) {
        bulkhead_log(b, BULKHEAD_ERROR, "no greeting: %s", bulkhead_reason(b));
        return bulkhead_status_page(r, 503);
    }
    bulkhead_next(times);
    bulkhead_print(r, "<p>Hello, ");
    bulkhead_html(r, name, BULKHEAD_WHOLE);
    bulkhead_print(r, "! I have said so %lld times.\n<ul>\n", (long long)bulkhead_get(times, "times").integer);
    return list(r, others);
}

int main(int argc, char **argv)
{
    const struct bulkhead_service service = {.process = process};
    return bulkhead_main(&service, argc, argv);
}
