/* One thread reads one file by two functions: a loop over its first part, and pages at random of the rest. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAGE = 4096, LOOP = 1 << 20 };

static char page[PAGE];

static void read_at(int fd, off_t at) {
    if (pread(fd, page, PAGE, at) != PAGE) { perror("pread"); exit(1); }
    if (posix_fadvise(fd, at, PAGE, POSIX_FADV_DONTNEED)) { perror("fadvise"); exit(1); }
}

__attribute__((noinline)) static void loop(int fd) {
    for (off_t at = 0; at < LOOP; at += PAGE) read_at(fd, at);
    __asm__ volatile("");
}

__attribute__((noinline)) static void at_random(int fd, off_t bytes, unsigned *seed) {
    for (int turn = 0; turn < LOOP / PAGE; turn++) {
        off_t pages = (bytes - LOOP) / PAGE;
        read_at(fd, LOOP + rand_r(seed) % pages * PAGE);
    }
    __asm__ volatile("");
}

int main(int count, char **words) {
    if (count != 3) return 2;
    int fd = open(words[1], O_RDWR);
    off_t bytes = lseek(fd, 0, SEEK_END);
    /* From here on the pool has a record of the file. */
    if (fd < 0 || pwrite(fd, "x", 1, bytes - 1) != 1 || fsync(fd)) { perror(words[1]); return 1; }
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    unsigned seed = 1;
    for (int round = atoi(words[2]); round > 0; round--) {
        loop(fd);
        at_random(fd, bytes, &seed);
    }
    return 0;
}
