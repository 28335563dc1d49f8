// Writes `times` times `size` bytes to the beginning of a file, each by one call.
//
// pages FILE CALL SIZE MEMORY OFFSET TIMES
//
// CALL is `pwrite`, `pwritev`, or `direct` (pwrite with O_DIRECT). The bytes lie `OFFSET` bytes
// behind the beginning of a page of memory. MEMORY says where that memory is when the call begins:
// `present`, `absent` (never touched), `userfault` (another thread has to bring each page), or
// `dropped` (another thread takes the pages away over and over).
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096UL
#define PIECES 4

static char *memory;
static size_t bytes;
static int faults;

static void must(int holds, const char *what) {
    if (!holds) {
        perror(what);
        _exit(1);
    }
}

static void *bring(void *unused) {
    static char page[PAGE] __attribute__((aligned(4096)));
    for (;;) {
        struct pollfd ready = {faults, POLLIN, 0};
        struct uffd_msg message;
        poll(&ready, 1, -1);
        if (read(faults, &message, sizeof message) != (ssize_t)sizeof message) continue;
        struct uffdio_copy copy = {0};
        copy.dst = message.arg.pagefault.address & ~(PAGE - 1);
        copy.src = (unsigned long)page;
        copy.len = PAGE;
        ioctl(faults, UFFDIO_COPY, &copy);
    }
    return unused;
}

static void *drop(void *unused) {
    for (;;) madvise(memory, bytes, MADV_DONTNEED);
    return unused;
}

static void begin(void *(*act)(void *)) {
    pthread_t thread;
    must(pthread_create(&thread, 0, act, 0) == 0, "pthread_create");
}

static void prepare(const char *how) {
    // The pages of shared memory stay when they are taken from the program.
    int shared = strcmp(how, "dropped") ? -1 : memfd_create("pages", 0);
    must(shared < 0 || ftruncate(shared, bytes) == 0, "ftruncate");
    int flags = shared < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    memory = mmap(0, bytes, PROT_READ | PROT_WRITE, flags, shared, 0);
    must(memory != MAP_FAILED, "mmap");
    if (!strcmp(how, "present") || shared >= 0) memset(memory, 1, bytes);
    if (shared >= 0) begin(drop);
    if (!strcmp(how, "userfault")) {
        faults = syscall(SYS_userfaultfd, O_CLOEXEC);
        must(faults >= 0, "userfaultfd");
        struct uffdio_api api = {0};
        api.api = UFFD_API;
        must(ioctl(faults, UFFDIO_API, &api) == 0, "UFFDIO_API");
        struct uffdio_register all = {0};
        all.range.start = (unsigned long)memory;
        all.range.len = bytes;
        all.mode = UFFDIO_REGISTER_MODE_MISSING;
        must(ioctl(faults, UFFDIO_REGISTER, &all) == 0, "UFFDIO_REGISTER");
        begin(bring);
    }
}

int main(int count, char **words) {
    if (count != 7) return 2;
    const char *call = words[2];
    size_t size = strtoul(words[3], 0, 10), offset = strtoul(words[5], 0, 10);
    int file = open(words[1], O_RDWR | (strcmp(call, "direct") ? 0 : O_DIRECT));
    must(file >= 0, words[1]);
    bytes = (size + offset + PAGE - 1) / PAGE * PAGE;
    prepare(words[4]);
    for (int times = atoi(words[6]); times > 0; times--) {
        ssize_t wrote;
        if (strcmp(call, "pwritev")) {
            wrote = pwrite(file, memory + offset, size, 0);
        } else {
            struct iovec pieces[PIECES];
            for (int piece = 0; piece < PIECES; piece++) {
                pieces[piece].iov_base = memory + offset + piece * (size / PIECES);
                pieces[piece].iov_len = size / PIECES;
            }
            wrote = pwritev(file, pieces, PIECES, 0);
        }
        must(wrote == (ssize_t)size, call);
    }
    _exit(0);
}
