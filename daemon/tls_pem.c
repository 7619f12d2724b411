/* A PEM file ends where nothing in it begins any more, which OpenSSL tells as an error (NO_START_LINE): after the first certificate that is the ordinary end,
 * and anything else is damage. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/tls_pem.h"

#include <stdbool.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

/* Reads the bytes where they are. */
static BIO *open_pem(const struct small_file *pem)
{
    return BIO_new_mem_buf(pem->bytes, (int)pem->len); /* small, by its name */
}

static bool at_end(void)
{
    unsigned long error = ERR_peek_last_error();

    if (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE)
        return false;
    ERR_clear_error();
    return true;
}

/* ---- our own ---- */

static int use_certificate(SSL_CTX *context, BIO *in)
{
    X509 *own = PEM_read_bio_X509_AUX(in, NULL, SSL_CTX_get_default_passwd_cb(context), NULL);
    int result = own && SSL_CTX_use_certificate(context, own) == 1 && ERR_peek_error() == 0 ? 0 : -1;

    X509_free(own);
    return result;
}

static int use_followers(SSL_CTX *context, BIO *in)
{
    X509 *next;

    while ((next = PEM_read_bio_X509(in, NULL, SSL_CTX_get_default_passwd_cb(context), NULL)) != NULL) {
        if (SSL_CTX_add0_chain_cert(context, next) != 1) {
            X509_free(next);
            return -1;
        }
    }
    return at_end() ? 0 : -1;
}

int tls_pem_use_chain(SSL_CTX *context, const struct small_file *pem)
{
    BIO *in = open_pem(pem);
    int result = in && use_certificate(context, in) == 0 && use_followers(context, in) == 0 ? 0 : -1;

    BIO_free(in);
    return result;
}

int tls_pem_use_key(SSL_CTX *context, const struct small_file *pem)
{
    BIO *in = open_pem(pem);
    EVP_PKEY *key = in ? PEM_read_bio_PrivateKey(in, NULL, SSL_CTX_get_default_passwd_cb(context), NULL) : NULL;
    int result = key && SSL_CTX_use_PrivateKey(context, key) == 1 ? 0 : -1;

    EVP_PKEY_free(key);
    BIO_free(in);
    return result;
}

/* ---- authorities ---- */

static int trust_each(X509_STORE *store, const STACK_OF(X509_INFO) * found)
{
    int trusted = 0;

    for (int i = 0; i < sk_X509_INFO_num(found); i++) {
        const X509_INFO *info = sk_X509_INFO_value(found, i);

        if ((info->x509 && X509_STORE_add_cert(store, info->x509) != 1) || (info->crl && X509_STORE_add_crl(store, info->crl) != 1))
            return -1;
        trusted += info->x509 || info->crl;
    }
    if (trusted == 0)
        ERR_raise(ERR_LIB_X509, X509_R_NO_CERTIFICATE_OR_CRL_FOUND);
    return trusted > 0 ? 0 : -1;
}

int tls_pem_trust(SSL_CTX *context, const struct small_file *pem)
{
    BIO *in = open_pem(pem);
    STACK_OF(X509_INFO) *found = in ? PEM_X509_INFO_read_bio(in, NULL, NULL, NULL) : NULL;
    int result = found ? trust_each(SSL_CTX_get_cert_store(context), found) : -1;

    sk_X509_INFO_pop_free(found, X509_INFO_free);
    BIO_free(in);
    return result;
}

static bool is_named(const STACK_OF(X509_NAME) * names, const X509_NAME *name)
{
    for (int i = 0; i < sk_X509_NAME_num(names); i++)
        if (X509_NAME_cmp(sk_X509_NAME_value(names, i), name) == 0)
            return true;
    return false;
}

static int name_authority(SSL_CTX *context, X509 *authority)
{
    return is_named(SSL_CTX_get_client_CA_list(context), X509_get_subject_name(authority)) || SSL_CTX_add_client_CA(context, authority) == 1
               ? 0
               : -1;
}

int tls_pem_name_authorities(SSL_CTX *context, const struct small_file *pem)
{
    BIO *in = open_pem(pem);
    int result = in ? 0 : -1;
    X509 *authority;
    bool any = false;

    while (result == 0 && (authority = PEM_read_bio_X509(in, NULL, NULL, NULL)) != NULL) {
        result = name_authority(context, authority);
        X509_free(authority);
        any = true;
    }
    BIO_free(in);
    if (result == 0 && any)
        ERR_clear_error(); /* what ended the reading; damage is told by tls_pem_trust */
    return any ? result : -1;
}
