/* Who may ask: host names, origins, keys. Pure functions on header values; http.c calls them before a body is read.
 *
 * A web page can make a browser send requests here: with its own name rebound to a loopback address (Host shows that
 * name), or across origins (Origin or Sec-Fetch-Site shows that). */
#ifndef VB_SERVER_GUARD_H
#define VB_SERVER_GUARD_H
#include "server/server.h"

/* host: the header's value. True for an IP address, localhost, --host and --allowed-host, with any port. */
bool vb__guard_host(const vb__serve_options *o, const char *host);
/* Bytes of "http://AUTHORITY" or "https://AUTHORITY" at the start of a request target that names the whole URL, and the length of the authority, which
 * ends them; 0: it is a path. */
size_t vb__guard_authority(const char *target, size_t *authority);
/* Do an authority of such a target (of n bytes, for the scheme with this default port) and a Host name the same place? */
bool vb__guard_same_host(const char *authority, size_t n, const char *host, const char *port);
/* origin: the header's value or NULL; fetch_site: of Sec-Fetch-Site or NULL; host: of Host. */
bool vb__guard_origin(const vb__serve_options *o, const char *origin, const char *fetch_site, const char *host);
/* authorization, api_key: header values or NULL. Compares in constant time with every key. */
bool vb__guard_key(const vb__serve_options *o, const char *authorization, const char *api_key);

#endif
