/* The replay driver: runs a fuzz target over the files named, and over the files inside the folders named (one
 * level), in the order of their names. What a fuzzer once found stays found without a fuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (f == NULL || fstat(fileno(f), &st) != 0) {
        fprintf(stderr, "replay: %s: cannot be opened\n", path);
        if (f != NULL) fclose(f);
        return 1;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size == 0 ? 1 : size); /* exactly the size, so that a sanitizer sees a read past it */
    int bad = data == NULL || fread(data, 1, size, f) != size;
    fclose(f);
    if (bad) fprintf(stderr, "replay: %s: cannot be read\n", path);
    else (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
    return bad;
}

int main(int argc, char **argv) {
    int files = 0, bad = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode)) {
            struct dirent **names;
            int n = scandir(argv[i], &names, NULL, alphasort);
            for (int j = 0; j < n; j++) {
                char path[4096];
                (void)snprintf(path, sizeof path, "%s/%s", argv[i], names[j]->d_name);
                if (names[j]->d_name[0] != '.' && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
                    bad |= replay_file(path);
                    files++;
                }
                free(names[j]);
            }
            if (n >= 0) free(names);
        } else {
            bad |= replay_file(argv[i]);
            files++;
        }
    }
    printf("replay: %d files\n", files);
    return bad || files == 0; /* an empty corpus is a mistake in the build, not a pass */
}
