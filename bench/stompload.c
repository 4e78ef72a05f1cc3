// stompload: one STOMP 1.2 load generator for every broker, cheap enough to share two cores with the broker it loads.
//
// It decides what is sent, how fast, and what counts as right: each body carries its send time and a sequence number, so every
// message is counted and timed, and each loss, duplicate, disorder or damaged body is seen. It knows nothing about the broker.
// It reads what brokers write: lines end in LF, content-length is optional.
//
// Build: cc -O2 -pthread -o stompload stompload.c        Options: stompload --help
// Prints one JSON object. Exit status 0 when every expected message came, 1 when not, 2 on a failed call, 3 on a refused frame.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STAMP = 16, MARK = 2 * STAMP, WINDOW = 1 << 22, MAX_THREADS = 4096 };

static const char *host = "127.0.0.1", *login = "guest", *passcode = "guest", *vhost = "/", *dest = "/queue/load";
static const char *ack_mode = "auto", *subscribe_headers = "", *send_headers = "";
static int port = 61613, producers = 1, consumers = 1, size = 100, topic = 0, ndest = 1, batch = 64, window = 0, receipt_every = 1;
static int timeout_s = 60, drain_only = 0, send_only = 0, transactions = 0, unique_headers = 0;
static long msgs = 100000;  // for each producer
static double rate = 0;     // messages/s for each producer; 0 is as fast as it goes

static long total, expected;  // messages sent by all producers, deliveries to wait for
static atomic_long received, ready, duplicates, disorder, damaged;
static atomic_ullong first_received, last_received, send_end;
static atomic_int go, failed;
static uint32_t *latency;  // microseconds, one slot for each delivery
static uint8_t *seen;      // one flag for each message; on a topic one for each message and consumer

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(2);
}

static void put_hex(char *out, uint64_t value) {
    for (int i = STAMP - 1; i >= 0; i--, value >>= 4) out[i] = "0123456789abcdef"[value & 15];
}

static uint64_t get_hex(const char *in) {
    uint64_t value = 0;
    for (int i = 0; i < STAMP; i++) value = value << 4 | (in[i] <= '9' ? in[i] - '0' : in[i] - 'a' + 10);
    return value;
}

// ---- connections ----------------------------------------------------------------------------------------------------------

static int dial(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &a.sin_addr);
    if (connect(s, (void *)&a, sizeof a)) die("connect");
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return s;
}

static void put(int s, const char *b, size_t n) {
    while (n) {
        ssize_t k = write(s, b, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) die("write");
        b += k;
        n -= k;
    }
}

// Reads one whole frame and no byte more: deliveries may stand right behind the RECEIPT of a SUBSCRIBE.
static void expect(int s, const char *command) {
    char b[65536];
    size_t n = 0;
    char *nul = 0;
    while (!nul) {
        ssize_t k = recv(s, b + n, sizeof b - 1 - n, MSG_PEEK);
        if (k <= 0) die("read while waiting");
        nul = memchr(b + n, 0, k);
        if (nul) k = nul + 1 - (b + n);
        n += read(s, b + n, k);
    }
    char *p = b + strspn(b, "\r\n");
    if (!strncmp(p, command, strlen(command))) return;
    fprintf(stderr, "wanted %s, got: %.400s\n", command, p);
    exit(3);
}

static int open_session(void) {
    char b[1024];
    int s = dial();
    int n = snprintf(b, sizeof b, "CONNECT\naccept-version:1.2\nhost:%s\nlogin:%s\npasscode:%s\n\n", vhost, login, passcode);
    put(s, b, n + 1);
    expect(s, "CONNECTED");
    return s;
}

static void name_destination(char *out, size_t n, int i) {
    if (ndest > 1) snprintf(out, n, "%s%d", dest, i % ndest);
    else snprintf(out, n, "%s", dest);
}

// "a:b;c:d" from the command line becomes header lines.
static void write_headers(char *out, size_t n, const char *list) {
    snprintf(out, n - 1, "%s", list);
    for (char *c = out; *c; c++)
        if (*c == ';') *c = '\n';
    if (*out) strcat(out, "\n");
}

// ---- consumers ------------------------------------------------------------------------------------------------------------

struct frame {
    char *head, *body;
    size_t body_length, whole;  // whole: all bytes of the frame, the newlines before it included
};

// The first whole frame from p to end, or 0 when more bytes are needed.
static int next_frame(char *p, char *end, struct frame *f) {
    char *start = p;
    while (p < end && (*p == '\n' || *p == '\r')) p++;
    char *gap = memmem(p, end - p, "\n\n", 2);
    if (!gap) return 0;
    f->head = p;
    f->body = gap + 2;
    char *length = memmem(p, gap - p, "\ncontent-length:", 16);
    if (length) {
        f->body_length = strtoul(length + 16, 0, 10);
        if (f->body + f->body_length + 1 > end) return 0;
    } else {
        char *nul = memchr(f->body, 0, end - f->body);
        if (!nul) return 0;
        f->body_length = nul - f->body;
    }
    f->whole = f->body + f->body_length + 1 - start;
    return 1;
}

static void check_message(const struct frame *f, int consumer, uint64_t *last, uint64_t at) {
    if (f->body_length != (size_t)size) {
        damaged++;
        return;
    }
    uint64_t sent = get_hex(f->body), seq = get_hex(f->body + STAMP);
    if (seq >= (uint64_t)total) {
        damaged++;
        return;
    }
    long i = received++;
    if (i < expected) latency[i] = at > sent ? (at - sent) / 1000 : 0;
    if (__atomic_exchange_n(&seen[(topic ? consumer * total : 0) + seq], 1, __ATOMIC_RELAXED)) duplicates++;
    uint64_t *previous = &last[seq / msgs];  // one producer's messages come in their order
    if (seq + 1 < *previous) disorder++;
    *previous = seq + 1;
    uint64_t zero = 0;
    atomic_compare_exchange_strong(&first_received, &zero, at);
    last_received = at;
}

static size_t append_ack(char *acks, size_t n, const struct frame *f) {
    char *id = memmem(f->head, f->body - f->head, "\nack:", 5);
    if (!id) return n;
    id += 5;
    size_t length = (char *)memchr(id, '\n', f->body - id) - id;
    memcpy(acks + n, "ACK\nid:", 7);
    memcpy(acks + n + 7, id, length);
    memcpy(acks + n + 7 + length, "\n\n", 3);
    return n + length + 10;
}

static int open_subscription(int consumer) {
    char d[512], headers[2048], b[4096];
    int s = open_session();
    name_destination(d, sizeof d, consumer);
    write_headers(headers, sizeof headers, subscribe_headers);
    int n = snprintf(b, sizeof b, "SUBSCRIBE\nid:s%d\ndestination:%s\nack:%s\n%sreceipt:r\n\n", consumer, d, ack_mode, headers);
    put(s, b, n + 1);
    expect(s, "RECEIPT");
    struct timeval limit = {.tv_usec = 200000};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return s;
}

static void *consume(void *arg) {
    int id = (int)(intptr_t)arg, s = open_subscription(id);
    int cumulative = !strcmp(ack_mode, "client"), acking = strcmp(ack_mode, "auto") != 0;
    size_t n = 0, cap = WINDOW;
    char *in = malloc(cap), *acks = malloc(WINDOW);
    uint64_t *last = calloc(producers, sizeof *last);
    ready++;
    while (received < expected && !failed) {
        ssize_t k = read(s, in + n, cap - n);
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
        if (k <= 0) {
            fprintf(stderr, "consumer: %s\n", k ? strerror(errno) : "closed by the broker");
            failed = 1;
            break;
        }
        n += k;
        uint64_t at = now();
        size_t done = 0, acked = 0;
        struct frame f;
        while (next_frame(in + done, in + n, &f)) {
            if (!strncmp(f.head, "MESSAGE\n", 8)) {
                check_message(&f, id, last, at);
                if (acked + (f.body - f.head) + 16 > WINDOW) put(s, acks, acked), acked = 0;
                if (acking) acked = append_ack(acks, cumulative ? 0 : acked, &f);
            } else if (!strncmp(f.head, "ERROR\n", 6)) {
                fprintf(stderr, "consumer: %.300s\n", f.head);
                failed = 1;
            }
            done += f.whole;
        }
        if (acked) put(s, acks, acked);
        memmove(in, in + done, n -= done);
        if (n == cap) in = realloc(in, cap *= 2);
    }
    if (acking) {  // what was acknowledged is to be taken in before the connection goes
        put(s, "DISCONNECT\nreceipt:bye\n\n", 25);
        usleep(100000);
    }
    close(s);
    return 0;
}

// ---- producers ------------------------------------------------------------------------------------------------------------

struct batch_head {
    char text[4096];  // what is the same in each SEND
    int length;
};

static size_t append_send(char *out, const struct batch_head *h, int producer, long number, long transaction, int receipt) {
    char *p = mempcpy(out, h->text, h->length);
    if (unique_headers) {
        unsigned long long ms = now() / 1000000;
        p += sprintf(p, "correlation-id:%d-%ld\ntimestamp:%llu\n", producer, number, ms);
    }
    if (transactions) p += sprintf(p, "transaction:t%ld\n", transaction);
    if (receipt) p += sprintf(p, "receipt:%ld\n", number);
    *p++ = '\n';
    put_hex(p, now());
    put_hex(p + STAMP, (uint64_t)producer * msgs + number);
    memset(p + MARK, 'x', size - MARK);
    p += size;
    *p++ = 0;
    return p - out;
}

static void wait_until(uint64_t due) {
    int64_t wait = due - now();
    if (wait <= 0) return;
    struct timespec t = {wait / 1000000000, wait % 1000000000};
    nanosleep(&t, 0);
}

// Takes receipts until fewer than the window are outstanding, all of them when nothing more will be sent.
static void take_receipts(int s, long *outstanding, int all) {
    char b[65536];
    while (*outstanding > 0 && (all || *outstanding >= window) && !failed) {
        ssize_t k = read(s, b, sizeof b - 1);
        if (k > 0) b[k] = 0;
        if (k <= 0 || memmem(b, k, "ERROR\n", 6)) {
            fprintf(stderr, "producer: %.300s\n", k > 0 ? b : "closed by the broker");
            failed = 1;
            return;
        }
        for (ssize_t i = 0; i < k; i++)
            if (!b[i]) --*outstanding;
    }
}

static void say_goodbye(int s) {
    char b[65536];
    struct pollfd pf = {s, POLLIN, 0};
    uint64_t deadline = now() + (uint64_t)timeout_s * 1000000000ull;
    put(s, "DISCONNECT\nreceipt:bye\n\n", 25);
    while (now() < deadline) {
        int k = poll(&pf, 1, 500);
        if (k == 0 && failed) break;
        if (k <= 0) continue;
        ssize_t n = read(s, b, sizeof b - 1);
        if (n <= 0 || memmem(b, n, "bye", 3)) break;
        b[n] = 0;
        if (memmem(b, n, "ERROR\n", 6)) {
            fprintf(stderr, "producer: %.300s\n", b);
            failed = 1;
        }
    }
    close(s);
}

static void *produce(void *arg) {
    int id = (int)(intptr_t)arg, s = open_session();
    char d[512], headers[2048];
    struct batch_head head;
    name_destination(d, sizeof d, id);
    write_headers(headers, sizeof headers, send_headers);
    head.length = snprintf(head.text, sizeof head.text, "SEND\ndestination:%s\ncontent-length:%d\n%s", d, size, headers);
    char *out = malloc((size_t)batch * (size + sizeof head.text) + 1024);
    long sent = 0, outstanding = 0;
    ready++;
    while (!go) usleep(1000);
    uint64_t start = now();
    while (sent < msgs && !failed) {
        size_t n = 0;
        int count = rate > 0 ? 1 : msgs - sent < batch ? (int)(msgs - sent) : batch;
        if (rate > 0) wait_until(start + (uint64_t)(sent * 1e9 / rate));
        if (transactions) n += sprintf(out + n, "BEGIN\ntransaction:t%ld\n\n", sent) + 1;
        for (int k = 0; k < count; k++) {
            int receipt = window && !transactions && (sent + k + 1) % receipt_every == 0;
            n += append_send(out + n, &head, id, sent + k, sent, receipt);
            outstanding += receipt;
        }
        if (transactions) {
            n += sprintf(out + n, "COMMIT\ntransaction:t%ld\nreceipt:c%ld\n\n", sent, sent) + 1;
            outstanding++;
        }
        put(s, out, n);
        sent += count;
        if (window) take_receipts(s, &outstanding, sent == msgs);
    }
    send_end = now();
    say_goodbye(s);
    return 0;
}

// ---- the run --------------------------------------------------------------------------------------------------------------

static const char *usage =
    "stompload [--host H] [--port N] [--login L] [--passcode P] [--vhost V]\n"
    "  --dest D [--ndest N]           destination; with N > 1: D0, D1 ... shared out among producers and consumers\n"
    "  --msgs N --size B              messages of each producer, bytes of each body (at least 32)\n"
    "  --producers N --consumers N    connections; --topic: every consumer gets every message\n"
    "  --ack MODE                     auto, client or client-individual\n"
    "  --batch N                      SEND frames in one write\n"
    "  --window N --receipt-every M   ask a receipt for each M-th SEND, at most N outstanding\n"
    "  --rate R                       messages/s of each producer, one frame in one write\n"
    "  --txn                          each batch in a transaction, committed with a receipt\n"
    "  --unique                       two headers with a new value in each message\n"
    "  --sendhdrs 'k:v;k:v' --subhdrs 'k:v'\n"
    "  --send-only | --drain-only     only fill, or only empty, the queue\n"
    "  --timeout S                    give up S seconds after the last delivery\n";

enum { SEND_ONLY = 1, DRAIN_ONLY, TXN, UNIQUE };

static const struct option options[] = {
    {"host", 1, 0, 'H'},      {"port", 1, 0, 'p'},          {"login", 1, 0, 'l'},     {"passcode", 1, 0, 'k'},
    {"vhost", 1, 0, 'v'},     {"dest", 1, 0, 'd'},          {"ndest", 1, 0, 'D'},     {"msgs", 1, 0, 'm'},
    {"size", 1, 0, 's'},      {"producers", 1, 0, 'P'},     {"consumers", 1, 0, 'C'}, {"ack", 1, 0, 'a'},
    {"topic", 0, 0, 't'},     {"batch", 1, 0, 'b'},         {"window", 1, 0, 'w'},    {"receipt-every", 1, 0, 'r'},
    {"rate", 1, 0, 'R'},      {"subhdrs", 1, 0, 'S'},       {"sendhdrs", 1, 0, 'E'},  {"timeout", 1, 0, 'T'},
    {"txn", 0, 0, TXN},       {"send-only", 0, 0, SEND_ONLY}, {"drain-only", 0, 0, DRAIN_ONLY},
    {"unique", 0, 0, UNIQUE}, {"help", 0, 0, 'h'},          {0}};

static void set_option(int k) {
    switch (k) {
    case 'H': host = optarg; break;
    case 'p': port = atoi(optarg); break;
    case 'l': login = optarg; break;
    case 'k': passcode = optarg; break;
    case 'v': vhost = optarg; break;
    case 'd': dest = optarg; break;
    case 'D': ndest = atoi(optarg); break;
    case 'm': msgs = atol(optarg); break;
    case 's': size = atoi(optarg) < MARK ? MARK : atoi(optarg); break;
    case 'P': producers = atoi(optarg); break;
    case 'C': consumers = atoi(optarg); break;
    case 'a': ack_mode = optarg; break;
    case 't': topic = 1; break;
    case 'b': batch = atoi(optarg); break;
    case 'w': window = atoi(optarg); break;
    case 'r': receipt_every = atoi(optarg); break;
    case 'R': rate = atof(optarg); break;
    case 'S': subscribe_headers = optarg; break;
    case 'E': send_headers = optarg; break;
    case 'T': timeout_s = atoi(optarg); break;
    case TXN: transactions = 1; break;
    case SEND_ONLY: send_only = 1; break;
    case DRAIN_ONLY: drain_only = 1; break;
    case UNIQUE: unique_headers = 1; break;
    default: fputs(usage, k == 'h' ? stdout : stderr); exit(k == 'h' ? 0 : 2);
    }
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// Waits for the last delivery (or the last send), or for silence as long as the timeout.
static void watch(void) {
    long before = -1;
    uint64_t changed = now(), limit = (uint64_t)timeout_s * 1000000000ull;
    while ((consumers ? received + damaged < expected : !send_end) && !failed) {
        usleep(2000);
        if (received != before) before = received, changed = now();
        if (consumers && (send_end || drain_only) && now() - changed > limit) failed = 2;
    }
}

static void report(uint64_t start) {
    long got = received < expected ? received : expected;
    if (got) qsort(latency, got, sizeof *latency, ascending);
    uint64_t end = consumers ? last_received : send_end;
    double seconds = end ? (end - (drain_only ? first_received : start)) / 1e9 : 0, sending = send_end ? (send_end - start) / 1e9 : 0;
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    double cpu = u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    printf("{\"sent\": %ld, \"expected\": %ld, \"received\": %ld, \"duplicates\": %ld, \"disorder\": %ld, \"damaged\": %ld, ", (long)total, expected, (long)received,
           (long)duplicates, (long)disorder, (long)damaged);
    printf("\"seconds\": %.3f, \"msgs_per_s\": %.0f, \"send_per_s\": %.0f, ", seconds, seconds > 0 ? (consumers ? got : total) / seconds : 0,
           sending > 0 ? total / sending : 0);
    printf("\"lat_ms_p50\": %.3f, \"lat_ms_p99\": %.3f, \"lat_ms_max\": %.3f, \"gen_cpu_s\": %.2f, \"failed\": %d}\n",
           got ? latency[got / 2] / 1e3 : 0, got ? latency[(long)(got * .99)] / 1e3 : 0, got ? latency[got - 1] / 1e3 : 0, cpu, (int)failed);
}

int main(int argc, char **argv) {
    static pthread_t threads[MAX_THREADS];
    int k, n = 0;
    while ((k = getopt_long(argc, argv, "h", options, 0)) != -1) set_option(k);
    if (transactions) receipt_every = 1, window = window ? window : 1;
    if (send_only) consumers = 0;
    int senders = drain_only ? 0 : producers;
    if (senders + consumers > MAX_THREADS) fprintf(stderr, "at most %d connections\n", MAX_THREADS), exit(2);
    struct in_addr parsed;
    if (inet_pton(AF_INET, host, &parsed) != 1)
        fprintf(stderr, "--host %s: stompload connects over TCP to the number of an IPv4 address, such as 127.0.0.1; it knows neither unix:// nor names\n", host), exit(2);
    total = (long)producers * msgs;
    expected = consumers ? total * (topic ? consumers : 1) : 0;
    latency = calloc(expected + 1, sizeof *latency);
    seen = calloc((topic ? expected : total) + 1, 1);
    for (int i = 0; i < consumers; i++) pthread_create(&threads[n++], 0, consume, (void *)(intptr_t)i);
    while (!drain_only && ready < consumers) usleep(1000);  // a topic keeps nothing for who comes late
    for (int i = 0; i < senders; i++) pthread_create(&threads[n++], 0, produce, (void *)(intptr_t)i);
    while (ready < consumers + senders) usleep(1000);
    uint64_t start = now();
    go = 1;
    watch();
    if (damaged && !failed) failed = 3;  // consumers wait for sound messages only: tell them that no more will come
    for (int i = 0; i < n; i++) pthread_join(threads[i], 0);
    report(start);
    return failed || received < expected;
}
