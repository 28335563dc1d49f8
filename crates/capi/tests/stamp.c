/* Fills two blocks with a byte: block 1, which goes to the disk, and block 2, which only the region has in the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidegate.h>

static void done(tidegate_status status) {
    if (status != TIDEGATE_OK) {
        fprintf(stderr, "%s\n", tidegate_message());
        exit((int)status);
    }
}

int main(int argc, char **argv) {
    tidegate_cache *cache = NULL;
    unsigned char block[4096];
    uint64_t dirty = 1;
    if (argc != 4) {
        return 100;
    }
    memset(block, argv[3][0], sizeof block);
    done(tidegate_open(argv[1], argv[2], &cache));
    done(tidegate_write(cache, 1, block, sizeof block));
    while (dirty > 0) {
        done(tidegate_destage(cache, 1024, &dirty));
    }
    done(tidegate_write(cache, 2, block, sizeof block));
    done(tidegate_close(cache));
    return 0;
}
