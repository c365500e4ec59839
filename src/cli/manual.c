/* Help and manual page from the command tables. See manual.h. */
#include "cli/manual.h"
#include "verbatim/verbatim.h"
#include <string.h>

enum { WIDTH = 96, COLUMN = 30 };

static const char g_about[] = "Verbatim runs language models on this machine. For a given model file and "
                              "request, the bits of every token's logits "
                              "depend on the tokens before it and on nothing else: not on speculation, batch "
                              "neighbours, chunking, thread "
                              "count or CPU level, nor on whether the prefix was computed now or kept.";

static const struct {
    const char *code, *what;
} g_exit[] = {
    {"0", "done"},
    {"1", "a check found a difference (verify, replay)"},
    {"2", "the command line is wrong"},
    {"3", "a file or the model is at fault"},
    {"4", "a resource is missing: memory, a CPU feature, a device"},
    {"5", "an internal error"},
};

static const struct {
    const char *name, *what;
} g_env[] = {
    {"VERBATIM_CPU", "c|avx2|avx512|amx: a CPU level not above the machine's; the result does not change"},
    {"VERBATIM_VNNI", "0: level avx2 does without AVX-VNNI, on a CPU that has it; the result does not change"},
    {"VERBATIM_HOME",
     "where models, measurements and memos are kept; default $XDG_CACHE_HOME/verbatim or ~/.cache/verbatim"},
    {"VERBATIM_ALLOW_INEXACT",
     "1: use speculation widths that the exactness gate declined; forfeits the guarantee"},
    {"VERBATIM_FAULT", "plants a fault, for tests of verify; never set it otherwise"},
};

/* Text from column `at` on, broken at spaces before WIDTH, following lines indented to `indent`. */
static void wrap(FILE *out, const char *s, int at, int indent) {
    bool start = true; /* of a line: no space before the next word */
    while (*s) {
        int word = (int)strcspn(s, " \n");
        if (!start && at + 1 + word > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (!start) {
            fputc(' ', out);
            at++;
        }
        fwrite(s, 1, (size_t)word, out);
        at += word;
        s += word;
        start = false;
        if (*s == '\n') {
            fprintf(out, "\n%s%*s", s[1] == '\n' ? "\n" : "", indent, "");
            at = indent;
            start = true;
            s += s[1] == '\n' ? 2 : 1;
        } else if (*s == ' ') {
            s++;
        }
    }
    fputc('\n', out);
}

static void help_option(FILE *out, const vb__opt *o) {
    char left[80];
    int n =
        snprintf(left, sizeof left, "  %c%c%s--%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
                 o->letter ? ", " : "  ", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
    fputs(left, out);
    if (n >= COLUMN - 1) {
        fputc('\n', out);
        n = 0;
    }
    fprintf(out, "%*s", COLUMN - n, "");
    char text[1024];
    snprintf(text, sizeof text, "%s%s%s%s%s", o->help, o->kind == VB_OPT_LIST ? " (repeatable)" : "",
             o->env ? " [" : "", o->env ? o->env : "", o->env ? "]" : "");
    wrap(out, text, COLUMN, COLUMN);
}

void vb__help_command(FILE *out, const vb__command *c) {
    fprintf(out, "usage: verbatim %s %s\n\n", c->name, c->synopsis);
    wrap(out, c->text ? c->text : c->summary, 0, 0);
    for (int g = 0; g < VB_OPT_GROUPS_MAX && c->groups[g].options; g++) {
        fprintf(out, "\n%s:\n", c->groups[g].title);
        for (const vb__opt *o = c->groups[g].options; o->name; o++) help_option(out, o);
    }
    fprintf(out, "\n  -h, --help                  This text\n");
    fprintf(out, "\nA name in [brackets] is an environment variable that gives the option where the command "
                 "line does not.\n");
    if (c->examples) fprintf(out, "\nExamples:\n%s", c->examples);
}

void vb__help_overview(FILE *out, const vb__command *const *commands) {
    fprintf(out, "usage: verbatim COMMAND [options]\n\n");
    wrap(out, g_about, 0, 0);
    fprintf(out, "\nCommands:\n");
    for (int i = 0; commands[i]; i++)
        if (!commands[i]->hidden) fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\nverbatim COMMAND --help describes a command; verbatim --version prints the "
                 "version.\n\nExit codes:\n");
    for (size_t i = 0; i < sizeof g_exit / sizeof g_exit[0]; i++)
        fprintf(out, "  %s  %s\n", g_exit[i].code, g_exit[i].what);
}

/* ---- The manual page ------------------------------------------------------------------------------------
 */

static void troff(FILE *out, const char *s) {
    bool line_start = true;
    for (; *s; s++) {
        if (line_start && (*s == '.' || *s == '\'')) fputs("\\&", out);
        if (*s == '\\') fputs("\\e", out);
        else if (*s == '-') fputs("\\-", out);
        else if (*s == '\n' && s[1] == '\n') {
            fputs("\n.PP\n", out);
            s++;
        } else fputc(*s, out);
        line_start = *s == '\n';
    }
}

static void manual_option(FILE *out, const vb__opt *o) {
    fputs(".TP\n", out);
    if (o->letter) fprintf(out, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", out);
    troff(out, o->name);
    fputs("\\fR", out);
    if (o->argument) {
        fputs(" \\fI", out);
        troff(out, o->argument);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    troff(out, o->help);
    fprintf(out, ".%s", o->kind == VB_OPT_LIST ? " Repeatable." : "");
    if (o->env) fprintf(out, " Environment: %s.", o->env);
    fputc('\n', out);
}

void vb__manual_page(FILE *out, const vb__command *const *commands) {
    fprintf(out,
            ".TH VERBATIM 1 \"\" \"verbatim %s\" \"User Commands\"\n.SH NAME\nverbatim \\- run language "
            "models, exactly\n"
            ".SH SYNOPSIS\n\\fBverbatim\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION\n",
            VB_VERSION);
    troff(out, g_about);
    fputs("\n.SH COMMANDS\n", out);
    for (int i = 0; commands[i]; i++) {
        const vb__command *c = commands[i];
        if (c->hidden) continue;
        fputs(".SS verbatim ", out);
        troff(out, c->name);
        fputc(' ', out);
        troff(out, c->synopsis);
        fputs("\n", out);
        troff(out, c->text ? c->text : c->summary);
        fputc('\n', out);
        for (int g = 0; g < VB_OPT_GROUPS_MAX && c->groups[g].options; g++) {
            fputs(".PP\n\\fI", out);
            troff(out, c->groups[g].title);
            fputs("\\fR\n", out);
            for (const vb__opt *o = c->groups[g].options; o->name; o++) manual_option(out, o);
        }
        if (c->examples) {
            fputs(".PP\nExamples\n.PP\n.nf\n", out);
            troff(out, c->examples);
            fputs(".fi\n", out);
        }
    }
    fputs(".SH EXIT STATUS\n", out);
    for (size_t i = 0; i < sizeof g_exit / sizeof g_exit[0]; i++) {
        fprintf(out, ".TP\n%s\n", g_exit[i].code);
        troff(out, g_exit[i].what);
        fputc('\n', out);
    }
    fputs(".SH ENVIRONMENT\n", out);
    for (size_t i = 0; i < sizeof g_env / sizeof g_env[0]; i++) {
        fprintf(out, ".TP\n%s\n", g_env[i].name);
        troff(out, g_env[i].what);
        fputc('\n', out);
    }
}
