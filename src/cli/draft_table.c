#include "cli/draft_table.h"
#include <jansson.h>
#include <stdio.h>

static double number(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static void print_arms(const char *prompt, const json_t *arms) {
    for (size_t i = 0; i < json_array_size(arms); i++) {
        const json_t *a = json_array_get(arms, i);
        char width[8] = "auto";
        if (number(a, "width") > 0) (void)snprintf(width, sizeof width, "%d", (int)number(a, "width"));
        const char *drafter = json_string_value(json_object_get(a, "drafter"));
        printf("%-10s %-7s %5s %9.1f %9.1f %6.2fx %5.2f..%-5.2f %6.0f%% %8.2f %6.0f%%\n", prompt,
               drafter != NULL ? drafter : "", width, number(a, "plain_tokens_per_s"),
               number(a, "tokens_per_s"), number(a, "ratio"), number(a, "least"), number(a, "largest"),
               100 * number(a, "acceptance"), number(a, "tokens_per_round"), 100 * number(a, "draft_share"));
    }
}

void vb__print_draft_table(const char *text) {
    json_t *root = json_loads(text, 0, NULL);
    const json_t *prompts = json_object_get(root, "prompts"), *stored = json_object_get(root, "stored");
    printf("%-10s %-7s %5s %9s %9s %7s %12s %7s %8s %7s\n", "prompt", "drafter", "width", "plain/s",
           "tokens/s", "ratio", "spread", "accept", "a round", "drafting");
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        const json_t *p = json_array_get(prompts, i);
        const char *name = json_string_value(json_object_get(p, "prompt"));
        print_arms(name != NULL ? name : "", json_object_get(p, "arms"));
    }
    print_arms("all", json_object_get(root, "arms"));
    if (json_is_array(stored)) {
        printf(json_array_size(stored) > 0 ? "\nstored:\n"
                                           : "\nstored: nothing, since no drafter beats plain decode beyond "
                                             "the spread of the plain runs\n");
        print_arms("best", stored);
    }
    json_decref(root);
}
