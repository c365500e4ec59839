/* Errors, notes and progress on stderr. See report.h. */
#include "cli/report.h"
#include "base/clock.h"
#include "base/error.h"
#include <errno.h>
#include <stdarg.h>
#include <signal.h>
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

static volatile sig_atomic_t g_signal;

static void on_stop(int sig) {
    g_signal = sig;
}

void vb__cli_stoppable(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction sa;
        if (sigaction(signals[i], NULL, &sa) != 0 || sa.sa_handler == SIG_IGN) continue; /* nohup */
        sa = (struct sigaction){.sa_handler = on_stop, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
        (void)sigaction(signals[i], &sa, NULL);
    }
}

bool vb__cli_stopped(void) {
    return g_signal != 0;
}

void vb__cli_end_if_stopped(void) {
    if (g_signal == 0) return;
    (void)signal(g_signal, SIG_DFL);
    (void)raise(g_signal);
}

bool vb__cli_progress(void *user, const char *phase, int64_t done, int64_t total) {
    static double last;
    static int terminal = -1;
    (void)user;
    if (terminal < 0) terminal = isatty(STDERR_FILENO);
    if (g_signal != 0) return false;
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
