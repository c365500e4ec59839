/* Errors, notes and progress on stderr. See report.h. */
#include "cli/report.h"
#include "base/clock.h"
#include "base/error.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool g_bar;

void vb__cli_progress_clear(void) {
    if (!g_bar) return;
    fputs("\r\033[K", stderr);
    g_bar = false;
}

int vb__cli_fail(const vb_error *err) {
    vb__cli_progress_clear();
    fflush(stdout);
    fprintf(stderr, "verbatim: error: %s\n", err->text[0] ? err->text : vb_err_message(err->code));
    return vb_err_exit_code(err->code);
}

void vb__cli_note(const char *fmt, ...) {
    va_list ap;
    vb__cli_progress_clear();
    fputs("verbatim: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

static void log_line(void *user, int level, const char *area, const char *text) {
    (void)user;
    static const char *const names[] = {"debug", "note", "warning", "error"};
    vb__cli_note("%s: %s: %s", names[level & 3], area, text);
}

void vb__cli_log_start(int level) {
    vb_log_set(log_line, NULL, level);
}

bool vb__cli_progress(void *user, const char *phase, int64_t done, int64_t total) {
    static double last;
    static int terminal = -1;
    (void)user;
    if (terminal < 0) terminal = isatty(STDERR_FILENO);
    if (!terminal || total <= 0) return true;
    if (done >= total) {
        vb__cli_progress_clear();
        return true;
    }
    double now = vb__now();
    if (g_bar && now - last < 0.05) return true;
    last = now;
    g_bar = true;
    char bar[31];
    int full = (int)((double)done * 30.0 / (double)total);
    for (int i = 0; i < 30; i++) bar[i] = i < full ? '#' : '-';
    bar[30] = '\0';
    fprintf(stderr, "\r%-9s %s %3d%%\033[K", phase, bar, (int)(done * 100 / total));
    fflush(stderr);
    return true;
}

int vb__cli_finish_stdout(void) {
    vb_error err;
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    (void)vb__fail(&err, VB_E_IO, "standard output: %s, expected to write everything", strerror(errno));
    return vb__cli_fail(&err);
}
