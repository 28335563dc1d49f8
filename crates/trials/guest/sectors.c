/* Writes and checks blocks that say which block they are and how often they were written.
 *
 *   sectors write  DEVICE BLOCK_SIZE  <plan     one "BLOCK GENERATION" a line, written in that order
 *   sectors verify DEVICE BLOCK_SIZE  <plan     generation 0 is a block of zeroes
 *   sectors commit DEVICE BLOCK_SIZE COUNT <plan   write, and fdatasync after each COUNT blocks; prints "committed N of M",
 *        the rounds in which nothing failed among all
 *   sectors mark      an instruction that does nothing, and that stores.c waits for
 *   sectors storm  DEVICE BLOCK_SIZE TAG CPU CPUS BLOCKS SEED BASE
 *        for ever: writes random blocks among CPU, CPU + CPUS, ... below BLOCKS, pinned to CPU; the N-th write
 *        is of generation BASE + N. Prints "ack TAG CPU N" now and then: the first N writes are done. Which
 *        blocks they went to follows from SEED, so that the serial line does not slow the writes down
 *
 * A written block repeats one 16-byte record, so a torn one shows. All input and output is O_DIRECT. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int device;
static size_t block_size;

static void fill(char *out, uint64_t block, unsigned generation) {
    char record[32];
    memset(out, 0, block_size);
    if (generation == 0)
        return;
    snprintf(record, sizeof record, "%08llx-%06x\n", (unsigned long long)block, generation);
    for (size_t at = 0; at < block_size; at += 16)
        memcpy(out + at, record, 16);
}

static int put(char *buffer, uint64_t block, unsigned generation) {
    fill(buffer, block, generation);
    if (pwrite(device, buffer, block_size, block * block_size) == (ssize_t)block_size)
        return 0;
    printf("write of block %llu: %s\n", (unsigned long long)block, strerror(errno));
    return 1;
}

static int same(char *buffer, char *expected, uint64_t block, unsigned generation) {
    fill(expected, block, generation);
    if (pread(device, buffer, block_size, block * block_size) != (ssize_t)block_size) {
        printf("read of block %llu: %s\n", (unsigned long long)block, strerror(errno));
        return 1;
    }
    if (memcmp(buffer, expected, block_size) == 0)
        return 0;
    printf("block %llu is not of generation %u but begins %.15s\n", (unsigned long long)block, generation, buffer);
    return 1;
}

static int follow_plan(int writing, char *buffer, char *expected) {
    unsigned long long block;
    unsigned generation;
    int bad = 0;
    while (scanf("%llu %u", &block, &generation) == 2)
        bad += writing ? put(buffer, block, generation) : same(buffer, expected, block, generation);
    return bad != 0;
}

static int commit(char *buffer, unsigned count) {
    unsigned long long block;
    unsigned generation, in_round = 0, bad = 0, good = 0, rounds = 0;
    while (scanf("%llu %u", &block, &generation) == 2) {
        bad += put(buffer, block, generation);
        if (++in_round < count)
            continue;
        bad += fdatasync(device) != 0;
        good += bad == 0;
        rounds++;
        in_round = bad = 0;
    }
    printf("committed %u of %u\n", good, rounds);
    return good != rounds;
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Each line is one write(2), so that the lines of several storms do not mix. */
static void acknowledge(const char *tag, const char *cpu, unsigned writes) {
    char line[64];
    int length = snprintf(line, sizeof line, "ack %.16s %.16s %u\n", tag, cpu, writes);
    if (write(1, line, length) != length)
        exit(3);
}

static int storm(char *buffer, char **arguments) {
    uint64_t cpu = strtoull(arguments[1], 0, 10), cpus = strtoull(arguments[2], 0, 10);
    uint64_t count = strtoull(arguments[3], 0, 10) / cpus, state = strtoull(arguments[4], 0, 10);
    unsigned base = strtoul(arguments[5], 0, 10);
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    if (sched_setaffinity(0, sizeof only, &only))
        return 2;
    for (unsigned writes = 1;; writes++) {
        if (put(buffer, cpu + next(&state) % count * cpus, base + writes))
            return 1;
        if (writes % 32 == 0)
            acknowledge(arguments[0], arguments[1], writes);
    }
}

int main(int count, char **arguments) {
    char *buffer, *expected;
    if (count == 2 && strcmp(arguments[1], "mark") == 0) {
        __asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00, 0x54, 0x49, 0x44, 0x45");
        return 0;
    }
    if (count < 4)
        return 2;
    block_size = strtoul(arguments[3], 0, 10);
    if (posix_memalign((void **)&buffer, 4096, block_size) || posix_memalign((void **)&expected, 4096, block_size))
        return 2;
    device = open(arguments[2], O_RDWR | O_DIRECT);
    if (device < 0) {
        perror(arguments[2]);
        return 2;
    }
    if (strcmp(arguments[1], "storm") == 0 && count == 10)
        return storm(buffer, arguments + 4);
    if (strcmp(arguments[1], "commit") == 0 && count == 5)
        return commit(buffer, strtoul(arguments[4], 0, 10));
    return follow_plan(strcmp(arguments[1], "write") == 0, buffer, expected);
}
