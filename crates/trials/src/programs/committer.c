/* Commits numbered transactions to the database of its first argument, for ever, and prints the number of each when its commit has returned. A number is one more than
   the greatest that the database has. The further arguments are how many processes do so, and words for SQLite to begin with. A row says which transaction wrote
   it last, and its text follows from that and from the row's number. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 60, ALL_EVERY = 23 };
static sqlite3 *base;

static void done(const char *words)
{
	char *error = NULL;
	if (sqlite3_exec(base, words, NULL, NULL, &error) != SQLITE_OK) {
		fprintf(stderr, "%s: %s\n", words, error);
		exit(3);
	}
}

static int number_of(void *number, int columns, char **values, char **names)
{
	(void)names;
	*(long *)number = columns && values[0] ? atol(values[0]) : 0;
	return 0;
}

/* The rows that a transaction writes, as words for SQLite. */
static void rows_of(long number, char *words, size_t len)
{
	if (number % ALL_EVERY == 0)
		snprintf(words, len, "(with recursive r(n) as (select 0 union all select n + 1 from r where n < %d) select n from r)", ROWS - 1);
	else
		snprintf(words, len, "(select %ld as n union select %ld union select %ld)", number % ROWS, (number * 7 + 3) % ROWS,
			(number * 13 + 5) % ROWS);
}

static void commit_one(void)
{
	char words[1000], rows[300], text[32];
	long number = 0;
	done("begin immediate");
	if (sqlite3_exec(base, "select max(v) from t", number_of, &number, NULL) != SQLITE_OK)
		exit(4);
	number++;
	rows_of(number, rows, sizeof rows);
	snprintf(words, sizeof words,
		"insert or replace into t select n, %ld, substr(replace(hex(zeroblob(700)), '00', char(97 + %ld %% 26)), 1, "
		"1 + (n * 7919 + %ld * 104729) %% 700) from %s",
		number, number, number, rows);
	done(words);
	done("commit");
	int len = snprintf(text, sizeof text, "%ld\n", number);
	if (write(1, text, len) != len)
		exit(5);
}

int main(int count, char **words)
{
	if (count < 4)
		return 2;
	for (int more = atoi(words[2]) - 1; more > 0; more--)
		if (fork() == 0)
			break;
	if (sqlite3_open(words[1], &base) != SQLITE_OK)
		return 2;
	sqlite3_busy_timeout(base, 60000);
	done(words[3]);
	done("create table if not exists t(n integer primary key, v integer, b text)");
	for (;;)
		commit_one();
}
