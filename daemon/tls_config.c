/* A configuration is one SSL_CTX, made anew by each load and put in the place of the old one when it is whole. OpenSSL counts who uses a context, so the
 * connections that were made with the old one end it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/tls_config.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "daemon/small_file.h"
#include "daemon/tls_pem.h"

#define FILE_BYTES_MAX ((size_t)4 * 1024 * 1024) /* the list of all public authorities is a twentieth of it */

struct tls_role {
    bool is_server;
    const char *cert, *key, *ca; /* the options, as people give them */
};

static const struct tls_role server_role = {true, "--tls-cert", "--tls-key", "--tls-client-ca"};
static const struct tls_role client_role = {false, "--redis-cert", "--redis-key", "--redis-ca"};

struct tls_config {
    const struct tls_role *role;
    struct tls_files files;
    SSL_CTX *context; /* NULL: nothing is loaded */
    int64_t expiry_s;
    bool key_is_exposed;
};

static struct tls_config *config_new(const struct tls_role *role, const struct tls_files *files)
{
    struct tls_config *config = calloc(1, sizeof(*config));

    if (config) {
        config->role = role;
        config->files = *files;
    }
    return config;
}

struct tls_config *tls_config_new_server(const struct tls_files *files)
{
    return config_new(&server_role, files);
}

struct tls_config *tls_config_new_client(const struct tls_files *files)
{
    return config_new(&client_role, files);
}

void tls_config_free(struct tls_config *config)
{
    if (!config)
        return;
    SSL_CTX_free(config->context);
    free(config);
}

/* ---- problems as sentences ---- */

/* What OpenSSL says of the last failure, or what the system says when it has nothing to say. */
static const char *reason(void)
{
    unsigned long error = ERR_peek_last_error();
    const char *text;

    if (ERR_GET_LIB(error) == ERR_LIB_SYS)
        return strerror(ERR_GET_REASON(error));
    text = error ? ERR_reason_error_string(error) : NULL;
    return text ? text : "it cannot be used";
}

/* Of a file that is there and that OpenSSL could not use. */
static int file_problem(const char *option, const char *path, const char *what, char *problem, size_t cap)
{
    snprintf(problem, cap, "%s: %s: %s (%s)", option, path, what, reason());
    return -1;
}

/* ---- the files ---- */

struct tls_bytes { /* of each file of the configuration; zero: there is none */
    struct small_file cert, key, ca;
};

static int read_file(const char *option, const char *path, struct small_file *ret, char *problem, size_t cap)
{
    char why[128];

    if (!path || small_file_read(path, FILE_BYTES_MAX, ret, why, sizeof(why)) == 0)
        return 0;
    snprintf(problem, cap, "%s: %s: %s", option, path, why);
    return -1;
}

static int read_files(const struct tls_config *config, struct tls_bytes *ret, char *problem, size_t cap)
{
    const struct tls_role *role = config->role;
    const struct tls_files *files = &config->files;

    return read_file(role->cert, files->cert, &ret->cert, problem, cap) == 0 &&
                   read_file(role->key, files->key, &ret->key, problem, cap) == 0 &&
                   read_file(role->ca, files->ca, &ret->ca, problem, cap) == 0
               ? 0
               : -1;
}

static void wipe_files(struct tls_bytes *bytes)
{
    small_file_wipe(&bytes->cert);
    small_file_wipe(&bytes->key);
    small_file_wipe(&bytes->ca);
}

/* A key that has no file of its own stands with its certificate. */
static const struct small_file *key_of(const struct tls_bytes *bytes)
{
    return bytes->key.bytes ? &bytes->key : &bytes->cert;
}

/* ---- the parts of a context ---- */

/* A key with a passphrase would be asked for on the terminal. */
static int no_passphrase(char *to, int cap, int writing, void *arg)
{
    (void)to;
    (void)cap;
    (void)writing;
    (void)arg;
    return -1;
}

/* HTTP/1.1 where the client offers it; a client that offers only what pawld does not speak is told nothing, and will see. */
static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_len, const unsigned char *offered, unsigned len,
                           void *arg)
{
    static const unsigned char http[] = "\x08http/1.1";
    unsigned char *chosen, chosen_len;

    (void)ssl;
    (void)arg;
    if (SSL_select_next_proto(&chosen, &chosen_len, http, sizeof(http) - 1, offered, len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *ret = chosen;
    *ret_len = chosen_len;
    return SSL_TLSEXT_ERR_OK;
}

/* An end without close_notify counts as an end (IGNORE_UNEXPECTED_EOF): what travels here says its own lengths, so nothing can be cut short unseen. */
static int set_manners(SSL_CTX *context)
{
    (void)SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
    (void)SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(context, 1); /* one system call for all that is there, instead of two for each record */
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    SSL_CTX_set_security_level(context, 2);
    return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1 ? 0 : -1;
}

static int load_own(struct tls_config *config, SSL_CTX *context, const struct tls_bytes *bytes, char *problem, size_t cap)
{
    const struct tls_role *role = config->role;
    const char *cert = config->files.cert, *key = config->files.key ? config->files.key : cert;
    const char *key_option = config->files.key ? role->key : role->cert;

    if (tls_pem_use_chain(context, &bytes->cert) != 0)
        return file_problem(role->cert, cert, "there is no certificate in it that can be used", problem, cap);
    if (tls_pem_use_key(context, key_of(bytes)) == 0)
        return 0;
    if (ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH) {
        snprintf(problem, cap, "%s: %s: this is not the key of the certificate in %s", key_option, key, cert);
        return -1;
    }
    return file_problem(key_option, key, "there is no private key in it that can be used; a passphrase cannot be given", problem, cap);
}

/* The names are sent to clients, so that one with several certificates knows which is wanted. */
static int load_client_authority(struct tls_config *config, SSL_CTX *context, const struct tls_bytes *bytes, char *problem, size_t cap)
{
    int mode = SSL_VERIFY_PEER | (config->files.client_auth == TLS_CLIENT_AUTH_REQUIRED ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0);

    if (tls_pem_name_authorities(context, &bytes->ca) != 0 || tls_pem_trust(context, &bytes->ca) != 0)
        return file_problem(config->role->ca, config->files.ca, "there is no certificate in it that can be used", problem, cap);
    SSL_CTX_set_verify(context, mode, NULL);
    return 0;
}

static int load_server_authority(struct tls_config *config, SSL_CTX *context, const struct tls_bytes *bytes, char *problem, size_t cap)
{
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (!config->files.ca) {
        if (SSL_CTX_set_default_verify_paths(context) == 1)
            return 0;
        snprintf(problem, cap, "%s is not given, and the system's own list of authorities cannot be used", config->role->ca);
        return -1;
    }
    if (tls_pem_trust(context, &bytes->ca) != 0)
        return file_problem(config->role->ca, config->files.ca, "there is no certificate in it that can be used", problem, cap);
    return 0;
}

static int load_server(struct tls_config *config, SSL_CTX *context, const struct tls_bytes *bytes, char *problem, size_t cap)
{
    (void)SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    if (load_own(config, context, bytes, problem, cap) != 0)
        return -1;
    return config->files.ca ? load_client_authority(config, context, bytes, problem, cap) : 0;
}

static int load_client(struct tls_config *config, SSL_CTX *context, const struct tls_bytes *bytes, char *problem, size_t cap)
{
    if (config->files.cert && load_own(config, context, bytes, problem, cap) != 0)
        return -1;
    return load_server_authority(config, context, bytes, problem, cap);
}

static int64_t expiry_of(const SSL_CTX *context)
{
    const X509 *own = SSL_CTX_get0_certificate(context);
    struct tm tm;

    return own && ASN1_TIME_to_tm(X509_get0_notAfter(own), &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

/* Puts a new context in the place of the old one, if it is whole. */
static int load(struct tls_config *config, const struct tls_bytes *bytes, char *problem, size_t cap)
{
    SSL_CTX *context;
    int result;

    ERR_clear_error();
    context = SSL_CTX_new(config->role->is_server ? TLS_server_method() : TLS_client_method());
    if (!context || set_manners(context) != 0) {
        snprintf(problem, cap, "TLS cannot be set up: %s", reason());
        result = -1;
    } else {
        result =
            config->role->is_server ? load_server(config, context, bytes, problem, cap) : load_client(config, context, bytes, problem, cap);
    }
    ERR_clear_error();
    if (result != 0) {
        SSL_CTX_free(context);
        return -1;
    }
    SSL_CTX_free(config->context);
    config->context = context;
    config->expiry_s = expiry_of(context);
    config->key_is_exposed = (key_of(bytes)->mode & S_IROTH) != 0;
    return 0;
}

int tls_config_load(struct tls_config *config, char *problem, size_t cap)
{
    struct tls_bytes bytes = {0};
    int result = read_files(config, &bytes, problem, cap);

    if (result == 0)
        result = load(config, &bytes, problem, cap);
    wipe_files(&bytes);
    return result;
}

int64_t tls_config_expiry(const struct tls_config *config)
{
    return config->expiry_s;
}

const char *tls_config_cert(const struct tls_config *config)
{
    return config->files.cert;
}

const char *tls_config_exposed_key(const struct tls_config *config)
{
    return !config->key_is_exposed ? NULL : config->files.key ? config->files.key : config->files.cert;
}

/* ---- one end of a connection ---- */

static bool is_address(const char *host)
{
    unsigned char ignored[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, host, ignored) == 1 || inet_pton(AF_INET6, host, ignored) == 1;
}

/* The certificate must be that of the host which was asked for. Servers are told a name, never an address (RFC 6066). */
static int expect_host(SSL *ssl, const char *host)
{
    char address[64];

    snprintf(address, sizeof(address), "%.*s", (int)strcspn(host, "%"), host); /* an IPv6 zone is ours alone */
    if (is_address(address))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), address) == 1 ? 0 : -1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1 ? 0 : -1;
}

struct ssl_st *tls_config_begin(const struct tls_config *config, const char *host)
{
    SSL *ssl = config->context ? SSL_new(config->context) : NULL;

    if (ssl && host && expect_host(ssl, host) != 0) {
        SSL_free(ssl);
        ssl = NULL;
    }
    if (ssl && config->role->is_server)
        SSL_set_accept_state(ssl);
    else if (ssl)
        SSL_set_connect_state(ssl);
    return ssl;
}
