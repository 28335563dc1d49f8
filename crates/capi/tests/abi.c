/* The binary interface of libtidegate.so.0: this file compiles as long as no function, value or size changed. Never change a line: add
 * lines for what is new. A change of a line needs a new number in build.rs, and a new copy of this file. */
#include <tidegate.h>

_Static_assert(sizeof(tidegate_status) == 4, "the status is passed as an int");
_Static_assert(TIDEGATE_OK == 0 && TIDEGATE_MISUSE == 1 && TIDEGATE_MEDIA == 2, "values");
_Static_assert(TIDEGATE_REFUSED == 3 && TIDEGATE_IN_USE == 4 && TIDEGATE_SYSTEM == 5, "values");
_Static_assert(TIDEGATE_SEALED == 6 && TIDEGATE_TOO_LARGE == 7 && TIDEGATE_BUG == 8, "values");
_Static_assert(TIDEGATE_CONFLICT == 9, "values");

typedef tidegate_status status;
typedef tidegate_cache cache;
typedef tidegate_transaction transaction;

status (*abort_transaction)(transaction *) = tidegate_abort;
status (*begin)(const cache *, transaction **) = tidegate_begin;
uint32_t (*block_size)(const cache *) = tidegate_block_size;
uint64_t (*blocks)(const cache *) = tidegate_blocks;
status (*close_cache)(cache *) = tidegate_close;
status (*commit)(transaction *) = tidegate_commit;
status (*create)(const char *, uint64_t, const char *, uint32_t) = tidegate_create;
status (*create_with)(const char *, uint64_t, const char *, uint32_t, const char *) = tidegate_create_with;
status (*destage)(const cache *, uint32_t, uint64_t *) = tidegate_destage;
const char *(*message)(void) = tidegate_message;
status (*open_cache)(const char *, const char *, cache **) = tidegate_open;
status (*open_with)(const char *, const char *, const char *, cache **) = tidegate_open_with;
status (*read_blocks)(const cache *, uint64_t, uint8_t *, size_t) = tidegate_read;
uint32_t (*transaction_blocks_max)(const cache *) = tidegate_transaction_blocks_max;
status (*transaction_read)(transaction *, uint64_t, uint8_t *, size_t) = tidegate_transaction_read;
status (*transaction_write)(transaction *, uint64_t, const uint8_t *, size_t) = tidegate_transaction_write;
status (*write_blocks)(const cache *, uint64_t, const uint8_t *, size_t) = tidegate_write;

typedef tidegate_log log_handle;
typedef int (*visitor)(void *, uint64_t, const uint8_t *, size_t);

status (*log_append)(const log_handle *, const uint8_t *, size_t, uint64_t *) = tidegate_log_append;
status (*log_close)(log_handle *) = tidegate_log_close;
status (*log_create)(const char *, uint64_t, const char *, uint64_t) = tidegate_log_create;
status (*log_drop_behind)(const log_handle *, uint64_t) = tidegate_log_drop_behind;
status (*log_open)(const char *, const char *, log_handle **) = tidegate_log_open;
status (*log_open_damaged)(const char *, const char *, log_handle **) = tidegate_log_open_damaged;
status (*log_places)(const log_handle *, uint64_t *, uint64_t *) = tidegate_log_places;
status (*log_read)(const log_handle *, uint64_t, uint8_t *, size_t, uint64_t *) = tidegate_log_read;
status (*log_replay)(const log_handle *, uint64_t, visitor, void *) = tidegate_log_replay;
status (*log_sync)(const log_handle *, uint64_t *) = tidegate_log_sync;
status (*log_write_back)(const log_handle *) = tidegate_log_write_back;

int main(void) { return 0; }
