#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/tls_setup.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/log.h"
#include "daemon/options.h"
#include "daemon/tls_config.h"

#define NEAR_S INT64_C(1209600) /* two weeks */

static struct tls_files front_files(const struct options *o)
{
    return (struct tls_files){
        .cert = o->tls_cert, .key = o->tls_key, .ca = o->tls_client_ca, .client_auth = (enum tls_client_auth)o->tls_client_auth};
}

static struct tls_files redis_files(const struct options *o)
{
    return (struct tls_files){.cert = o->redis_cert, .key = o->redis_key, .ca = o->redis_ca};
}

static bool listens_with_tls(const struct options *o)
{
    for (size_t i = 0; i < o->listen_count; i++)
        if (strncmp(o->listen[i], "tls:", strlen("tls:")) == 0)
            return true;
    return false;
}

/* An option that would have no effect is an error: whoever gave it believes that something is encrypted or checked which is not. */
static const char *contradiction(const struct options *o, bool redis)
{
    if (listens_with_tls(o) && !o->tls_cert)
        return "--listen tls: needs a certificate: --tls-cert FILE, and --tls-key FILE";
    if (!listens_with_tls(o) && (o->tls_cert || o->tls_key || o->tls_client_ca))
        return "--tls-cert, --tls-key and --tls-client-ca are for addresses that begin with tls:, and --listen names none";
    if (o->tls_client_auth == TLS_CLIENT_AUTH_OPTIONAL && !o->tls_client_ca)
        return "--tls-client-auth optional is for client certificates, and there is no --tls-client-ca to check them with";
    if (!redis && (o->redis_ca || o->redis_cert || o->redis_key))
        return "--redis-ca, --redis-cert and --redis-key are for a rediss:// URL, and --redis is none";
    if (o->redis_key && !o->redis_cert)
        return "--redis-key is of no use without --redis-cert";
    return NULL;
}

bool tls_setup_knows_clients(const struct options *o)
{
    return o->tls_client_ca && o->tls_client_auth == TLS_CLIENT_AUTH_REQUIRED;
}

static int load_new(struct tls_config *tls, struct tls_config **ret, char *problem, size_t cap)
{
    if (!tls) {
        snprintf(problem, cap, "out of memory");
        return -1;
    }
    if (tls_config_load(tls, problem, cap) != 0) {
        tls_config_free(tls);
        return -1;
    }
    *ret = tls;
    return 0;
}

int tls_setup_load(struct tls_setup *setup, const struct options *o, bool redis, char *problem, size_t cap)
{
    const struct tls_files front_paths = front_files(o), redis_paths = redis_files(o);

    if (o->tls_cert && load_new(tls_config_new_server(&front_paths), &setup->front, problem, cap) != 0)
        return -1;
    if (redis && load_new(tls_config_new_client(&redis_paths), &setup->redis, problem, cap) != 0) {
        tls_setup_free(setup);
        return -1;
    }
    return 0;
}

void tls_setup_free(struct tls_setup *setup)
{
    tls_config_free(setup->front);
    tls_config_free(setup->redis);
    setup->front = setup->redis = NULL;
}

int tls_setup_check(const struct options *o, bool redis, char *problem, size_t cap)
{
    const char *wrong = contradiction(o, redis);
    struct tls_setup setup = {0};
    int result;

    if (wrong) {
        snprintf(problem, cap, "%s", wrong);
        return -1;
    }
    result = tls_setup_load(&setup, o, redis, problem, cap);
    tls_setup_free(&setup);
    return result;
}

/* ---- later ---- */

static void look_at(const struct tls_config *tls)
{
    int64_t ends_s = tls_config_expiry(tls), left_s = ends_s - (int64_t)time(NULL);

    if (tls_config_exposed_key(tls))
        log_warn("tls_key_exposed", LOG_STR("file", tls_config_exposed_key(tls)));
    if (ends_s != 0 && left_s < NEAR_S)
        log_warn("tls_certificate_expires", LOG_STR("file", tls_config_cert(tls)), LOG_INT("seconds", left_s));
}

void tls_setup_look(const struct tls_setup *setup)
{
    if (setup->front)
        look_at(setup->front);
    if (setup->redis)
        look_at(setup->redis);
}

static void reload(struct tls_config *tls, const char *what)
{
    char problem[512];

    if (!tls)
        return;
    if (tls_config_load(tls, problem, sizeof(problem)) != 0) {
        log_error("tls_not_reloaded", LOG_STR("problem", problem));
        return;
    }
    log_info("tls_reloaded", LOG_STR("for", what), LOG_INT("expiry", tls_config_expiry(tls)));
    look_at(tls);
}

void tls_setup_reload(struct tls_setup *setup)
{
    reload(setup->front, "clients");
    reload(setup->redis, "redis");
}

uint64_t tls_setup_expiry(const struct tls_setup *setup)
{
    return setup->front ? (uint64_t)tls_config_expiry(setup->front) : 0;
}
