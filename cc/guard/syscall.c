/*
 * syscall(2), for programs that close and accept through it: libuv closes so; and ways to make a child that shares its
 * parent's memory, which is noted.
 *
 * Runs in: a guarded server. Sees: nothing of the network. Never: adds a frame of its own to another system call: one
 * that starts a thread or a process comes back on another stack, so this is no function in C.
 *
 * The arguments are where a function in C with the same ones would have them; so those that are of interest are passed
 * on by a jump.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>

#if defined(__x86_64__) || defined(__aarch64__)

#define HERE __attribute__((used, visibility("hidden")))
#define TEXT(number) #number
#define NUMBER(name) TEXT(name)

HERE long guard_syscall_close(long number, int fd)
{
    (void)number;
    return close(fd);
}

HERE long guard_syscall_close_range(long number, unsigned first, unsigned last, int flags)
{
    (void)number;
    return close_range(first, last, flags);
}

HERE long guard_syscall_accept4(long number, int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    (void)number;
    return accept4(fd, address, size, flags);
}

HERE long guard_syscall_failed(long result)
{
    errno = (int)-result;
    return -1;
}

EXPORT int clone(int (*run)(void *), void *stack, int flags, void *argument, ...)
{
    va_list more;
    va_start(more, argument);
    pid_t *parent = va_arg(more, pid_t *);
    void *tls = va_arg(more, void *);
    pid_t *child = va_arg(more, pid_t *);
    va_end(more);
    if (flags & CLONE_VM)
        guard_shares_memory = true;
    return real()->clone(run, stack, flags, argument, parent, tls, child);
}

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "    endbr64\n"
        "    cmpq $" NUMBER(SYS_close) ", %rdi\n"
        "    je guard_syscall_close\n"
        "    cmpq $" NUMBER(SYS_accept4) ", %rdi\n"
        "    je guard_syscall_accept4\n"
        "    cmpq $" NUMBER(SYS_close_range) ", %rdi\n"
        "    je guard_syscall_close_range\n"
        "    cmpq $" NUMBER(SYS_clone) ", %rdi\n"
        "    je 2f\n"
        "    cmpq $" NUMBER(SYS_vfork) ", %rdi\n"
        "    je 2f\n"
        "    cmpq $" NUMBER(SYS_clone3) ", %rdi\n"
        "    jne 3f\n"
        "2:  movb $1, guard_shares_memory(%rip)\n"
        "3:  movq %rdi, %rax\n"
        "    movq %rsi, %rdi\n"
        "    movq %rdx, %rsi\n"
        "    movq %rcx, %rdx\n"
        "    movq %r8, %r10\n"
        "    movq %r9, %r8\n"
        "    movq 8(%rsp), %r9\n"
        "    syscall\n"
        "    cmpq $-4095, %rax\n"
        "    jae 1f\n"
        "    ret\n"
        "1:  movq %rax, %rdi\n"
        "    jmp guard_syscall_failed\n"
        ".size syscall, . - syscall\n"
        /* The child uses the parent's stack, and writes over where the parent would find its way back. */
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        "    endbr64\n"
        "    movb $1, guard_shares_memory(%rip)\n"
        "    popq %rdx\n"
        "    movl $" NUMBER(SYS_vfork) ", %eax\n"
        "    syscall\n"
        "    pushq %rdx\n"
        "    cmpq $-4095, %rax\n"
        "    jae 1f\n"
        "    ret\n"
        "1:  movq %rax, %rdi\n"
        "    jmp guard_syscall_failed\n"
        ".size vfork, . - vfork\n");
#else
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, %function\n"
        "syscall:\n"
        "    cmp x0, #" NUMBER(SYS_close) "\n"
        "    b.eq guard_syscall_close\n"
        "    cmp x0, #" NUMBER(SYS_accept4) "\n"
        "    b.eq guard_syscall_accept4\n"
        "    cmp x0, #" NUMBER(SYS_close_range) "\n"
        "    b.eq guard_syscall_close_range\n"
        "    cmp x0, #" NUMBER(SYS_clone) "\n"
        "    b.eq 2f\n"
        "    cmp x0, #" NUMBER(SYS_clone3) "\n"
        "    b.ne 3f\n"
        "2:  adrp x9, guard_shares_memory\n"
        "    mov w10, #1\n"
        "    strb w10, [x9, #:lo12:guard_shares_memory]\n"
        "3:  mov x8, x0\n"
        "    mov x0, x1\n"
        "    mov x1, x2\n"
        "    mov x2, x3\n"
        "    mov x3, x4\n"
        "    mov x4, x5\n"
        "    mov x5, x6\n"
        "    svc #0\n"
        "    cmn x0, #4095\n"
        "    b.cs guard_syscall_failed\n"
        "    ret\n"
        ".size syscall, . - syscall\n"
        ".globl vfork\n"
        ".type vfork, %function\n"
        "vfork:\n"
        "    adrp x9, guard_shares_memory\n"
        "    mov w10, #1\n"
        "    strb w10, [x9, #:lo12:guard_shares_memory]\n"
        "    mov x0, #0x4111\n" /* CLONE_VM | CLONE_VFORK | SIGCHLD */
        "    mov x1, #0\n"
        "    mov x8, #" NUMBER(SYS_clone) "\n"
        "    svc #0\n"
        "    cmn x0, #4095\n"
        "    b.cs guard_syscall_failed\n"
        "    ret\n"
        ".size vfork, . - vfork\n");
#endif

#endif
