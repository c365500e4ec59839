#include "server/guard.h"
#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_BYTES = 256 };

/* The name without port, brackets and final dot; false when it is none. */
static bool host_name(const char *host, char out[NAME_MAX_BYTES]) {
    size_t n = strlen(host);
    const char *name = host, *port = NULL;
    unsigned char b[16];
    if (host[0] == '[') {
        const char *end = strchr(host, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':')) return false;
        name = host + 1;
        n = (size_t)(end - name);
        if (end[1] == ':') port = end + 2;
        if (n >= NAME_MAX_BYTES) return false;
        memcpy(out, name, n);
        out[n] = '\0';
        if (inet_pton(AF_INET6, out, b) != 1) return false;
    } else {
        const char *colon = strchr(host, ':');
        if (colon != NULL) {
            n = (size_t)(colon - host);
            port = colon + 1;
        }
        if (n > 1 && host[n - 1] == '.') n--;
    }
    if (port != NULL && (strlen(port) > 5 || port[strspn(port, "0123456789")] != '\0')) return false;
    if (n == 0 || n >= NAME_MAX_BYTES) return false;
    memcpy(out, name, n);
    out[n] = '\0';
    return true;
}

static bool is_address(const char *name) {
    unsigned char b[16];
    return inet_pton(AF_INET, name, b) == 1 || inet_pton(AF_INET6, name, b) == 1;
}

bool vb__guard_host(const vb__serve_options *o, const char *host) {
    char name[NAME_MAX_BYTES];
    if (!host_name(host, name)) return false;
    if (is_address(name) || strcasecmp(name, "localhost") == 0 || strcasecmp(name, o->host) == 0) return true;
    for (int32_t i = 0; i < o->n_hosts; i++)
        if (strcasecmp(name, o->hosts[i]) == 0) return true;
    return false;
}

size_t vb__guard_authority(const char *target, size_t *authority) {
    size_t scheme = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
    *authority = scheme == 0 ? 0 : strcspn(target + scheme, "/?#");
    return scheme + *authority;
}

/* Bytes of the name before ":PORT"; the port, which is the default where none is said. */
static size_t split_port(const char *host, size_t n, const char **port, size_t *port_len) {
    size_t at = n;
    while (at > 0 && host[at - 1] >= '0' && host[at - 1] <= '9') at--;
    if (at == 0 || host[at - 1] != ':') return n;
    if (at < n) {
        *port = host + at;
        *port_len = n - at;
    }
    return at - 1;
}

bool vb__guard_same_host(const char *authority, size_t n, const char *host, const char *port) {
    const char *p[2] = {port, port};
    size_t len[2] = {strlen(port), strlen(port)};
    size_t a = split_port(authority, n, &p[0], &len[0]), b = split_port(host, strlen(host), &p[1], &len[1]);
    return a == b && strncasecmp(authority, host, a) == 0 && len[0] == len[1] && memcmp(p[0], p[1], len[0]) == 0;
}

bool vb__guard_origin(const vb__serve_options *o, const char *origin, const char *fetch_site, const char *host) {
    bool cross = fetch_site != NULL && strcasecmp(fetch_site, "cross-site") == 0;
    for (int32_t i = 0; origin != NULL && i < o->n_origins; i++)
        if (strcmp(o->origins[i], "*") == 0 || strcasecmp(o->origins[i], origin) == 0) return true; /* such a page is cross-site */
    if (origin == NULL || cross) return !cross;
    const char *rest = strncasecmp(origin, "http://", 7) == 0 ? origin + 7 : strncasecmp(origin, "https://", 8) == 0 ? origin + 8 : NULL;
    return rest != NULL && strcasecmp(rest, host) == 0;
}

static void digest(const char *s, size_t n, unsigned char out[EVP_MAX_MD_SIZE]) {
    unsigned len = 0;
    memset(out, 0, EVP_MAX_MD_SIZE);
    if (EVP_Digest(s, n, out, &len, EVP_sha256(), NULL) != 1) memset(out, 0xA5, EVP_MAX_MD_SIZE / 2);
}

/* Digests are compared, so that neither length nor content shows in the time; every key is looked at. */
static bool known(const vb__serve_options *o, const char *key) {
    unsigned char given[EVP_MAX_MD_SIZE], want[EVP_MAX_MD_SIZE];
    int found = 0;
    size_t n = strlen(key);
    while (n > 0 && (key[n - 1] == ' ' || key[n - 1] == '\t')) n--; /* blanks behind a header's value are not part of it */
    digest(key, n, given);
    for (int32_t i = 0; i < o->n_keys; i++) {
        digest(o->keys[i], strlen(o->keys[i]), want);
        found |= CRYPTO_memcmp(given, want, 32) == 0;
    }
    return found != 0;
}

bool vb__guard_key(const vb__serve_options *o, const char *authorization, const char *api_key) {
    if (o->n_keys == 0) return true;
    bool ok = false;
    if (authorization != NULL && strncasecmp(authorization, "Bearer ", 7) == 0) {
        const char *k = authorization + 7;
        ok = known(o, k + strspn(k, " "));
    }
    return (api_key != NULL && known(o, api_key)) || ok;
}
