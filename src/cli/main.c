/* The verbatim program: finds the command, parses its options, runs it. */
#include "base/alloc.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/fault.h"
#include "cli/commands.h"
#include "cli/manual.h"
#include "cli/report.h"
#include "verbatim/verbatim.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const vb__command *const vb__commands[] = {
    &vb__cmd_run,
    &vb__cmd_chat,
    &vb__cmd_serve,
    &vb__cmd_bench,
    &vb__cmd_inspect,
    &vb__cmd_tokenize,
    &vb__cmd_template,
    &vb__cmd_quantize,
    &vb__cmd_verify,
    &vb__cmd_replay,
    &vb__cmd_tune,
    NULL,
};

static const vb__command *find(const char *name) {
    for (int i = 0; vb__commands[i]; i++)
        if (strcmp(vb__commands[i]->name, name) == 0) return vb__commands[i];
    return NULL;
}

static int unknown(const char *name) {
    vb_error err;
    (void)vb__fail(&err, VB_E_ARGUMENT, "%.60s: unknown command, expected one of those in verbatim --help",
                   name);
    return vb__cli_fail(&err);
}

static int help(int argc, char **argv) {
    const vb__command *c = argc > 0 ? find(argv[0]) : NULL;
    if (argc > 0 && strcmp(argv[0], "--man") == 0) vb__manual_page(stdout, vb__commands);
    else if (c) vb__help_command(stdout, c);
    else if (argc > 0) return unknown(argv[0]);
    else vb__help_overview(stdout, vb__commands);
    return vb__cli_finish_stdout();
}

/* A standard file that is closed stays an error of reading or writing; a file opened later must not get its
 * number, or what is printed would go there. */
static void hold_standard_files(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
    hold_standard_files();
    (void)signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of a write, */
    (void)signal(SIGXFSZ, SIG_IGN); /* and so is a file that may not grow further */
    if (argc < 2) {
        vb__help_overview(stderr, vb__commands);
        return vb_err_exit_code(VB_E_ARGUMENT);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("verbatim %s (contract %d)\n", VB_VERSION, VB_CONTRACT);
        return vb__cli_finish_stdout();
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help(argc - 2, argv + 2);
    const vb__command *c = find(argv[1]);
    if (!c) return unknown(argv[1]);

    vb_error err = {0};
    bool want_help;
    int n = 0, code;
    void *values = vb__calloc(VB_TAG_MISC, 1, c->values_size ? c->values_size : 1);
    const char **positional = vb__calloc(VB_TAG_MISC, (size_t)c->max_positional + 1, sizeof *positional);
    vb_err e = values && positional ? VB_OK : vb__fail(&err, VB_E_MEMORY, "arguments: out of memory");
    vb__cli_log_start(2);
    if (e == VB_OK) e = vb__options_parse(c, argc - 2, argv + 2, values, positional, &n, &want_help, &err);
    vb__cpu_level level; /* asked here: code behind this already uses instructions that an older CPU lacks */
    if (e == VB_OK && !want_help) e = vb__cpu_detect(&level, &err);
    if (e == VB_OK && !want_help) e = vb__fault_check(&err);
    if (e != VB_OK) {
        code = vb__cli_fail(&err);
    } else if (want_help) {
        vb__help_command(stdout, c);
        code = vb__cli_finish_stdout();
    } else {
        code = c->run(values, positional, n);
    }
    vb__free(positional);
    vb__free(values);
    return code;
}
