/* Command-line options from tables. A group is a table of options that write into one struct of values; a
 * command has a few groups, laid out in one struct of its own. Help text and the manual are made from the
 * same tables (manual.h), so that nothing can be parsed that is not documented.
 *
 * Sources, strongest first: the command line (the last of a repeated option), the option's environment
 * variable. Spellings: --name VALUE, --name=VALUE, -x VALUE, -xVALUE; "--" ends the options. */
#ifndef VB_CLI_OPTIONS_H
#define VB_CLI_OPTIONS_H
#include "verbatim/vb_error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of options. Strings are borrowed from argv or the environment. */
typedef struct vb__opt_int {
    bool set;
    int64_t v;
} vb__opt_int;
typedef struct vb__opt_number {
    bool set;
    double v;
} vb__opt_number;
enum { VB_OPT_LIST_MAX = 64 };
typedef struct vb__opt_list {
    const char *v[VB_OPT_LIST_MAX];
    int n;
    bool inherited; /* from the environment: what the command line says replaces it */
} vb__opt_list;

typedef enum vb__opt_kind {
    VB_OPT_FLAG,   /* bool; takes no value (from the environment: 0 or 1) */
    VB_OPT_STRING, /* const char *; NULL when absent */
    VB_OPT_LIST,   /* vb__opt_list; repeatable */
    VB_OPT_INT,    /* vb__opt_int within lo..hi */
    VB_OPT_AUTO,   /* vb__opt_int; the word "auto" is 0 */
    VB_OPT_NUMBER, /* vb__opt_number within lo..hi */
    VB_OPT_ZERO,   /* vb__opt_number; takes no value and sets 0 (--greedy) */
    VB_OPT_CHOICE  /* const char *; one of the words in argument, which are separated by '|' */
} vb__opt_kind;

typedef struct vb__opt {
    const char *name; /* without dashes */
    char letter;      /* 'n' for -n; 0 */
    vb__opt_kind kind;
    const char *argument; /* "N", "FILE", "a|b|c"; NULL for kinds that take none */
    size_t offset;        /* of the value in the group's struct */
    int64_t lo, hi;       /* VB_OPT_INT, VB_OPT_AUTO, VB_OPT_NUMBER; both 0: no limits */
    const char *env;      /* NULL */
    const char *help;     /* one or two sentences, without a full stop at the end */
} vb__opt;

typedef struct vb__opt_group {
    const char *title;
    const vb__opt *options; /* ends with a NULL name */
    size_t base;            /* offset of the group's struct in the command's struct of values */
} vb__opt_group;

enum { VB_OPT_GROUPS_MAX = 6 };

typedef struct vb__command {
    const char *name;
    const char *synopsis; /* what follows the name in the usage line */
    const char *summary;  /* one line for the list of commands */
    const char *text;     /* paragraphs for help and manual, separated by blank lines; may be NULL */
    const char *examples; /* lines; may be NULL */
    vb__opt_group groups[VB_OPT_GROUPS_MAX]; /* the first without options ends the list */
    size_t values_size;
    int max_positional;
    bool hidden; /* not in the list of commands */
    /* values: the struct of values, zeroed and then filled. Returns the exit code; prints its own errors. */
    int (*run)(void *values, const char *const *positional, int n_positional);
} vb__command;

/* Parses argv (without program and command name) into values. positional: room for max_positional + 1
 * strings. *help is set when
 * --help or -h was met (nothing else matters then). VB_E_ARGUMENT or VB_E_RANGE naming the option. */
VB_MUST_USE vb_err vb__options_parse(const vb__command *c, int argc, char **argv, void *values,
                                     const char **positional, int *n_positional, bool *help, vb_error *err);

/* "1,2,3", or "@FILE" with such numbers, separated by commas or white space, or in the brackets of a JSON array. *ids is the caller's (vb__free). */
VB_MUST_USE vb_err vb__parse_ids(const char *option, const char *text, int32_t **ids, int32_t *count,
                                 vb_error *err);

#endif
