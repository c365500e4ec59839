/* The inside of the template interpreter: values, syntax tree, the state of one rendering. Only for
 * jinja_*.c. */
#ifndef VB_TEXT_JINJA_INT_H
#define VB_TEXT_JINJA_INT_H
#include "base/arena.h"
#include "text/jinja.h"
#include <string.h>

enum {
    JINJA_PARSE_DEPTH = 200,        /* nesting of expressions and statements in the source */
    JINJA_EVAL_DEPTH = 1800,        /* nested evaluations while rendering (macros that call themselves) */
    JINJA_CALL_DEPTH = 250,         /* macros inside macros */
    JINJA_VALUE_DEPTH = 250,        /* lists in lists, for text, comparison and hashing */
    JINJA_COMPILE_BYTES = 96 << 20, /* memory of a compiled template */
    JINJA_WORK = 6000000,           /* units of work; one is about ten nanoseconds */
    JINJA_WORK_PER_BYTE = 24,       /* more for each byte of the data given */
    JINJA_MEMORY = 48 << 20,        /* bytes of values */
    JINJA_MEMORY_PER_BYTE = 96,
    JINJA_MEMORY_MAX = 2000 << 20,
    JINJA_MAX_RANGE = 100000,
};

/* ---- values ---- */

typedef enum jtype {
    JV_ABSENT, /* no value: an argument not given, a slot not set */
    JV_UNDEF,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_STR,
    JV_LIST,
    JV_TUPLE,
    JV_DICT,
    JV_RANGE,
    JV_VIEW, /* d.keys(), d.values(), d.items(); sub is a jview */
    JV_GEN,
    JV_NAMESPACE,
    JV_MACRO,
    JV_FUNC, /* a global function; sub is a jfunc */
    JV_METHOD,
    JV_LOOP,
    JV_CYCLER,
    JV_JOINER,
} jtype;

typedef enum jview { JVIEW_KEYS, JVIEW_VALUES, JVIEW_ITEMS } jview;

typedef struct jr jr;     /* the state of one rendering */
typedef struct jast jast; /* a syntax tree node */
typedef struct jstr jstr;
typedef struct jseq jseq;
typedef struct jdict jdict;
typedef struct jundef jundef;
typedef struct jgen jgen;
typedef struct jscope jscope;

typedef struct jv {
    uint8_t t;
    uint8_t sub;
    union {
        bool b;
        int64_t i;
        double f;
        const jstr *s;
        const jseq *l;
        jdict *d; /* also namespaces and views */
        const struct jrange *r;
        const jundef *u;
        jgen *g;
        struct jmacro *m;
        struct jmethod *me;
        struct jloop *loop;
        struct jcycler *cy;
        struct jjoiner *jo;
        void *p;
    };
} jv;

/* Origins: runs cover the bytes in order, `end` is exclusive. */
typedef struct jrun {
    uint32_t end;
    uint32_t ours;
} jrun;

struct jstr {
    const char *s;
    uint32_t len;
    uint32_t chars;   /* code points; UINT32_MAX: not counted yet */
    const jrun *runs; /* NULL: all of one origin */
    uint32_t n_runs;
    bool ours;   /* the origin when runs is NULL */
    bool markup; /* result of escape or safe: not escaped again */
};

struct jseq {
    const jv *v;
    uint32_t n;
    bool group; /* a (grouper, list) pair of groupby */
};

typedef struct jentry {
    jv k, v;
    uint64_t hash;
} jentry;

struct jdict {
    jentry *e;
    uint32_t n, cap;
    uint32_t *index; /* open addressing, slot is entry + 1; NULL while small */
    uint32_t mask;
};

typedef struct jrange {
    int64_t start, step, stop;
    int64_t n;
} jrange;

typedef enum jundef_kind { JU_NAME, JU_ATTR, JU_ELEMENT, JU_UNSAFE, JU_TEXT } jundef_kind;
struct jundef {
    jundef_kind kind;
    uint8_t of; /* the type it was looked for in */
    jv key;     /* the name or index looked for; JU_TEXT: the whole sentence */
};

typedef struct jmethod {
    jv self;
    uint16_t id;
} jmethod;

typedef struct jmacro {
    const jast *node; /* N_MACRO or N_CALLBLOCK */
    jscope *closure;
} jmacro;

typedef struct jcycler {
    const jseq *items;
    uint32_t pos;
} jcycler;

typedef struct jjoiner {
    jv sep;
    bool used;
} jjoiner;

/* ---- the syntax tree ---- */

typedef enum jnode {
    /* expressions */
    N_CONST,
    N_NAME,
    N_TUPLE,
    N_LIST,
    N_DICT,
    N_COND,
    N_OR,
    N_AND,
    N_NOT,
    N_COMPARE,
    N_BIN,
    N_CONCAT,
    N_NEG,
    N_POS,
    N_GETATTR,
    N_GETITEM,
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    /* targets */
    N_NSREF,
    /* statements */
    N_TEXT,
    N_OUTPUT,
    N_IF,
    N_FOR,
    N_SET,
    N_SETBLOCK,
    N_MACRO,
    N_CALLBLOCK,
    N_FILTERBLOCK,
    N_WITH,
    N_BLOCK,
    N_SCOPE,
    N_BREAK,
    N_CONTINUE,
    N_LOADER,
} jnode;

typedef enum jop {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOTIN,
} jop;

typedef struct jcall {
    jast **pos;
    jast **kwv;
    jv *kwn; /* strings */
    uint32_t n_pos, n_kw;
    jast *star, *starstar;
} jcall;

typedef struct jparams {
    uint32_t n;
    uint32_t *ids;
    jv *names;
    jast **defaults;              /* NULL: none */
    bool caller, varargs, kwargs; /* used in the body */
    bool own_caller;              /* caller is one of the parameters */
} jparams;

/* Members used: CONST v. NAME id. TUPLE, LIST list. DICT list (key, value, ...). COND a if b is true else c
 * (may be NULL): b test. OR, AND, BIN a, b. NOT, NEG, POS a. COMPARE a, list, ops. CONCAT list. GETATTR a, v
 * (name), id (method). GETITEM a, b. SLICE a, b, c, each may be NULL. CALL a, call. FILTER a (NULL: the
 * block's text), TEST a: id (number, flag: unknown), v (name), call. NSREF id, v (attribute). TEXT v. OUTPUT
 * a. IF a (NULL: else), list, b (the next branch). FOR a target, b iterable, c condition, list, d (else, a
 * SCOPE), flag recursive. SET a, b. SETBLOCK a, b (filters or NULL), list. MACRO id, v (name), params, list.
 * CALLBLOCK a, params, list. FILTERBLOCK a, list. WITH call (pos targets, kwv values), list. BLOCK, SCOPE
 * list. LOADER v (what it would load). */
struct jast {
    uint8_t type;
    uint8_t op;
    bool flag;
    uint32_t line;
    uint32_t id; /* name id; filter or test number; method id */
    uint32_t n;
    jast *a, *b, *c, *d;
    uint32_t
        *late; /* names of this scope that are set in it before they are read in it: unknown until then */
    uint32_t n_late;
    jast **list;
    uint8_t *ops;
    jcall *call;
    jparams *params;
    jv v;
};

typedef struct jname {
    jv text;
    uint16_t func; /* a global's jfunc + 1; 0: none */
    bool late;     /* set at the top level before it is read there: the variable given is never seen */
} jname;

struct vb__jinja {
    vb__arena arena;
    jname *names;
    uint32_t n_names, cap_names;
    uint32_t *name_index;
    uint32_t name_mask;
    uint32_t id_loop, id_caller, id_varargs, id_kwargs;
    jast **body;
    uint32_t n_body;
};

/* ---- lexer ---- */

typedef enum jtok {
    T_EOF,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_ADD,
    T_SUB,
    T_MUL,
    T_DIV,
    T_FLOORDIV,
    T_MOD,
    T_POW,
    T_TILDE,
    T_LBRACKET,
    T_RBRACKET,
    T_LPAREN,
    T_RPAREN,
    T_LBRACE,
    T_RBRACE,
    T_EQ,
    T_NE,
    T_GT,
    T_GE,
    T_LT,
    T_LE,
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_PIPE,
    T_COMMA,
    T_SEMICOLON,
} jtok;

typedef struct jtoken {
    jtok t;
    uint32_t line;
    const char *s; /* T_NAME, T_DATA: text; T_STRING: the literal with its quotes; numbers: digits */
    uint32_t len;
} jtoken;

typedef struct jlexer {
    const char *p, *end, *base;
    uint32_t line;
    int state; /* 0 template data, 1 inside a variable, 2 inside a block */
    bool at_line_start;
    uint32_t n_open;
    char open[JINJA_PARSE_DEPTH * 2];
    vb_error *err;
    vb_err code;
    jtoken queued; /* the begin token behind a piece of data */
    bool has_queued;
} jlexer;

void vb__jlex_init(jlexer *x, const char *source, size_t len, vb_error *err);
vb_err vb__jlex_next(jlexer *x, jtoken *out);
const char *vb__jtok_name(jtok t);
/* "a name" / the text of a token, for messages. */
const char *vb__jtoken_text(const jtoken *t, char *buf, size_t size);

/* ---- rendering ---- */

typedef struct jslot {
    uint32_t id;
    jv v;
} jslot;

struct jscope {
    jscope *parent; /* NULL: the root, whose variables are in jr.root */
    jslot *e;
    uint32_t n, cap;
    bool captured; /* a macro holds on to it: not to be reused */
};

/* A string (or output) in the making. */
typedef struct jsb {
    jr *r;
    char *d;
    uint32_t len, cap;
    jrun *runs;
    uint32_t n_runs, cap_runs;
} jsb;

typedef struct jblock {
    struct jblock *next;
    size_t used, cap;
    _Alignas(16) char data[];
} jblock;

/* A bump allocator that does not clear, with its blocks in a list. */
typedef struct jpool {
    jblock *head;
    size_t block;
} jpool;

struct jr {
    const vb__jinja *t;
    vb__jinja_options opt;
    jpool objects, bytes;
    size_t memory, memory_max;
    int64_t work;
    int depth, calls;
    uint32_t line;
    jv *context; /* by name id */
    jv *root;    /* by name id: set at the top level */
    jscope top;
    jsb *out;
    /* the error */
    vb_err code;
    vb_error *err;
    char *message;
    bool raised;
    json_t *parsed; /* documents read by from_json, kept until the end: an array */
};

typedef struct jargs {
    const jv *pos;
    uint32_t n;
    const jv *kwn; /* strings */
    const jv *kwv;
    uint32_t n_kw;
} jargs;

/* Anything that can be walked over. */
typedef struct jiter {
    uint8_t kind; /* the jtype walked over */
    uint8_t sub;
    uint32_t i, n;
    union {
        const jv *v;
        const jstr *s;
        const jdict *d;
        const jrange *r;
        jgen *g;
    };
    uint32_t off; /* byte offset in s */
} jiter;

typedef struct jloop {
    const jast *node;
    jscope *outer, *test_scope;
    jiter it;
    jv cur, prev, changed;
    jv *queue; /* items fetched ahead */
    uint32_t q_pos, q_n, q_cap;
    int64_t index0, fetched;
    bool ended, has_changed;
    int depth0;
} jloop;

typedef enum jgen_kind { JG_LIST, JG_MAP_FILTER, JG_MAP_ATTR, JG_SELECT, JG_UNIQUE } jgen_kind;
struct jgen {
    jgen_kind kind;
    jiter src;
    /* JG_MAP_FILTER and JG_SELECT: the filter or test and its arguments; JG_MAP_ATTR, JG_SELECT: the
     * attribute */
    int fn; /* -1: none */
    jargs args;
    jv attr, def;
    bool negate, by_attr, fold;
    jdict *seen;
};

/* Errors while rendering: always false, so that a caller can return them. */
bool vb__jerr(jr *r, const char *fmt, ...) VB_PRINTF(2, 3);
bool vb__jerr_code(jr *r, vb_err code, const char *fmt, ...) VB_PRINTF(3, 4);
bool vb__jerr_undef(jr *r, jv undef);
/* Takes work off the budget. */
bool vb__jwork(jr *r, int64_t units);
void *vb__jalloc(jr *r, size_t bytes); /* 16-byte aligned, not cleared; NULL with the error set */
char *vb__jbytes(jr *r, size_t bytes); /* unaligned, for string bytes */

/* strings (jinja_string.c) */
bool vb__jsb_init(jr *r, jsb *b);
bool vb__jsb_put(jsb *b, const char *s, size_t n, bool ours);
bool vb__jsb_putc(jsb *b, char c, bool ours);
bool vb__jsb_cp(jsb *b, uint32_t cp, bool ours);
bool vb__jsb_puts(jsb *b, const char *s, bool ours);
bool vb__jsb_put_str(jsb *b, const jstr *s);
bool vb__jsb_put_part(jsb *b, const jstr *s, uint32_t from, uint32_t to); /* bytes */
bool vb__jsb_take(jsb *b, jv *out);
bool vb__jstr_new(jr *r, const char *s, size_t n, bool ours, jv *out); /* copies */
bool vb__jstr_borrow(jr *r, const char *s, size_t n, bool ours, jv *out);
bool vb__jstr_part(jr *r, const jstr *s, uint32_t from, uint32_t to, jv *out); /* bytes; shares them */
bool vb__jstr_concat(jr *r, const jstr *a, const jstr *b, jv *out);
uint32_t vb__jstr_chars(const jstr *s);
/* Byte offset of code point `cp` (0..chars). */
uint32_t vb__jstr_offset(const jstr *s, uint32_t cp);
bool vb__jstr_ours_at(const jstr *s, uint32_t byte);
bool vb__jstr_same(const jstr *s, const char *z);
/* Next code point of valid UTF-8; the bytes it took. */
uint32_t vb__jutf8(const char *s, const char *end, uint32_t *cp);
uint32_t vb__jutf8_put(char *s, uint32_t cp);
/* First place of `needle` at or behind `from`, UINT32_MAX when there is none. */
uint32_t vb__jstr_find(const jstr *s, uint32_t from, uint32_t to, const jstr *needle);
/* Last place; quadratic at worst, so the caller pays len x needle / 64 units of work first. */
uint32_t vb__jstr_rfind(const jstr *s, uint32_t from, uint32_t to, const jstr *needle);

/* values (jinja_value.c) */
static inline jv vb__jv_none(void) {
    return (jv){.t = JV_NONE};
}
static inline jv vb__jv_bool(bool b) {
    return (jv){.t = JV_BOOL, .b = b};
}
static inline jv vb__jv_int(int64_t i) {
    return (jv){.t = JV_INT, .i = i};
}
static inline jv vb__jv_float(double f) {
    return (jv){.t = JV_FLOAT, .f = f};
}
bool vb__jv_undef(jr *r, jundef_kind kind, jtype of, jv key, jv *out);
bool vb__jv_undef_text(jr *r, const char *text, jv *out);
extern const jv vb__jnothing[1];                                    /* where lists without items point */
bool vb__jv_list(jr *r, jtype t, const jv *v, uint32_t n, jv *out); /* borrows v */
const char *vb__jv_type_name(jv v);                                 /* Python's name of the type */
bool vb__jv_truth(jr *r, jv v, bool *out);
bool vb__jv_equal(jr *r, jv a, jv b, bool *out);
/* -1, 0, 1; `op` names the operator in the error. NaN: 2. */
bool vb__jv_compare(jr *r, jv a, jv b, const char *op, int *out);
bool vb__jv_hash(jr *r, jv v, uint64_t *out);
bool vb__jdict_new(jr *r, uint32_t cap, jdict **out);
bool vb__jdict_set(jr *r, jdict *d, jv k, jv v);
bool vb__jdict_get(jr *r, const jdict *d, jv k, jv *out, bool *found); /* fails on a key that has no hash */
const jv *vb__jdict_text(const jdict *d, const char *key, size_t len); /* NULL: none */
bool vb__jiter_init(jr *r, jv v, jiter *it);                           /* fails: not iterable */
bool vb__jiter_next(jr *r, jiter *it, jv *out, bool *more);
bool vb__jv_collect(jr *r, jv v, jv **items, uint32_t *n); /* everything it yields */
bool vb__jv_len(jr *r, jv v, int64_t *out);
bool vb__jv_from_json(jr *r, const json_t *j, bool ours, int depth, jv *out);
bool vb__jpush(jr *r, jv **v, uint32_t *n, uint32_t *cap, jv x);
bool vb__jv_contains(jr *r, jv item, jv in, bool *out);

/* text of values (jinja_repr.c) */
bool vb__jv_str(jr *r, jv v, jv *out); /* str(v) */
bool vb__jv_put_str(jsb *b, jv v);     /* appends str(v) */
bool vb__jv_put_repr(jsb *b, jv v, int depth);
int vb__jfloat_repr(double f, char *buf,
                    size_t size); /* Python's shortest text that reads back as f; its length */
double vb__jfloat_read(const char *digits, size_t n,
                       int exponent);              /* 0.digits... no point: digits x 10^exponent */
bool vb__jfloat_parse(const jstr *s, double *out); /* Python's float(text) */
bool vb__jint_parse(jr *r, const jstr *s, int base, int64_t *out, bool *ok);
double vb__jfloat_round(double x, int64_t digits);
bool vb__jv_json(jr *r, jv v, const jargs *args, jv *out); /* the tojson filter */

/* Python's text formatting (jinja_format.c) */
bool vb__jformat_percent(jr *r, const jstr *fmt, jv args, jv *out);
bool vb__jformat_brace(jr *r, const jstr *fmt, const jargs *args, jv *out);

/* Unicode (jinja_unicode.c); Python's notions */
bool vb__jcp_space(uint32_t cp);
bool vb__jcp_printable(uint32_t cp);
bool vb__jcp_alpha(uint32_t cp);
bool vb__jcp_decimal(uint32_t cp, int *value);
bool vb__jcp_digit(uint32_t cp);
bool vb__jcp_numeric(uint32_t cp);
bool vb__jcp_lower(uint32_t cp); /* is lower case */
bool vb__jcp_upper(uint32_t cp);
bool vb__jcp_title(uint32_t cp);
bool vb__jcp_word(uint32_t cp);
typedef enum jcase { JC_UPPER, JC_LOWER, JC_TITLE, JC_FOLD } jcase;
/* Full mapping of one code point to up to 3. */
int vb__jcp_map(uint32_t cp, jcase to, uint32_t out[3]);
/* Appends bytes from..to of s in another case; final sigma looks at that part alone. */
bool vb__jstr_case(jsb *b, const jstr *s, uint32_t from, uint32_t to, jcase c);
bool vb__jstr_swapcase(jsb *b, const jstr *s);
bool vb__jstr_title(jsb *b, const jstr *s); /* str.title() */
bool vb__jstr_capitalize(jsb *b, const jstr *s);

/* operators (jinja_ops.c) */
bool vb__jop_binary(jr *r, jop op, jv a, jv b, jv *out);
bool vb__jop_compare(jr *r, jop op, jv a, jv b, bool *out);
bool vb__jop_negate(jr *r, jv a, bool plus, jv *out);
bool vb__jop_getattr(jr *r, jv obj, const jstr *name, uint32_t method, jv *out);
bool vb__jop_getitem(jr *r, jv obj, jv key, jv *out);
bool vb__jop_slice(jr *r, jv obj, jv start, jv stop, jv step, jv *out);
bool vb__jop_attr_path(jr *r, jv obj, jv path, jv def, jv *out); /* "a.b.0", or a number */

/* methods (jinja_methods.c, jinja_strmethods.c) */
#define JINJA_METHODS(X)                                                                                     \
    X(append)                                                                                                \
    X(as_integer_ratio) X(bit_count) X(bit_length) X(capitalize) X(casefold) X(center) X(clear) X(conjugate) \
        X(copy) X(count) X(denominator) X(encode) X(endswith) X(expandtabs) X(extend) X(find) X(format)      \
            X(format_map) X(from_bytes) X(fromhex) X(fromkeys) X(get) X(hex) X(imag) X(index) X(insert)      \
                X(is_integer) X(isalnum) X(isalpha) X(isascii) X(isdecimal) X(isdigit) X(isidentifier)       \
                    X(islower) X(isnumeric) X(isprintable) X(isspace) X(istitle) X(isupper) X(items) X(join) \
                        X(keys) X(ljust) X(lower) X(lstrip) X(maketrans) X(next) X(numerator) X(partition)   \
                            X(pop) X(popitem) X(real) X(remove) X(removeprefix) X(removesuffix) X(replace)   \
                                X(reset) X(reverse) X(rfind) X(rindex) X(rjust) X(rpartition) X(rsplit)      \
                                    X(rstrip) X(setdefault) X(sort) X(split) X(splitlines) X(start)          \
                                        X(startswith) X(step) X(stop) X(strip) X(swapcase) X(title)          \
                                            X(to_bytes) X(translate) X(update) X(upper) X(values) X(zfill)   \
                                                X(current) X(cycle) X(changed)
typedef enum jmethod_id {
    M_NONE,
#define JINJA_METHOD_ENUM(name) M_##name,
    JINJA_METHODS(JINJA_METHOD_ENUM)
#undef JINJA_METHOD_ENUM
        M_COUNT
} jmethod_id;
uint32_t vb__jmethod_find(const char *s, size_t n); /* 0: no such name on any type */
typedef enum jmethod_is { JM_NONE, JM_OK, JM_UNSAFE, JM_VALUE } jmethod_is;
jmethod_is vb__jmethod_on(jv self, uint32_t id);
const char *vb__jmethod_name(uint32_t id);
bool vb__jmethod_call(jr *r, jv self, uint32_t id, const jargs *a, jv *out);
bool vb__jstr_method(jr *r, const jstr *s, uint32_t id, const jargs *a, jv *out);

/* filters and tests */
int vb__jfilter_find(const char *s, size_t n); /* -1: none */
bool vb__jfilter_call(jr *r, int filter, jv in, const jargs *a, jv *out);
int vb__jtest_find(const char *s, size_t n);
bool vb__jtest_call(jr *r, int test, jv in, const jargs *a, bool *out);
bool vb__jgen_next(jr *r, jgen *g, jv *out, bool *more);
/* Binds call arguments to named parameters. `spec` is "a b? *": names by blanks, '?' marks an optional one.
 * Slots not given stay JV_ABSENT. A spec that begins with '/' takes no keywords. `what` names the function in
 * errors. */
bool vb__jbind(jr *r, const char *what, const char *spec, const jargs *a, jv *slots);
bool vb__jarg_int(jr *r, const char *what, jv v, int64_t fallback, int64_t *out);
bool vb__jarg_truth(jr *r, jv v, bool fallback, bool *out);

/* global functions (jinja_globals.c) */
typedef enum jfunc {
    JF_RANGE,
    JF_DICT,
    JF_NAMESPACE,
    JF_RAISE,
    JF_STRFTIME,
    JF_CYCLER,
    JF_JOINER,
    JF_LIPSUM,
    JF_N
} jfunc;
int vb__jfunc_find(const char *s, size_t n); /* -1: none */
const char *vb__jfunc_name(uint32_t f);
bool vb__jfunc_call(jr *r, uint32_t f, const jargs *a, jv *out);

/* evaluation (jinja_eval.c, jinja_exec.c) */
bool vb__jeval(jr *r, jscope *sc, const jast *n, jv *out);
/* {% call %}: the call of node `call`, with `caller` as one keyword more. */
bool vb__jcall_block(jr *r, jscope *sc, const jast *call, jv caller, jv *out);
/* One filter node on a value. */
bool vb__jfilter_node(jr *r, jscope *sc, const jast *n, jv in, jv *out);
bool vb__jcall_value(jr *r, jv f, const jargs *a, jv *out);
bool vb__jmacro_call(jr *r, jmacro *m, const jargs *a, jv *out);
bool vb__jloop_call(jr *r, jloop *loop, const jargs *a, jv *out);
bool vb__jloop_attr(jr *r, jloop *loop, const jstr *name, jv *out, bool *found);
bool vb__jscope_get(jr *r, jscope *sc, uint32_t id, jv *out); /* JV_ABSENT when unknown */
bool vb__jscope_set(jr *r, jscope *sc, uint32_t id, jv v);
typedef enum jflow { JX_ERROR, JX_NEXT, JX_BREAK, JX_CONTINUE } jflow;
jflow vb__jexec(jr *r, jscope *sc, jast *const *list, uint32_t n);

#endif
