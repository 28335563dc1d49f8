/* Moves an amount from one block to another, so that a crash leaves both as they were or both changed.
 *
 *   cc commit.c $(pkg-config --cflags --libs tidegate) -o commit
 *   truncate -s 16M disk.img && ./commit /mnt/pmem/accounts.pmem disk.img
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidegate.h>

enum { FROM = 0, TO = 1000 };

static void done(tidegate_status status, const char *doing) {
    if (status != TIDEGATE_OK) {
        fprintf(stderr, "%s: %s (status %d)\n", doing, tidegate_message(), (int)status);
        exit(1);
    }
}

static void move(tidegate_cache *cache, long amount, unsigned char *block, size_t size) {
    tidegate_transaction *transaction = NULL;
    long balance;
    done(tidegate_begin(cache, &transaction), "begin");
    for (int side = 0; side < 2; side++) {
        unsigned long long at = side == 0 ? FROM : TO;
        done(tidegate_transaction_read(transaction, at, block, size), "read");
        memcpy(&balance, block, sizeof balance);
        balance += side == 0 ? -amount : amount;
        memcpy(block, &balance, sizeof balance);
        done(tidegate_transaction_write(transaction, at, block, size), "write");
    }
    done(tidegate_commit(transaction), "commit");
}

int main(int argc, char **argv) {
    tidegate_cache *cache = NULL;
    tidegate_transaction *forgotten = NULL;
    long from, to;
    uint64_t dirty = 1;
    if (argc != 3) {
        fprintf(stderr, "usage: %s PMEM DISK\n", argv[0]);
        return 2;
    }
    if (tidegate_open(argv[1], argv[2], &cache) == TIDEGATE_SYSTEM) {
        /* Whoever loses the region still has a disk on which both have changed, or none. */
        done(tidegate_create_with(argv[1], 8 << 20, argv[2], 4096, "ordered=on"), "create");
        done(tidegate_open(argv[1], argv[2], &cache), "open");
    }
    if (cache == NULL) {
        fprintf(stderr, "open: %s\n", tidegate_message());
        return 1;
    }
    size_t size = tidegate_block_size(cache);
    unsigned char *block = calloc(1, size);
    for (int turn = 0; turn < 100; turn++) {
        move(cache, 7, block, size);
    }
    /* What is aborted never was. */
    memset(block, 0xff, size);
    done(tidegate_begin(cache, &forgotten), "begin");
    done(tidegate_transaction_write(forgotten, FROM, block, size), "write");
    done(tidegate_abort(forgotten), "abort");
    /* Mistakes are answered. */
    if (tidegate_read(cache, tidegate_blocks(cache), block, size) != TIDEGATE_MISUSE ||
        tidegate_write(cache, 0, block, size - 1) != TIDEGATE_MISUSE ||
        tidegate_read(NULL, 0, block, size) != TIDEGATE_MISUSE || tidegate_commit(NULL) != TIDEGATE_MISUSE) {
        fprintf(stderr, "a mistake was not answered\n");
        return 1;
    }
    done(tidegate_read(cache, FROM, block, size), "read");
    memcpy(&from, block, sizeof from);
    done(tidegate_read(cache, TO, block, size), "read");
    memcpy(&to, block, sizeof to);
    while (dirty > 0) {
        done(tidegate_destage(cache, 1024, &dirty), "destage");
    }
    done(tidegate_close(cache), "close");
    free(block);
    printf("%ld %ld\n", from, to);
    return 0;
}
