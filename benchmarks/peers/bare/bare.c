// bare: the least that a broker can do for blaster's requests, as a yardstick. See README.md.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PRODUCE_KEY = 0, CONNS_MAX = 1100, PARTITIONS_MAX = 64, ROOM = 4 << 20, HEADER = 22, BATCH_HEADER = 61 };

static const char *topic;
static int epoll_fd, partitions, files[PARTITIONS_MAX];
static int64_t sizes[PARTITIONS_MAX];          // bytes in each file
static int64_t batch_bytes, batch_records;     // fetch: every batch of the files is like the first

typedef struct {
    int fd, file;
    size_t have;
    off_t at;
    size_t left, tail;       // what is still to be sent of a reply: bytes of the file, bytes after them
    bool waiting, polls;     // waits for room in the socket; waits for the next batch of its partition
    int polled;
    uint8_t correlation[4];
    uint8_t *data;
} Peer;
static Peer peers[CONNS_MAX];

static void check(bool fine, const char *what) {
    if (fine) return;
    fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
    exit(1);
}
static int64_t number(const uint8_t *p, int bytes) {
    int64_t v = (int8_t)p[0];
    for (int i = 1; i < bytes; i++) v = (int64_t)((uint64_t)v << 8 | p[i]);
    return v;
}
static uint8_t *put(uint8_t *p, int64_t v, int bytes) {
    uint64_t be = htobe64((uint64_t)v);
    memcpy(p, (uint8_t *)&be + 8 - bytes, bytes);
    return p + bytes;
}
static uint8_t *put_uvarint(uint8_t *p, uint64_t v) {
    for (; v >= 0x80; v >>= 7) *p++ = (uint8_t)(v | 0x80);
    *p++ = (uint8_t)v;
    return p;
}
static uint8_t *put_topic(uint8_t *p) {
    p = put_uvarint(p, 2);                      // one topic
    p = put_uvarint(p, strlen(topic) + 1);
    memcpy(p, topic, strlen(topic));
    return put_uvarint(p + strlen(topic), 2);   // one partition
}
static void watch(Peer *p, uint32_t events, int how) {
    struct epoll_event e = {.events = events, .data.ptr = p};
    check(!epoll_ctl(epoll_fd, how, p->fd, &e), "epoll_ctl");
}
static void send_all(Peer *p, const uint8_t *data, size_t size, int flags) {
    check(send(p->fd, data, size, MSG_NOSIGNAL | flags) == (ssize_t)size, "send");
}

// ------------------------------------------------------------------ fetch v12

static void send_rest(Peer *p) {
    while (p->left) {
        ssize_t n = sendfile(p->fd, p->file, &p->at, p->left);
        if (n < 0 && errno == EAGAIN) {
            if (!p->waiting) watch(p, EPOLLOUT, EPOLL_CTL_MOD);
            p->waiting = true;
            return;
        }
        check(n > 0, "sendfile");
        p->left -= n;
    }
    if (p->tail) send_all(p, (const uint8_t[3]){0}, p->tail, 0);
    p->tail = 0;
    if (p->waiting) watch(p, EPOLLIN, EPOLL_CTL_MOD);
    p->waiting = false;
}
static void answer_fetch(Peer *p, int partition, int64_t position, int64_t size) {
    int64_t end = batch_bytes ? sizes[partition] / batch_bytes * batch_records : 0;
    uint8_t reply[256], *at = reply + 4;
    memcpy(at, p->correlation, 4);
    at = put(at + 4, 0, 1);
    at = put(put(put(at, 0, 4), 0, 2), 0, 4);   // throttle time, error, session
    at = put_topic(at);
    at = put(put(put(put(put(at, partition, 4), 0, 2), end, 8), end, 8), 0, 8);
    at = put(put_uvarint(at, 0), -1, 4);        // no aborted transactions, no other replica
    at = put_uvarint(at, size + 1);
    put(reply, at - reply - 4 + size + 3, 4);
    send_all(p, reply, at - reply, MSG_MORE);
    p->file = files[partition], p->at = position, p->left = size, p->tail = 3;
    send_rest(p);
}
static void fetch(Peer *p, const uint8_t *frame) {
    const uint8_t *asked = frame + HEADER + 25 + 1 + 1 + strlen(topic) + 1;
    int partition = (int)number(asked, 4);
    check(partition >= 0 && partition < partitions, "a partition that is not there");
    int64_t position = batch_bytes ? number(asked + 8, 8) / batch_records * batch_bytes : 0;
    int64_t size = number(asked + 28, 4), there = sizes[partition] - position;
    if (size > there) size = there > 0 ? there : 0;
    memcpy(p->correlation, frame + 8, 4);
    p->polls = size == 0 && number(frame + HEADER + 4, 4) > 0;  // until a batch comes; no timeout here
    p->polled = partition;
    if (!p->polls) answer_fetch(p, partition, position, size);
}
static void wake(int partition, int64_t position, int64_t size) {
    for (Peer *p = peers; p < peers + CONNS_MAX; p++) {
        if (!p->data || !p->polls || p->polled != partition) continue;
        p->polls = false;
        answer_fetch(p, partition, position, size);
    }
}

// ------------------------------------------------------------------ produce v9

static void produce(Peer *p, uint8_t *frame, size_t frame_size) {
    uint8_t *at = frame + HEADER + 1 + 2 + 4 + 1 + 1 + strlen(topic) + 1;
    int partition = (int)number(at, 4);
    check(partition >= 0 && partition < partitions, "a partition that is not there");
    for (at += 4; *at & 0x80; at++) {}          // the length
    uint8_t *batch = at + 1;
    size_t size = frame + frame_size - 3 - batch;
    uint64_t crc = 0xffffffff;
    size_t i = 21;
    for (; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, batch + i, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; i < size; i++) crc = _mm_crc32_u8((uint32_t)crc, batch[i]);
    check(((uint32_t)crc ^ 0xffffffff) == (uint32_t)number(batch + 17, 4), "CRC");
    check(pwrite(files[partition], batch, size, sizes[partition]) == (ssize_t)size, "pwrite");
    sizes[partition] += size;
    if (!batch_bytes) batch_bytes = size, batch_records = number(batch + 57, 4);
    uint8_t reply[256], *out = reply + 4;
    memcpy(out, frame + 8, 4);
    out = put_topic(put(out + 4, 0, 1));
    out = put(put(put(put(put(out, partition, 4), 0, 2), 0, 8), -1, 8), 0, 8);
    out = put(put(put(put(put(put(out, 1, 1), 0, 1), 0, 1), 0, 1), 0, 4), 0, 1);
    put(reply, out - reply - 4, 4);
    send_all(p, reply, out - reply, 0);
    wake(partition, sizes[partition] - size, size);
}

// ------------------------------------------------------------------ the loop

static void serve(Peer *p) {
    ssize_t n = recv(p->fd, p->data + p->have, ROOM - p->have, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        close(p->fd);
        free(p->data);
        p->data = NULL;
        return;
    }
    p->have += n;
    size_t at = 0;
    while (p->have - at >= HEADER) {
        size_t size = 4 + number(p->data + at, 4);
        check(size <= ROOM, "a request that is too large");
        if (p->have - at < size) break;
        if (number(p->data + at + 4, 2) == PRODUCE_KEY) produce(p, p->data + at, size);
        else fetch(p, p->data + at);
        at += size;
    }
    if (at) memmove(p->data, p->data + at, p->have - at);
    p->have -= at;
}
static void welcome(int listener) {
    Peer *p = peers;
    while (p < peers + CONNS_MAX && p->data) p++;
    check(p < peers + CONNS_MAX, "too many connections");
    *p = (Peer){.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), .data = malloc(ROOM)};
    check(p->fd >= 0 && p->data, "accept");
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    watch(p, EPOLLIN, EPOLL_CTL_ADD);
}
int main(int argc, char **argv) {
    if (argc < 3 || argc > 2 + PARTITIONS_MAX) {
        fputs("usage: bare TOPIC SEGMENT_FILE...   (one file a partition; made if it is not there)\n", stderr);
        return 1;
    }
    topic = argv[1];
    partitions = argc - 2;
    for (int i = 0; i < partitions; i++) {
        struct stat facts;
        check((files[i] = open(argv[2 + i], O_RDWR | O_CREAT, 0600)) >= 0 && !fstat(files[i], &facts), argv[2 + i]);
        sizes[i] = facts.st_size;
    }
    uint8_t head[BATCH_HEADER];
    if (pread(files[0], head, BATCH_HEADER, 0) == BATCH_HEADER)
        batch_bytes = 12 + number(head + 8, 4), batch_records = number(head + 57, 4);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(!bind(listener, (void *)&address, size) && !listen(listener, CONNS_MAX), "listen");
    check(!getsockname(listener, (void *)&address, &size), "getsockname");
    check((epoll_fd = epoll_create1(0)) >= 0, "epoll_create1");
    watch(&(Peer){.fd = listener}, EPOLLIN, EPOLL_CTL_ADD);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    check(!epoll_ctl(epoll_fd, EPOLL_CTL_MOD, listener, &e), "epoll_ctl");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event events[64];
    for (;;) {
        int n = epoll_wait(epoll_fd, events, 64, -1);
        for (int i = 0; i < n; i++) {
            Peer *p = events[i].data.ptr;
            if (!p) welcome(listener);
            else if (events[i].events & EPOLLOUT) send_rest(p);
            else serve(p);
        }
    }
}
