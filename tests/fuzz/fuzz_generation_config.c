/* engine/sampling_options: any bytes give options that pass the check, or an error with a sentence. */
#include "engine/sampling_options.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    vb__generation_config c;
    vb_sampling out;
    vb_error err = {0};
    if (vb__generation_config_parse((const char *)data, size, "generation_config.json", &c, &err) != VB_OK) {
        if (err.text[0] == '\0') abort();
        return 0;
    }
    for (int32_t i = 0; i < c.n_eos; i++)
        if (c.eos[i] < 0) abort();
    if (vb__sampling_resolve(NULL, NULL, &c.sampling, &out, &err) != VB_OK || out.set != 0xff) abort();
    return 0;
}
