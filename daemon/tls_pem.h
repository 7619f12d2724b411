/* PEM text into a context of OpenSSL's: what its functions of the same purpose do with a path, done with bytes, so that pawld reads its files in one way
 * (small_file.h) and what was looked at is what is used.
 *
 * All return 0, or -1 with OpenSSL's last error saying why. What a failure has put into the context stays there: a context that failed is given up.
 */
#ifndef PAWL_TLS_PEM_H
#define PAWL_TLS_PEM_H

#include "daemon/small_file.h"

struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

/* Our certificate, and those that lead to its authority, in this order. */
int tls_pem_use_chain(struct ssl_ctx_st *context, const struct small_file *pem);

/* Its key. One with a passphrase is asked for by the context's own way, which pawld sets to answer nothing. */
int tls_pem_use_key(struct ssl_ctx_st *context, const struct small_file *pem);

/* Whom to trust: certificates, and lists of revoked ones. */
int tls_pem_trust(struct ssl_ctx_st *context, const struct small_file *pem);

/* The names of these certificates, each once, are told to clients as the authorities that are wanted. */
int tls_pem_name_authorities(struct ssl_ctx_st *context, const struct small_file *pem);

#endif
