/* What the trials need of PMDK: its checker on raw images, and its block pools.
 *
 *   pmdk check  IMAGE            the checker on an image whose BTT v1.1 begins at byte 4096; prints what it
 *                                says and "result N", an enum pmempool_check_result. It "repairs" IMAGE with
 *                                every question answered yes (1.12.1 crashes on a check that may only read),
 *                                so give it a copy: 0 means that nothing was wrong, anything else that
 *                                something was
 *   pmdk create POOL BLOCK_SIZE BYTES
 *   pmdk apply  POOL BLOCK_SIZE  <plan   lines "write BLOCK GENERATION", "zero BLOCK", "error BLOCK"
 *   pmdk read   POOL BLOCK_SIZE OUT      all blocks in order into OUT; prints "blocks N" and "error BLOCK"
 *   pmdk pool   POOL BLOCK_SIZE          pmemblk_check: prints "consistent 1", 0 or -1
 *
 * A written block repeats the 16-byte record of sectors.c. */
#include <errno.h>
#include <fcntl.h>
#include <libpmemblk.h>
#include <libpmempool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int check(const char *image) {
    struct pmempool_check_args wanted = {
        .path = image,
        .pool_type = PMEMPOOL_POOL_TYPE_BTT,
        .flags = PMEMPOOL_CHECK_REPAIR | PMEMPOOL_CHECK_ADVANCED | PMEMPOOL_CHECK_ALWAYS_YES |
                 PMEMPOOL_CHECK_FORMAT_STR | PMEMPOOL_CHECK_VERBOSE,
    };
    PMEMpoolcheck *check = pmempool_check_init(&wanted, sizeof wanted);
    struct pmempool_check_status *status;
    if (!check) {
        printf("init: %s\n", pmempool_errormsg());
        return 1;
    }
    while ((status = pmempool_check(check)))
        printf("%s\n", status->str.msg);
    printf("result %d\n", pmempool_check_end(check));
    return 0;
}

static void fill(char *out, size_t block_size, long long block, unsigned generation) {
    char record[32];
    snprintf(record, sizeof record, "%08llx-%06x\n", block, generation);
    for (size_t at = 0; at < block_size; at++)
        out[at] = record[at % 16];
}

static int apply(PMEMblkpool *pool, size_t block_size, char *buffer) {
    char verb[8];
    long long block;
    while (scanf("%7s %lld", verb, &block) == 2) {
        unsigned generation;
        int failed;
        if (strcmp(verb, "zero") == 0)
            failed = pmemblk_set_zero(pool, block);
        else if (strcmp(verb, "error") == 0)
            failed = pmemblk_set_error(pool, block);
        else if (strcmp(verb, "write") == 0 && scanf("%u", &generation) == 1) {
            fill(buffer, block_size, block, generation);
            failed = pmemblk_write(pool, buffer, block);
        } else
            return 2;
        if (failed) {
            printf("%s of block %lld: %s\n", verb, block, pmemblk_errormsg());
            return 1;
        }
    }
    return 0;
}

static int read_all(PMEMblkpool *pool, size_t block_size, char *buffer, const char *path) {
    size_t blocks = pmemblk_nblock(pool);
    FILE *out = fopen(path, "wb");
    if (!out)
        return 2;
    printf("blocks %zu\n", blocks);
    for (size_t block = 0; block < blocks; block++) {
        if (pmemblk_read(pool, buffer, block)) {
            if (errno != EIO)
                return 1;
            printf("error %zu\n", block);
            memset(buffer, 0, block_size);
        }
        if (fwrite(buffer, block_size, 1, out) != 1)
            return 2;
    }
    return fclose(out) != 0;
}

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "check") == 0)
        return check(arguments[2]);
    if (count < 4)
        return 2;
    size_t block_size = strtoul(arguments[3], 0, 10);
    if (strcmp(arguments[1], "pool") == 0) {
        printf("consistent %d\n", pmemblk_check(arguments[2], block_size));
        return 0;
    }
    int creating = strcmp(arguments[1], "create") == 0 && count == 5;
    PMEMblkpool *pool = creating ? pmemblk_create(arguments[2], block_size, strtoull(arguments[4], 0, 10), 0600)
                                 : pmemblk_open(arguments[2], block_size);
    char *buffer = malloc(block_size);
    int failed = 0;
    if (!pool || !buffer) {
        printf("open: %s\n", pmemblk_errormsg());
        return 1;
    }
    if (strcmp(arguments[1], "apply") == 0)
        failed = apply(pool, block_size, buffer);
    else if (strcmp(arguments[1], "read") == 0 && count == 5)
        failed = read_all(pool, block_size, buffer, arguments[4]);
    else if (!creating)
        failed = 2;
    pmemblk_close(pool);
    return failed;
}
