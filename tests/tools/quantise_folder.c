/* Quantises a model folder: quantise_folder FROM TO BITS GROUP. What `verbatim quantize` does, for the build of test
 * models without the command line. */
#include "base/cpu.h"
#include "model/quantise.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: quantise_folder FROM TO BITS GROUP\n");
        return 2;
    }
    vb_error err = {0};
    vb__pool *pool = NULL;
    vb__quantise_result r = {0};
    vb_err e = vb__pool_create(vb__cpu_count(), &pool, &err);
    vb__quantise_options o = {.bits = atoi(argv[3]), .group = atoi(argv[4]), .pool = pool};
    if (e == VB_OK) e = vb__quantise_folder(argv[1], argv[2], &o, &r, &err);
    vb__pool_destroy(pool);
    if (e != VB_OK) {
        fprintf(stderr, "quantise_folder: error: %s\n", err.text);
        return vb_err_exit_code(e);
    }
    printf("%d matrices, %lld weights, %lld bytes to %lld, relative error %.5f\n", r.matrices, (long long)r.weights,
           (long long)r.bytes_in, (long long)r.bytes_out, r.relative_error);
    return 0;
}
