/* Certificates, keys and authorities, as files, made into what handshakes are done with.
 *
 * What this is: the one place that decides how pawld speaks TLS (1.2 and later, OpenSSL's ciphers at security level 2, no renegotiation, no resumption),
 * for both of its sides: as a server towards clients, as a client towards Redis. What it is not: it touches no socket (tls_stream.h does).
 *
 * Loading may be repeated: handshakes that begin later use what was loaded last, connections that stand keep what they began with, and a load that fails
 * changes nothing. Reads files, so it blocks for as long as the disk takes; allocates; single-threaded.
 *
 * No resumption: each connection proves itself anew, to the authority that is in force when it is made, and nothing is sent to a client that it did not
 * ask for, which keeps "closed without reading what was sent" as sharp under TLS as it is without. A client keeps its connection; handshakes are rare.
 */
#ifndef PAWL_TLS_CONFIG_H
#define PAWL_TLS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tls_config;
struct ssl_st; /* OpenSSL's SSL: for tls_stream alone */

enum tls_client_auth { TLS_CLIENT_AUTH_REQUIRED, TLS_CLIENT_AUTH_OPTIONAL };

struct tls_files {    /* paths of PEM files; borrowed as long as the configuration lives */
    const char *cert; /* our certificate, then those that lead to its authority; NULL for a client that shows none */
    const char *key;  /* of the certificate, without a passphrase; NULL: it stands in the file of the certificate */
    const char *ca;   /* whom to trust; NULL: a server asks for no client certificate, a client trusts what the system trusts */
    enum tls_client_auth client_auth; /* of a server with a ca */
};

/* Empty: nothing is loaded yet. NULL without memory. */
struct tls_config *tls_config_new_server(const struct tls_files *files);
struct tls_config *tls_config_new_client(const struct tls_files *files);
void tls_config_free(struct tls_config *config); /* connections made with it may live on; takes NULL */

/* Reads the files. Returns 0, or -1 with a sentence that names option and file; what was loaded before is then still in force. */
int tls_config_load(struct tls_config *config, char *problem, size_t cap);

/* When our certificate ends, in seconds since 1970; 0 without one. */
int64_t tls_config_expiry(const struct tls_config *config);
/* Where our certificate is, NULL without one. */
const char *tls_config_cert(const struct tls_config *config);
/* The path of a key that everybody on this machine may read, NULL when there is none. */
const char *tls_config_exposed_key(const struct tls_config *config);

/* For tls_stream: one connection's end, by the loaded configuration. `host`: the server that must answer, NULL for a server's end. NULL without memory. */
struct ssl_st *tls_config_begin(const struct tls_config *config, const char *host);

#endif
