/* Carries out SQL: the text after the database's name, or each line that it reads. It prints the
 * columns of each row, and ends at the first error. */

#include <sqlite3.h>
#include <stdio.h>

static int print_row(void *unused, int columns, char **values, char **names)
{
	(void)unused;
	(void)names;
	for (int i = 0; i < columns; i++)
		printf(i ? "|%s" : "%s", values[i] ? values[i] : "");
	puts("");
	return fflush(stdout);
}

static int carry_out(sqlite3 *base, const char *sql)
{
	char *error = NULL;
	if (sqlite3_exec(base, sql, print_row, NULL, &error) == SQLITE_OK)
		return 0;
	fprintf(stderr, "%s: %s\n", sql, error ? error : "failed");
	return 1;
}

int main(int count, char **words)
{
	static char line[1 << 16];
	sqlite3 *base;
	if (count < 2 || sqlite3_open(words[1], &base) != SQLITE_OK)
		return 2;
	if (count > 2)
		return carry_out(base, words[2]);
	while (fgets(line, sizeof line, stdin))
		if (carry_out(base, line))
			return 1;
	return sqlite3_close(base) != SQLITE_OK;
}
