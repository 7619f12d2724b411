#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static void take_ipv4(struct peer *peer, const struct sockaddr_in *in)
{
    char text[INET_ADDRSTRLEN] = "";

    peer->address[10] = peer->address[11] = 0xff;
    memcpy(peer->address + 12, &in->sin_addr, 4);
    inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
    snprintf(peer->text, sizeof(peer->text), "%s:%u", text, (unsigned)ntohs(in->sin_port));
}

static void take_ipv6(struct peer *peer, const struct sockaddr_in6 *in6)
{
    char text[INET6_ADDRSTRLEN] = "";

    memcpy(peer->address, &in6->sin6_addr, 16);
    inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
    snprintf(peer->text, sizeof(peer->text), "[%s]:%u", text, (unsigned)ntohs(in6->sin6_port));
}

void peer_init(struct peer *ret, const struct sockaddr *address)
{
    memset(ret, 0, sizeof(*ret));
    ret->kind = PEER_TCP;
    if (address->sa_family == AF_INET) {
        take_ipv4(ret, (const struct sockaddr_in *)(const void *)address);
    } else if (address->sa_family == AF_INET6) {
        take_ipv6(ret, (const struct sockaddr_in6 *)(const void *)address);
    } else {
        ret->kind = PEER_UNIX;
        snprintf(ret->text, sizeof(ret->text), "unix");
    }
}

void peer_learn_ids(struct peer *peer, int fd)
{
    struct ucred credentials;
    socklen_t len = sizeof(credentials);

    if (peer->kind != PEER_UNIX || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &len) != 0) {
        return;
    }
    peer->has_ids = true;
    peer->uid = credentials.uid;
    peer->gid = credentials.gid;
    peer->pid = credentials.pid;
    snprintf(peer->text, sizeof(peer->text), "unix:uid=%lu,pid=%ld", (unsigned long)peer->uid, (long)peer->pid);
}
