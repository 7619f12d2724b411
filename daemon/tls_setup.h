/* From the options to what TLS needs: which certificates are wanted, whether they make sense together, loading them, and loading them again. */
#ifndef PAWL_TLS_SETUP_H
#define PAWL_TLS_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options;
struct tls_config;

struct tls_setup {            /* zeroed: nothing */
    struct tls_config *front; /* of the tls: addresses; NULL: there are none */
    struct tls_config *redis; /* of a Redis that is spoken to with TLS; NULL: it isn't */
};

/* Whether the options fit together and their files can be used, without keeping any. `redis`: the store's URL asks for TLS. Returns 0, or -1 with a sentence. */
int tls_setup_check(const struct options *o, bool redis, char *problem, size_t cap);

/* Whether each client of the tls: addresses has to show a certificate. */
bool tls_setup_knows_clients(const struct options *o);

/* Loads what the options ask for; borrows their paths for the life of the setup. Returns 0, or -1 with a sentence and nothing loaded. */
int tls_setup_load(struct tls_setup *setup, const struct options *o, bool redis, char *problem, size_t cap);
void tls_setup_free(struct tls_setup *setup);

/* Reads the files again. What can't be loaded stays as it was; either way a line in the log says so. */
void tls_setup_reload(struct tls_setup *setup);

/* Says in the log what is loaded and yet needs somebody's attention: a key that all may read, a certificate that ends within two weeks. */
void tls_setup_look(const struct tls_setup *setup);

/* When the certificate that clients are shown ends, in seconds since 1970; 0 without one. */
uint64_t tls_setup_expiry(const struct tls_setup *setup);

#endif
