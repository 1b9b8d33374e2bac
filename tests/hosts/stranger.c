/* A stranger with libfabric: it sends packets without the job's secret to a rank's endpoint over tcp, whose address it
 * has seen. `stranger ADDRESS PORT SEED`; says how many packets have left. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRY(call)                                                                                       \
    do {                                                                                                \
        int code_ = (int)(call);                                                                        \
        if (code_) {                                                                                    \
            fprintf(stderr, "%s: %s\n", #call, fi_strerror(-code_));                                    \
            return 1;                                                                                   \
        }                                                                                               \
    } while (0)

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *addresses;
    struct fid_cq *queue;
    struct fid_ep *endpoint;
    struct fi_av_attr av = { .type = FI_AV_TABLE };
    struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_CONTEXT, .size = 1024 };
    struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2])) };
    fi_addr_t to;
    inet_pton(AF_INET, argv[1], &peer.sin_addr);
    srandom((unsigned)atoi(argv[3]));
    hints->caps = FI_MSG | FI_RMA;
    hints->ep_attr->type = FI_EP_RDM;
    hints->addr_format = FI_SOCKADDR_IN;
    /* What Outboard takes; others do not get as far as its packets. */
    hints->fabric_attr->prov_name = strdup("tcp");
    TRY(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    TRY(fi_fabric(info->fabric_attr, &fabric, NULL));
    TRY(fi_domain(fabric, info, &domain, NULL));
    TRY(fi_av_open(domain, &av, &addresses, NULL));
    TRY(fi_cq_open(domain, &cq, &queue, NULL));
    TRY(fi_endpoint(domain, info, &endpoint, NULL));
    TRY(fi_ep_bind(endpoint, &addresses->fid, 0));
    TRY(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV));
    TRY(fi_enable(endpoint));
    if (fi_av_insert(addresses, &peer, 1, &to, 0, NULL) != 1)
        return 1;
    static unsigned char packet[20000];
    struct fi_cq_entry done;
    int left = 0;
    for (time_t until = time(NULL) + 1; time(NULL) < until;) {
        size_t length = (size_t)random() % sizeof packet;
        for (size_t i = 0; i < length; i++)
            packet[i] = (unsigned char)random();
        /* Some begin as ours do (MAGIC in transport/wire.rs), with any rank as their source. */
        if (random() % 2 && length >= 8) {
            memcpy(packet, "\x02" "FBO", 4);
            memcpy(packet + 4, &(unsigned){ (unsigned)random() % 8 }, 4);
        }
        ssize_t sent = fi_send(endpoint, packet, length, NULL, to, NULL);
        ssize_t ended;
        while ((ended = fi_cq_read(queue, &done, 1)) == -FI_EAGAIN && sent == 0 && time(NULL) < until)
            ;
        left += ended == 1;
    }
    printf("%d packets\n", left);
    return 0;
}
