/* A program that was never changed, for trials of the direct path.
 *
 * client random FILE N      writes blocks at random, each synced, and reads all of them back
 * client reread FILE N      reads parts at random while it writes, and another process writes too
 * client append FILE FROM N appends the numbers FROM to N as lines, each synced, and says each
 * client o_dsync FILE N     the same with O_DSYNC and the descriptor's position
 * client threads FILE N     two threads write a half of the file each, synced
 * client together FILE N    two threads write lines by one position, synced
 * client fork FILE N        parent and child append by one descriptor, in turn
 * client position FILE N    parent and child write by one position, in turn
 * client signal FILE N      a handler of a timer appends lines between those of the program
 * client numbers FILE OTHER a descriptor's number comes to lead to another file
 * client talk FILE          appends and syncs each line that it reads, and answers with it
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK 4096
#define BLOCKS 512

static void check(int good, const char *what) {
    if (!good) {
        printf("%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static int opened(const char *path, int flags) {
    int fd = open(path, flags | O_RDWR | O_CREAT, 0644);
    check(fd >= 0, "open");
    return fd;
}

/* Warms the file up, so that it is leased. */
static void warm(int fd) {
    for (int i = 0; i < 8; i++) check(pwrite(fd, "", 0, 0) == 0 && fdatasync(fd) == 0, "sync");
}

static void line(int fd, int number) {
    char text[32];
    int len = snprintf(text, sizeof text, "%d\n", number);
    check(write(fd, text, len) == len, "write");
}

static int at_random(const char *path, int n) {
    static char shadow[BLOCKS][BLOCK], block[BLOCK];
    int fd = opened(path, 0);
    for (int i = 0; i < BLOCKS; i++) check(pwrite(fd, shadow[i], BLOCK, (off_t)i * BLOCK) == BLOCK, "fill");
    check(fsync(fd) == 0, "fsync");
    unsigned long random = 88172645463325252UL;
    for (int i = 0; i < n; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        int at = random % BLOCKS, from = random / BLOCKS % 1000, len = 1 + random / 1000000 % (BLOCK - from);
        memset(shadow[at] + from, i % 255 + 1, len);
        struct iovec piece = {shadow[at] + from, len};
        off_t offset = (off_t)at * BLOCK + from;
        ssize_t wrote = i % 3 ? pwrite(fd, piece.iov_base, len, offset) : pwritev(fd, &piece, 1, offset);
        check(wrote == len && (i % 2 ? fsync(fd) : fdatasync(fd)) == 0, "write and sync");
        if (i % 7 == 0) {
            check(pread(fd, block, BLOCK, (off_t)at * BLOCK) == BLOCK, "read");
            check(memcmp(block, shadow[at], BLOCK) == 0, "what was just written");
        }
    }
    for (int i = 0; i < BLOCKS; i++) {
        check(pread(fd, block, BLOCK, (off_t)i * BLOCK) == BLOCK, "read");
        check(memcmp(block, shadow[i], BLOCK) == 0, "what was written");
    }
    check(lseek(fd, 0, SEEK_END) == (off_t)BLOCKS * BLOCK, "the length");
    return 0;
}

/* Writes a block of another process's own now and then: its number comes by one pipe, and the answer by another. */
static void stranger(const char *path, int asked, int answered) {
    static char block[BLOCK];
    unsigned short number;
    while (read(asked, &number, sizeof number) == sizeof number) {
        int fd = open(path, O_RDWR);
        memset(block, 'x', BLOCK);
        check(fd >= 0 && pwrite(fd, block, BLOCK, (off_t)number * BLOCK) == BLOCK && close(fd) == 0, "a stranger's write");
        check(write(answered, "x", 1) == 1, "an answer");
    }
    _exit(0);
}

static int reread(const char *path, int n) {
    static char shadow[BLOCKS * BLOCK], part[3 * BLOCK];
    int ask[2], answer[2];
    check(pipe(ask) == 0 && pipe(answer) == 0, "pipes");
    pid_t child = fork();
    check(child >= 0, "fork");
    if (!child) close(ask[1]), stranger(path, ask[0], answer[1]);
    int fd = opened(path, 0);
    check(pwrite(fd, shadow, sizeof shadow, 0) == sizeof shadow, "fill");
    warm(fd);
    unsigned long random = 88172645463325252UL;
    for (int i = 0; i < n; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        size_t at = random % (sizeof shadow - 600), len = 1 + random / sizeof shadow % 600;
        memset(shadow + at, i % 255 + 1, len);
        check(pwrite(fd, shadow + at, len, at) == (ssize_t)len && fdatasync(fd) == 0, "write and sync");
        if (i % 10 == 0) check(ftruncate(fd, sizeof shadow) == 0, "the same length");
        if (i % 1000 == 999) {
            unsigned short number = random % BLOCKS;
            memset(shadow + (size_t)number * BLOCK, 'x', BLOCK);
            check(write(ask[1], &number, sizeof number) == sizeof number && read(answer[0], part, 1) == 1, "a stranger");
        }
        for (int j = 0; j < 3; j++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            at = random % sizeof shadow, len = 1 + random / sizeof shadow % sizeof part;
            size_t left = sizeof shadow - at, there = len < left ? len : left;
            check(pread(fd, part, len, at) == (ssize_t)there, "read");
            check(memcmp(part, shadow + at, there) == 0, "what was written last");
        }
    }
    return 0;
}

static int append(const char *path, int from, int n, int flags) {
    int fd = opened(path, flags);
    if (!(flags & O_APPEND)) check(lseek(fd, 0, SEEK_END) >= 0, "lseek");
    for (int i = from; i < n; i++) {
        line(fd, i);
        if (!(flags & O_DSYNC)) check(fdatasync(fd) == 0, "sync");
        printf("%d\n", i);
        fflush(stdout);
    }
    return 0;
}

static int shared_fd, rounds;

static void *half(void *which) {
    char block[BLOCK];
    for (int i = 0; i < rounds; i++) {
        memset(block, i % 200 + 1, BLOCK);
        off_t at = ((which ? BLOCKS / 2 : 0) + i % (BLOCKS / 2)) * (off_t)BLOCK;
        check(pwrite(shared_fd, block, BLOCK, at) == BLOCK && fdatasync(shared_fd) == 0, "write and sync");
    }
    return NULL;
}

static int threads(const char *path, int n) {
    pthread_t one, other;
    pthread_attr_t small;
    shared_fd = opened(path, 0), rounds = n;
    pthread_attr_init(&small);
    check(pthread_attr_setstacksize(&small, 32768) == 0, "a small stack");
    check(pthread_create(&one, &small, half, NULL) == 0 && pthread_create(&other, &small, half, "") == 0, "threads");
    pthread_join(one, NULL), pthread_join(other, NULL);
    return 0;
}

static void *lines_of(void *which) {
    for (int i = 0; i < rounds; i++) {
        char text[32];
        int len = snprintf(text, sizeof text, "%s %d\n", (char *)which, i);
        check(write(shared_fd, text, len) == len && fdatasync(shared_fd) == 0, "write and sync");
    }
    return NULL;
}

static int together(const char *path, int n) {
    pthread_t one, other;
    shared_fd = opened(path, 0), rounds = n;
    check(pthread_create(&one, NULL, lines_of, "a") == 0 && pthread_create(&other, NULL, lines_of, "b") == 0, "threads");
    pthread_join(one, NULL), pthread_join(other, NULL);
    return 0;
}

/* Lines of two processes by one descriptor, in turn. */
static int in_turn(const char *path, int n, int flags) {
    int fd = opened(path, flags), go[2], back[2];
    char token;
    line(fd, 0), warm(fd), line(fd, 1), warm(fd);
    check(pipe(go) == 0 && pipe(back) == 0, "pipes");
    pid_t child = fork();
    check(child >= 0, "fork");
    for (int i = 2; i < n; i++) {
        int mine = (i % 2 == 0) == (child > 0);
        if (mine) {
            line(fd, i);
            check(fsync(fd) == 0 && write(child ? go[1] : back[1], "x", 1) == 1, "sync");
        } else {
            check(read(child ? back[0] : go[0], &token, 1) == 1, "the other one");
        }
    }
    if (!child) _exit(0);
    int status;
    check(waitpid(child, &status, 0) == child && status == 0, "the child");
    return 0;
}

static volatile int handled;

static void on_timer(int number) {
    (void)number;
    int saved = errno;
    check(write(shared_fd, "t\n", 2) == 2 && fdatasync(shared_fd) == 0, "write in a handler");
    handled++;
    errno = saved;
}

static int with_signals(const char *path, int n) {
    static char stack[16384];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct itimerval every = {{0, 300}, {0, 300}};
    shared_fd = opened(path, O_APPEND);
    check(sigaltstack(&own, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0, "a handler");
    check(setitimer(ITIMER_REAL, &every, NULL) == 0, "a timer");
    for (int i = 0; i < n; i++) {
        check(write(shared_fd, "p\n", 2) == 2, "write");
        while (fdatasync(shared_fd) != 0) check(errno == EINTR, "sync");
    }
    every = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    printf("%d\n", handled);
    return 0;
}

static int numbers(const char *path, const char *other) {
    int fd = opened(path, 0);
    check(write(fd, "one\n", 4) == 4, "write"), warm(fd);
    check(write(fd, "two\n", 4) == 4 && fdatasync(fd) == 0, "write");
    int copy = dup(fd), elsewhere = opened(other, 0);
    check(dup2(elsewhere, fd) == fd, "dup2");
    check(write(fd, "other\n", 6) == 6 && fdatasync(fd) == 0, "write to the other file");
    check(write(copy, "three\n", 6) == 6 && fdatasync(copy) == 0, "write by the copy");
    check(close(fd) == 0 && open("/dev/null", O_RDWR) == fd, "the number is used again");
    check(write(fd, "lost\n", 5) == 5, "write to nowhere");
    check(fcntl(copy, F_SETFL, O_APPEND) == 0 && lseek(copy, 0, SEEK_SET) == 0, "O_APPEND from now on");
    check(write(copy, "four\n", 5) == 5 && fdatasync(copy) == 0, "append");
    check(close_range(copy, copy, 0) == 0 && pwrite(copy, "x", 1, 0) == -1 && errno == EBADF, "a closed one");
    check(pwrite(elsewhere, "", 0, -1) == -1 && errno == EINVAL, "a negative offset");
    return 0;
}

static int talk(const char *path) {
    char text[256];
    int fd = opened(path, O_APPEND);
    while (fgets(text, sizeof text, stdin)) {
        check(write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fdatasync(fd) == 0, "write");
        fputs(text, stdout), fflush(stdout);
    }
    return 0;
}

int main(int count, char **words) {
    const char *act = count > 2 ? words[1] : "", *path = words[2];
    int n = count > 3 ? atoi(words[3]) : 0;
    if (!strcmp(act, "random")) return at_random(path, n);
    if (!strcmp(act, "reread")) return reread(path, n);
    if (!strcmp(act, "append")) return append(path, n, atoi(words[4]), O_APPEND);
    if (!strcmp(act, "o_dsync")) return append(path, 0, n, O_DSYNC);
    if (!strcmp(act, "threads")) return threads(path, n);
    if (!strcmp(act, "together")) return together(path, n);
    if (!strcmp(act, "fork")) return in_turn(path, n, O_APPEND);
    if (!strcmp(act, "position")) return in_turn(path, n, 0);
    if (!strcmp(act, "signal")) return with_signals(path, n);
    if (!strcmp(act, "numbers")) return numbers(path, words[3]);
    if (!strcmp(act, "talk")) return talk(path);
    return 2;
}
