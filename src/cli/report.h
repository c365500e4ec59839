/* What commands tell the user: one error line, notes, and a progress bar, all on stderr. */
#ifndef VB_CLI_REPORT_H
#define VB_CLI_REPORT_H
#include "verbatim/verbatim.h"

/* "verbatim: error: TEXT" and the exit code of err->code. */
int vb__cli_fail(const vb_error *err);
/* "verbatim: TEXT", a note. */
void vb__cli_note(const char *fmt, ...) VB_PRINTF(1, 2);
/* Log lines of the library as "verbatim: warning: area: text"; level 0..3 as in vb_log_set. */
void vb__cli_log_start(int level);

/* A vb_progress_fn. On a terminal it draws one line, "load  ######----  57%", at most 20 times a second, and
 * clears it when done reaches total. Elsewhere it does nothing. Returns true, but see vb__cli_stoppable. */
bool vb__cli_progress(void *user, const char *phase, int64_t done, int64_t total);
/* Clears an unfinished bar; call before printing anything else. */
void vb__cli_progress_clear(void);

/* For work that leaves half-made files behind: SIGINT, SIGTERM and SIGHUP make vb__cli_progress return false and
 * vb__cli_stopped true, so that it can clean up; a second signal ends the process at once. */
void vb__cli_stoppable(void);
bool vb__cli_stopped(void);
/* After the cleaning up: ends the process by the signal that came, if one came. */
void vb__cli_end_if_stopped(void);

/* Everything went to stdout: flush, and an error when that failed (a full disk, a closed pipe). */
int vb__cli_finish_stdout(void);

#endif
