/*
 * Which descriptors are guarded, and what is known of them.
 *
 * Runs in: a guarded server. Sees: nothing of the network. Never: gives memory of entries back, so that a thread which
 * uses a descriptor while another closes it reads an entry, if perhaps the wrong one.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <string.h>
#include <sys/mman.h>

/* LIMIT: entries that are made at once; each set is below 64 KiB. */
enum { SET = 64 };

struct set { struct set *next; struct entry entries[SET]; };
struct buffer { struct buffer *next; };

_Atomic(struct entry *) table_entries[DESCRIPTORS_MAX];
_Atomic int table_top;
_Atomic int table_pending;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct set *sets;
static struct entry *unused, *first_pending;
static struct buffer *buffers;

void table_lock(void)
{
    guard_inside++;
    pthread_mutex_lock(&lock);
}

void table_unlock(void)
{
    pthread_mutex_unlock(&lock);
    guard_inside--;
}

static void *pages(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void more(void)
{
    struct set *set = pages(sizeof *set);
    if (!set)
        return;
    set->next = sets;
    sets = set;
    for (int i = 0; i < SET; i++) {
        pthread_mutex_init(&set->entries[i].lock, NULL);
        set->entries[i].next = unused;
        unused = &set->entries[i];
    }
}

struct entry *table_new(enum kind kind)
{
    table_lock();
    if (!unused)
        more();
    struct entry *entry = unused;
    if (entry)
        unused = entry->next;
    table_unlock();
    if (!entry)
        return NULL;
    /* All but the lock, which is first and stays as it is. */
    memset((char *)entry + sizeof entry->lock, 0, sizeof *entry - sizeof entry->lock);
    entry->kind = kind;
    return entry;
}

static void leave_pending(struct entry *entry)
{
    for (struct entry **at = &first_pending; entry->pending && *at; at = &(*at)->next) {
        if (*at == entry) {
            *at = entry->next;
            entry->pending = false;
            table_pending--;
            return;
        }
    }
}

static void free_entry(struct entry *entry)
{
    leave_pending(entry);
    if (entry->taken) {
        ((struct buffer *)entry->taken)->next = buffers;
        buffers = (struct buffer *)entry->taken;
        entry->taken = NULL;
    }
    entry->next = unused;
    unused = entry;
}

void table_discard(struct entry *entry)
{
    table_lock();
    free_entry(entry);
    table_unlock();
}

static void set_slot(int fd, struct entry *entry)
{
    entry->references++;
    atomic_store_explicit(&table_entries[fd], entry, memory_order_release);
    if (fd > table_top)
        table_top = fd;
}

void table_put(int fd, struct entry *entry)
{
    table_lock();
    set_slot(fd, entry);
    table_unlock();
}

void table_share(int from, int to)
{
    if (from == to || to < 0 || to >= DESCRIPTORS_MAX)
        return;
    table_lock();
    struct entry *entry = table_entries[from];
    if (entry)
        set_slot(to, entry);
    table_unlock();
}

struct ended table_take(int fd)
{
    struct ended ended = {false, 0};
    struct entry *entry = fd >= 0 && fd < DESCRIPTORS_MAX ? table_entries[fd] : NULL;
    if (!entry)
        return ended;
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    table_lock();
    if (table_entries[fd] == entry) {
        table_entries[fd] = NULL;
        keep_end(entry);
        watch_forget(entry, fd);
        if (--entry->references == 0) {
            ended.tell = entry->kind == CLIENT && entry->announced;
            ended.id = entry->id;
            free_entry(entry);
        }
    }
    table_unlock();
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
    return ended;
}

void table_set_pending(struct entry *entry, bool pending)
{
    table_lock();
    if (!pending) {
        leave_pending(entry);
    } else if (!entry->pending) {
        entry->pending = true;
        entry->next = first_pending;
        first_pending = entry;
        table_pending++;
    }
    table_unlock();
}

struct entry *table_first_pending(void)
{
    return first_pending;
}

unsigned char *table_buffer(void)
{
    table_lock();
    struct buffer *buffer = buffers;
    if (buffer)
        buffers = buffer->next;
    table_unlock();
    return buffer ? (unsigned char *)buffer : pages(CC_TAKEN_MAX);
}

void table_buffer_back(unsigned char *bytes)
{
    struct buffer *buffer = (struct buffer *)bytes;
    table_lock();
    buffer->next = buffers;
    buffers = buffer;
    table_unlock();
}

/* Locks that other threads of the parent held will never be released here; what they guarded may be half done. */
void table_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    for (struct set *set = sets; set; set = set->next) {
        for (int i = 0; i < SET; i++) {
            struct entry *entry = &set->entries[i];
            if (pthread_mutex_trylock(&entry->lock) != 0)
                entry->exchange.lost = true;
            pthread_mutex_init(&entry->lock, NULL);
            entry->announced = false;
        }
    }
}
