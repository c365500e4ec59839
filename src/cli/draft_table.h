/* The tables of `bench --draft` and `tune`, from the library's JSON. */
#ifndef VB_CLI_DRAFT_TABLE_H
#define VB_CLI_DRAFT_TABLE_H

/* To standard output. text is what vb_bench_draft_json or vb_tune_json gave. */
void vb__print_draft_table(const char *text);

#endif
