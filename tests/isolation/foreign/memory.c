/* Ways to execute code of the program's own making, as memory and as files. */
#define _GNU_SOURCE
#include "attack.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ANSWER = 42, MEMFD_FLAGS = 0x20, NOEXEC_SEAL = 8, EVERY_FOLDER = 6 };

/* A function that returns ANSWER; and a program that ends with it. */
#ifdef __x86_64__
static const unsigned char FUNCTION[] = {0xb8, ANSWER, 0, 0, 0, 0xc3};
static const unsigned char PROGRAM[] = {0xbf, ANSWER, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05};
enum { MACHINE = EM_X86_64 };
#else
static const unsigned char FUNCTION[] = {0x40, 0x05, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6};
static const unsigned char PROGRAM[] = {0x40, 0x05, 0x80, 0x52, 0xa8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4};
enum { MACHINE = EM_AARCH64 };
#endif

/* Where a program may hope to write. */
static const char *const FOLDERS[EVERY_FOLDER] = {"/tmp", "/cores", "/dev/shm", "/var/tmp", ".", "/run"};

static void put(void *at) {
    memcpy(at, FUNCTION, sizeof FUNCTION);
    __builtin___clear_cache(at, (char *)at + sizeof FUNCTION);
}

/* 0 if what is there runs; if it does not, the process is ended by a signal. */
static int runs(void *code) {
    if (code == MAP_FAILED) return errno;
    int (*function)(void);
    memcpy(&function, &code, sizeof function);
    return function() == ANSWER ? 0 : ENOEXEC;
}

static void *map(size_t length, int rights, int flags, int fd) {
    return (void *)syscall(SYS_mmap, NULL, length, rights, flags, fd, 0);
}

static void *data(void) {
    void *at = map(PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (at != MAP_FAILED) put(at);
    return at;
}

/* A file with the function in it, mapped as code; `first` is the flags. */
static int mapped(int fd, int flags) {
    if (fd < 0) return errno;
    long written = syscall(SYS_pwrite64, fd, FUNCTION, sizeof FUNCTION, 0);
    if (written < 0 && syscall(SYS_write, fd, FUNCTION, sizeof FUNCTION) < 0) return errno;
    return runs(map(sizeof FUNCTION, PROT_READ | PROT_EXEC, flags, fd));
}

static int of_memfd(const struct way *way) {
    int error = ENOSYS;
    for (int flags = 0; flags < MEMFD_FLAGS; flags++) {
        int fd = syscall(SYS_memfd_create, "code", flags);
        error = fd < 0 ? errno : mapped(fd, (int)way->first);
        if (!error) return note("flags %#x", flags), 0;
    }
    return error;
}

static int makes_memfd(const struct way *way) {
    for (int flags = 0; flags < MEMFD_FLAGS; flags++)
        if (!(flags & ~(int)way->first) || !(flags & NOEXEC_SEAL))
            if (syscall(SYS_memfd_create, "code", flags) >= 0) return note("flags %#x", flags), 0;
    return errno;
}

static int secret(const struct way *way) {
    (void)way;
    return failed(syscall(447, 0));
}

/* A new file in the folder. */
static int create(const char *folder, char *path, size_t room, int flags) {
    if (flags & O_DIRECTORY) return open(folder, O_RDWR | flags, 0700);
    snprintf(path, room, "%s/attack-%d", folder, getpid());
    return open(path, O_RDWR | O_CREAT | O_TRUNC | flags, 0700);
}

static int of_file(const struct way *way) {
    char path[200] = "";
    int worst = ENOENT;
    for (int at = 0; at < EVERY_FOLDER; at++) {
        int fd = create(FOLDERS[at], path, sizeof path, (int)way->second);
        int error = mapped(fd, (int)way->first);
        if (path[0] && fd >= 0) unlink(path);
        if (!error) return note("in %s", FOLDERS[at]), 0;
        if (fd >= 0) worst = error;
    }
    return worst;
}

static int of_device(const struct way *way) {
    const char *const devices[] = {"/dev/zero", "/dev/full", "/dev/null", "/dev/random", "/dev/mem"};
    (void)way;
    for (size_t at = 0; at < sizeof devices / sizeof *devices; at++) {
        int fd = open(devices[at], O_RDWR);
        if (fd < 0) fd = open(devices[at], O_RDONLY);
        for (int flags = MAP_SHARED; fd >= 0 && flags <= MAP_PRIVATE; flags++)
            if (map(PAGE, PROT_READ | PROT_EXEC, flags, fd) != MAP_FAILED) return note("%s", devices[at]), 0;
    }
    return errno;
}

static int anonymous(const struct way *way) {
    void *at = map(PAGE, PROT_READ | PROT_EXEC | (int)way->first, MAP_ANONYMOUS | (int)way->second, -1);
    if (at == MAP_FAILED) return errno;
    if (!(way->first & PROT_WRITE)) return 0;
    put(at);
    return runs(at);
}

static int protected(const struct way *way) {
    void *at = data();
    long call = way->first;
    if (at == MAP_FAILED) return errno;
    if (syscall(call, at, PAGE, PROT_READ | PROT_EXEC | way->second, -1)) return errno;
    return runs(at);
}

static int stack(const struct way *way) {
    char room[3 * PAGE];
    void *at = (void *)(((size_t)room + PAGE) & ~(size_t)(PAGE - 1));
    (void)way;
    put(at);
    return syscall(SYS_mprotect, at, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) ? errno : runs(at);
}

/* Its own code, made writable and then code again: a page on which there is nothing else that runs meanwhile. */
#ifdef __x86_64__
#define SKIP_PAGE "jmp 1f; .skip 4096; 1:"
#else
#define SKIP_PAGE "b 1f; .skip 4096; 1:"
#endif
__attribute__((noinline, aligned(PAGE))) static int victim(void) {
    __asm__ volatile(SKIP_PAGE);
    return 1;
}

static void *victims_page(void) {
    void *at;
    int (*function)(void) = victim;
    memcpy(&at, &function, sizeof at);
    return at;
}

static int rewritten(const struct way *way) {
    void *at = victims_page();
    (void)way;
    if (syscall(SYS_mprotect, at, PAGE, PROT_READ | PROT_WRITE)) return errno;
    put(at);
    return syscall(SYS_mprotect, at, PAGE, PROT_READ | PROT_EXEC) ? errno : runs(at);
}

/* Its own code, written through the kernel, which may write where the process itself may not. */
static int through_proc(const struct way *way) {
    int fd = open("/proc/self/mem", O_RDWR);
    (void)way;
    if (fd < 0) return errno;
    if (pwrite(fd, FUNCTION, sizeof FUNCTION, (off_t)(size_t)victims_page()) < 0) return errno;
    return runs(victims_page());
}

static int through_vm(const struct way *way) {
    struct iovec from = {(void *)FUNCTION, sizeof FUNCTION}, to = {victims_page(), sizeof FUNCTION};
    (void)way;
    return syscall(SYS_process_vm_writev, getpid(), &from, 1, &to, 1, 0) < 0 ? errno : runs(victims_page());
}

static int through_trace(const struct way *way) {
    long words[2] = {0};
    int status = 0, error = 0;
    (void)way;
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) _exit(errno);
        raise(SIGSTOP);
        _exit(runs(victims_page()));
    }
    memcpy(words, FUNCTION, sizeof FUNCTION);
    if (waitpid(child, &status, 0) < 0) return errno;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    if (ptrace(PTRACE_POKETEXT, child, victims_page(), words[0])) error = errno;
    ptrace(PTRACE_CONT, child, NULL, NULL);
    waitpid(child, &status, 0);
    return error ? error : WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

/* Memory that is made executable because it is readable. */
static int persona(const struct way *way) {
    (void)way;
    if (syscall(SYS_personality, 0x0400000) < 0) return errno;
    return runs(data());
}

static int shared(const struct way *way) {
    int id = syscall(SYS_shmget, IPC_PRIVATE, PAGE, IPC_CREAT | 0700);
    (void)way;
    if (id < 0) return errno;
    void *first = shmat(id, NULL, 0), *code = shmat(id, NULL, SHM_EXEC);
    shmctl(id, IPC_RMID, NULL);
    if (first == (void *)-1 || code == (void *)-1) return errno;
    put(first);
    return runs(code);
}

static int remapped(const struct way *way) {
    void *at = data();
    (void)way;
    if (at == MAP_FAILED) return errno;
    return syscall(SYS_remap_file_pages, at, PAGE, PROT_READ | PROT_EXEC, 0, 0) ? errno : runs(at);
}

/* Data that is moved to where code was. */
static int moved(const struct way *way) {
    void *at = data();
    (void)way;
    if (at == MAP_FAILED) return errno;
    void *to = mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, victims_page());
    return to == MAP_FAILED ? errno : runs(to);
}

static int refused_call(const struct way *way) {
    return failed(syscall(way->first, "/tmp/x", 0, 0, 0, 0, 0));
}

/* A whole program in `fd` or at `path`: it ends with ANSWER. */
static size_t program(unsigned char *file) {
    Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT}, .e_type = ET_EXEC,
                       .e_machine = MACHINE, .e_version = EV_CURRENT, .e_phoff = sizeof head, .e_ehsize = sizeof head,
                       .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 1};
    Elf64_Phdr part = {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = 0x400000, .p_align = PAGE};
    head.e_entry = part.p_vaddr + sizeof head + sizeof part;
    part.p_filesz = part.p_memsz = sizeof head + sizeof part + sizeof PROGRAM;
    memcpy(file, &head, sizeof head);
    memcpy(file + sizeof head, &part, sizeof part);
    memcpy(file + sizeof head + sizeof part, PROGRAM, sizeof PROGRAM);
    return part.p_filesz;
}

static int ended_well(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) return errno;
    if (!WIFEXITED(status)) return EINTR;
    return WEXITSTATUS(status) == ANSWER ? 0 : WEXITSTATUS(status);
}

static int execute(int fd, const char *path, char *const arguments[]) {
    pid_t child = fork();
    if (child == 0) {
        syscall(SYS_execveat, fd, path, arguments, (char *[]){NULL}, fd >= 0 ? AT_EMPTY_PATH : 0);
        _exit(errno == ANSWER ? EIO : errno);
    }
    return ended_well(child);
}

/* Files to execute: themselves, by an interpreter's line, or by the program that loads programs. */
enum { ITSELF, SCRIPT, LOADED };

static int executes_file(const struct way *way) {
    unsigned char file[512];
    char path[200] = "", *const loader = "/lib64/ld-linux-x86-64.so.2";
    size_t length = program(file);
    int worst = ENOENT;
    if (way->first == SCRIPT) length = (size_t)snprintf((char *)file, sizeof file, "#!%s list\n", own_path);
    for (int at = 0; at < EVERY_FOLDER; at++) {
        int fd = create(FOLDERS[at], path, sizeof path, 0), error = errno;
        if (fd < 0) continue;
        if (write(fd, file, length) == (ssize_t)length) {
            close(fd);
            char *const alone[] = {path, NULL}, *const words[] = {loader, path, NULL};
            error = way->first == LOADED ? execute(-1, loader, words) : execute(-1, path, alone);
        }
        unlink(path);
        if (!error) return note("in %s", FOLDERS[at]), 0;
        worst = error;
    }
    return worst;
}

static int executes_memfd(const struct way *way) {
    unsigned char file[512];
    size_t length = program(file);
    int error = ENOSYS;
    (void)way;
    for (int flags = 0; flags < MEMFD_FLAGS; flags++) {
        int fd = syscall(SYS_memfd_create, "program", flags);
        char *const words[] = {"program", NULL};
        if (fd < 0 || write(fd, file, length) != (ssize_t)length) {
            error = errno;
            continue;
        }
        error = execute(fd, "", words);
        if (!error) return note("flags %#x", flags), 0;
    }
    return error;
}

const struct attempt MEMORY[] = {
    {"memfd-made", makes_memfd, 0, 0, 0},
    {"memfd-sealed", makes_memfd, 0, NOEXEC_SEAL | 7, 0},
    {"memfd-mapped", of_memfd, 0, MAP_SHARED, 0},
    {"memfd-mapped-private", of_memfd, 0, MAP_PRIVATE, 0},
    {"memfd-secret", secret, 0, 0, 0},
    {"file-mapped", of_file, 0, MAP_SHARED, 0},
    {"file-mapped-private", of_file, 0, MAP_PRIVATE, 0},
    {"file-nameless-mapped", of_file, 0, MAP_PRIVATE, O_TMPFILE},
    {"device-mapped", of_device, 0, 0, 0},
    {"anonymous-code", anonymous, 0, 0, MAP_PRIVATE},
    {"anonymous-shared-code", anonymous, 0, 0, MAP_SHARED},
    {"anonymous-both", anonymous, 0, PROT_WRITE, MAP_PRIVATE},
    {"anonymous-grows", anonymous, 0, PROT_WRITE, MAP_PRIVATE | MAP_GROWSDOWN},
    {"mprotect", protected, 0, SYS_mprotect, 0},
    {"mprotect-both", protected, 0, SYS_mprotect, PROT_WRITE},
    {"pkey-mprotect", protected, 0, SYS_pkey_mprotect, 0},
    {"stack", stack, 0, 0, 0},
    {"rewritten", rewritten, 0, 0, 0},
    {"through-proc", through_proc, 0, 0, 0},
    {"through-vm", through_vm, 0, 0, 0},
    {"through-trace", through_trace, 0, 0, 0},
    {"persona", persona, 0, 0, 0},
    {"shared-memory", shared, 0, 0, 0},
    {"remapped", remapped, 0, 0, 0},
    {"moved", moved, 0, 0, 0},
#ifdef SYS_uselib
    {"uselib", refused_call, 0, SYS_uselib, 0},
#endif
    {"userfaultfd", refused_call, 0, SYS_userfaultfd, 0},
    {"execute-file", executes_file, 0, ITSELF, 0},
    {"execute-script", executes_file, 0, SCRIPT, 0},
    {"execute-loaded", executes_file, 0, LOADED, 0},
    {"execute-memfd", executes_memfd, 0, 0, 0},
    {NULL, NULL, 0, 0, 0},
};
