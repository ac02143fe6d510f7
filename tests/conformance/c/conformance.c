/* Drives librdkafka's C interface against a running broker and prints one line a case:
 * "ok NAME" or "FAILED NAME: why". Usage: conformance BOOTSTRAP
 *
 * What confluent-kafka's tests do not reach through Python: messages with flags and headers as C
 * hands them over, the legacy consumer, batches of committed offsets. A case that fails leaves
 * its handles behind; the process ends soon after.
 */
#include "rdkafka.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RECORDS 1000
#define BASE_TIMESTAMP_MS 1700000000000LL
#define CASE_SECONDS_MAX 60

static const char *bootstrap;
static char why[1024];
static char topic[128];
static int topics_made;

static int fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    return 0;
}

#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return fail(__VA_ARGS__);                                                              \
    } while (0)

#define MUST_OK(call)                                                                              \
    do {                                                                                           \
        rd_kafka_resp_err_t problem = (call);                                                      \
        MUST(!problem, "%s: %s", #call, rd_kafka_err2str(problem));                                \
    } while (0)

/* A client from pairs of name and value that end with NULL; NULL with `why` when it cannot be. */
static rd_kafka_t *client(rd_kafka_type_t type, void (*delivered)(rd_kafka_t *, const rd_kafka_message_t *, void *),
                          void *opaque, const char *const *settings) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, why, sizeof(why));
    for (; *settings; settings += 2)
        if (rd_kafka_conf_set(conf, settings[0], settings[1], why, sizeof(why)))
            return NULL;
    rd_kafka_conf_set_opaque(conf, opaque);
    if (delivered)
        rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    rd_kafka_t *handle = rd_kafka_new(type, conf, why, sizeof(why));
    if (handle && type == RD_KAFKA_CONSUMER)
        rd_kafka_poll_set_consumer(handle);
    return handle;
}

struct delivery {
    int done;
    int failed;
    int out_of_order;
    int64_t next_offset;
};

static void on_delivery(rd_kafka_t *handle, const rd_kafka_message_t *message, void *opaque) {
    struct delivery *delivery = opaque;
    delivery->done++;
    if (message->err)
        delivery->failed++;
    else if (message->offset >= 0 && message->offset != delivery->next_offset++)
        delivery->out_of_order++;
}

static int create(const char *name, int partitions) {
    const char *none[] = {NULL};
    rd_kafka_t *admin = client(RD_KAFKA_PRODUCER, NULL, NULL, none);
    MUST(admin, "no admin: %s", why);
    snprintf(topic, sizeof(topic), "c-%s-%lld-%d-%d", name, (long long)time(NULL), (int)getpid(), topics_made++);
    rd_kafka_NewTopic_t *wanted = rd_kafka_NewTopic_new(topic, partitions, 1, why, sizeof(why));
    rd_kafka_queue_t *queue = rd_kafka_queue_new(admin);
    rd_kafka_CreateTopics(admin, &wanted, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 30000);
    MUST(event, "CreateTopics was not answered");
    size_t count = 0;
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
    MUST(count == 1 && !rd_kafka_topic_result_error(results[0]), "CreateTopics: %s",
         count ? rd_kafka_err2str(rd_kafka_topic_result_error(results[0])) : "no result");
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_NewTopic_destroy(wanted);
    rd_kafka_destroy(admin);
    return 1;
}

/* Record `i`: every seventh has no key, every eleventh no value, every thirteenth both empty;
 * two headers, one of them null. */
static int has_key(int i) { return i % 7 != 0; }
static int has_value(int i) { return i % 11 != 0; }
static int text_of(char *buffer, const char *kind, int i) {
    return i % 13 == 0 ? 0 : sprintf(buffer, "%s-%d-%0*d", kind, i, i % 200, i);
}

static int send_records(rd_kafka_t *producer, struct delivery *delivery, int partitions, int count) {
    char key[512], value[512], index[16];
    for (int i = 0; i < count; i++) {
        int key_size = text_of(key, "key", i), value_size = text_of(value, "value", i);
        rd_kafka_headers_t *headers = rd_kafka_headers_new(2);
        rd_kafka_header_add(headers, "index", -1, index, sprintf(index, "%d", i));
        rd_kafka_header_add(headers, "nothing", -1, NULL, 0);
        MUST_OK(rd_kafka_producev(
            producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(i % partitions),
            RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_BLOCK),
            RD_KAFKA_V_KEY(has_key(i) ? key : NULL, has_key(i) ? key_size : 0),
            RD_KAFKA_V_VALUE(has_value(i) ? value : NULL, has_value(i) ? value_size : 0),
            RD_KAFKA_V_TIMESTAMP(BASE_TIMESTAMP_MS + i), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END));
        rd_kafka_poll(producer, 0);
    }
    MUST_OK(rd_kafka_flush(producer, 30000));
    MUST(delivery->done == count && !delivery->failed, "%d of %d delivered, %d failed",
         delivery->done, count, delivery->failed);
    return 1;
}

static int send_all(const char *const *settings, int partitions, int count) {
    struct delivery delivery = {0};
    rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, on_delivery, &delivery, settings);
    MUST(producer, "no producer: %s", why);
    if (!send_records(producer, &delivery, partitions, count))
        return 0;
    MUST(partitions > 1 || !delivery.out_of_order, "%d offsets out of order", delivery.out_of_order);
    rd_kafka_destroy(producer);
    return 1;
}

static int same(const void *got, size_t got_size, int there, const char *wanted, int wanted_size) {
    if (!there)
        return got == NULL;
    return got != NULL && got_size == (size_t)wanted_size && !memcmp(got, wanted, got_size);
}

static int is_record(const rd_kafka_message_t *message, int i) {
    char key[512], value[512], index[16];
    int key_size = text_of(key, "key", i), value_size = text_of(value, "value", i);
    MUST(same(message->key, message->key_len, has_key(i), key, key_size), "key of %d differs", i);
    MUST(same(message->payload, message->len, has_value(i), value, value_size), "value of %d differs", i);
    rd_kafka_timestamp_type_t type;
    MUST(rd_kafka_message_timestamp(message, &type) == BASE_TIMESTAMP_MS + i, "timestamp of %d differs", i);
    rd_kafka_headers_t *headers;
    MUST_OK(rd_kafka_message_headers(message, &headers));
    const char *name;
    const void *content;
    size_t size;
    MUST(rd_kafka_header_cnt(headers) == 2, "%zu headers", rd_kafka_header_cnt(headers));
    MUST_OK(rd_kafka_header_get_all(headers, 0, &name, &content, &size));
    MUST(!strcmp(name, "index") && same(content, size, 1, index, sprintf(index, "%d", i)), "header of %d", i);
    MUST_OK(rd_kafka_header_get_all(headers, 1, &name, &content, &size));
    MUST(!strcmp(name, "nothing") && content == NULL, "null header of %d", i);
    return 1;
}

/* Reads `count` messages with a consumer that has its partitions; fills seen[index]. */
static int read_records(rd_kafka_t *consumer, int count, int check, char *seen) {
    time_t deadline = time(NULL) + CASE_SECONDS_MAX;
    for (int got = 0; got < count;) {
        MUST(time(NULL) < deadline, "%d of %d records", got, count);
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 200);
        if (!message)
            continue;
        MUST(!message->err, "consuming: %s", rd_kafka_message_errstr(message));
        rd_kafka_timestamp_type_t type;
        int i = (int)(rd_kafka_message_timestamp(message, &type) - BASE_TIMESTAMP_MS);
        MUST(i >= 0 && i < RECORDS && !seen[i], "record %d came twice or from nowhere", i);
        seen[i] = 1;
        if (check && !is_record(message, i))
            return 0;
        rd_kafka_message_destroy(message);
        got++;
    }
    return 1;
}

static rd_kafka_t *group_consumer(const char *group) {
    const char *settings[] = {"group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
                              "session.timeout.ms", "6000", "heartbeat.interval.ms", "300", NULL};
    return client(RD_KAFKA_CONSUMER, NULL, NULL, settings);
}

static int subscribe(rd_kafka_t *consumer) {
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
    MUST_OK(rd_kafka_subscribe(consumer, topics));
    rd_kafka_topic_partition_list_destroy(topics);
    return 1;
}

static int assign(rd_kafka_t *consumer, int64_t offset) {
    rd_kafka_topic_partition_list_t *partitions = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(partitions, topic, 0)->offset = offset;
    MUST_OK(rd_kafka_assign(consumer, partitions));
    rd_kafka_topic_partition_list_destroy(partitions);
    return 1;
}

static int leave(rd_kafka_t *consumer) {
    MUST_OK(rd_kafka_consumer_close(consumer));
    rd_kafka_destroy(consumer);
    return 1;
}

static int round_trip(const char *codec) {
    const char *settings[] = {"compression.type", codec, "linger.ms", "20", NULL};
    char seen[RECORDS] = {0};
    if (!create(codec, 1) || !send_all(settings, 1, RECORDS))
        return 0;
    rd_kafka_t *consumer = group_consumer(topic);
    MUST(consumer, "no consumer: %s", why);
    return assign(consumer, RD_KAFKA_OFFSET_BEGINNING) && read_records(consumer, RECORDS, 1, seen) &&
           leave(consumer);
}

static int acks(const char *value) {
    const char *settings[] = {"acks", value, NULL};
    char seen[RECORDS] = {0};
    if (!create("acks", 1) || !send_all(settings, 1, RECORDS))
        return 0;
    rd_kafka_t *consumer = group_consumer(topic);
    MUST(consumer, "no consumer: %s", why);
    return assign(consumer, RD_KAFKA_OFFSET_BEGINNING) && read_records(consumer, RECORDS, 1, seen) &&
           leave(consumer);
}

static int idempotent(const char *codec) {
    const char *settings[] = {"enable.idempotence", "true", "compression.type", codec, "batch.num.messages", "50", NULL};
    char seen[RECORDS] = {0};
    if (!create("idempotent", 1) || !send_all(settings, 1, RECORDS))
        return 0;
    rd_kafka_t *consumer = group_consumer(topic);
    MUST(consumer, "no consumer: %s", why);
    return assign(consumer, RD_KAFKA_OFFSET_BEGINNING) && read_records(consumer, RECORDS, 1, seen) &&
           leave(consumer);
}

static int group_shares(const char *unused) {
    const char *settings[] = {NULL};
    char seen[RECORDS] = {0};
    if (!create("group", 4))
        return 0;
    rd_kafka_t *members[2] = {group_consumer(topic), group_consumer(topic)};
    MUST(members[0] && members[1], "no consumers: %s", why);
    if (!subscribe(members[0]) || !subscribe(members[1]))
        return 0;
    time_t deadline = time(NULL) + CASE_SECONDS_MAX;
    for (int counts[2] = {0, 0}; counts[0] != 2 || counts[1] != 2;) {
        MUST(time(NULL) < deadline, "members have %d and %d of 4 partitions", counts[0], counts[1]);
        for (int m = 0; m < 2; m++) {
            rd_kafka_message_t *message = rd_kafka_consumer_poll(members[m], 100);
            MUST(!message || !message->err, "%s", rd_kafka_message_errstr(message));
            MUST(!message, "a message from an empty topic");
            rd_kafka_topic_partition_list_t *assigned;
            MUST_OK(rd_kafka_assignment(members[m], &assigned));
            counts[m] = assigned->cnt;
            rd_kafka_topic_partition_list_destroy(assigned);
        }
    }
    if (!send_all(settings, 4, RECORDS))
        return 0;
    return read_records(members[0], RECORDS / 2, 1, seen) && read_records(members[1], RECORDS / 2, 1, seen) &&
           leave(members[0]) && leave(members[1]);
}

static int group_resumes(const char *unused) {
    const char *settings[] = {"linger.ms", "20", NULL};
    char seen[RECORDS] = {0};
    if (!create("resume", 1) || !send_all(settings, 1, RECORDS))
        return 0;
    rd_kafka_t *first = group_consumer(topic);
    MUST(first && subscribe(first), "no consumer: %s", why);
    if (!read_records(first, 600, 1, seen))
        return 0;
    rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *one = rd_kafka_topic_partition_list_add(offsets, topic, 0);
    one->offset = 600;
    one->metadata = strdup("half way");
    one->metadata_size = 8;
    MUST_OK(rd_kafka_commit(first, offsets, 0));
    MUST_OK(rd_kafka_committed(first, offsets, 10000));
    MUST(one->offset == 600 && one->metadata_size == 8 && !memcmp(one->metadata, "half way", 8),
         "committed %lld", (long long)one->offset);
    rd_kafka_topic_partition_list_destroy(offsets);
    if (!leave(first))
        return 0;
    rd_kafka_t *second = group_consumer(topic);
    MUST(second && subscribe(second), "no consumer: %s", why);
    return read_records(second, 400, 1, seen) && leave(second);
}

static int offsets(const char *unused) {
    const char *settings[] = {"linger.ms", "20", NULL};
    char seen[RECORDS] = {0};
    int64_t low, high;
    if (!create("offsets", 1) || !send_all(settings, 1, RECORDS))
        return 0;
    rd_kafka_t *consumer = group_consumer(topic);
    MUST(consumer, "no consumer: %s", why);
    MUST_OK(rd_kafka_query_watermark_offsets(consumer, topic, 0, &low, &high, 10000));
    MUST(low == 0 && high == RECORDS, "watermarks %lld to %lld", (long long)low, (long long)high);
    rd_kafka_topic_partition_list_t *times = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *one = rd_kafka_topic_partition_list_add(times, topic, 0);
    one->offset = BASE_TIMESTAMP_MS + 700;
    MUST_OK(rd_kafka_offsets_for_times(consumer, times, 10000));
    MUST(one->offset == 700, "offset %lld for the time of record 700", (long long)one->offset);
    one->offset = BASE_TIMESTAMP_MS + RECORDS;
    MUST_OK(rd_kafka_offsets_for_times(consumer, times, 10000));
    MUST(one->offset == RD_KAFKA_OFFSET_END, "offset %lld for a time after the end", (long long)one->offset);
    if (!assign(consumer, 700) || !read_records(consumer, RECORDS - 700, 1, seen))
        return 0;
    memset(seen, 0, sizeof(seen));
    one->offset = 990;
    rd_kafka_error_t *error = rd_kafka_seek_partitions(consumer, times, 10000);
    MUST(!error, "seek: %s", rd_kafka_error_string(error));
    rd_kafka_topic_partition_list_destroy(times);
    return read_records(consumer, 10, 1, seen) && leave(consumer);
}

/* The interface from before consumer groups, which many C programs still use. */
static int legacy_consumer(const char *unused) {
    const char *settings[] = {"linger.ms", "20", NULL}, *none[] = {NULL};
    rd_kafka_message_t *messages[RECORDS];
    if (!create("legacy", 1) || !send_all(settings, 1, RECORDS))
        return 0;
    rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, NULL, NULL, none);
    MUST(consumer, "no consumer: %s", why);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(consumer, topic, NULL);
    MUST(!rd_kafka_consume_start(handle, 0, RD_KAFKA_OFFSET_TAIL(100)), "start: %s",
         rd_kafka_err2str(rd_kafka_last_error()));
    time_t deadline = time(NULL) + CASE_SECONDS_MAX;
    for (int next = RECORDS - 100; next < RECORDS;) {
        MUST(time(NULL) < deadline, "at %d of %d", next, RECORDS);
        ssize_t got = rd_kafka_consume_batch(handle, 0, 200, messages, RECORDS);
        for (ssize_t i = 0; i < got; i++) {
            MUST(!messages[i]->err, "consuming: %s", rd_kafka_message_errstr(messages[i]));
            MUST(messages[i]->offset == next, "offset %lld, wanted %d", (long long)messages[i]->offset, next);
            if (!is_record(messages[i], next++))
                return 0;
            rd_kafka_message_destroy(messages[i]);
        }
    }
    MUST(!rd_kafka_consume_stop(handle, 0), "stop: %s", rd_kafka_err2str(rd_kafka_last_error()));
    rd_kafka_topic_destroy(handle);
    rd_kafka_destroy(consumer);
    return 1;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(const char *);
        const char *argument;
    } cases[] = {
        {"round_trip_none", round_trip, "none"},
        {"round_trip_gzip", round_trip, "gzip"},
        {"round_trip_snappy", round_trip, "snappy"},
        {"round_trip_lz4", round_trip, "lz4"},
        {"round_trip_zstd", round_trip, "zstd"},
        {"acks_1", acks, "1"},
        {"acks_all", acks, "all"},
        {"idempotent_none", idempotent, "none"},
        {"idempotent_zstd", idempotent, "zstd"},
        {"group_shares", group_shares, NULL},
        {"group_resumes", group_resumes, NULL},
        {"offsets", offsets, NULL},
        {"legacy_consumer", legacy_consumer, NULL},
    };
    int failed = 0;
    if (argc != 2)
        return 2;
    bootstrap = argv[1];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].run(cases[i].argument)) {
            printf("ok %s\n", cases[i].name);
        } else {
            printf("FAILED %s: %s\n", cases[i].name, why);
            failed = 1;
        }
        fflush(stdout);
    }
    return failed;
}
