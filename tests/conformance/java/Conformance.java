import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/**
 * The Java client against a running broker. Prints one line a case: "ok NAME" or "FAILED NAME: why".
 * Usage: Conformance BOOTSTRAP
 */
public final class Conformance {
  private final String bootstrap;
  private final String run = UUID.randomUUID().toString().substring(0, 8);

  private Conformance(String bootstrap) {
    this.bootstrap = bootstrap;
  }

  interface Case {
    void run() throws Exception;
  }

  public static void main(String[] arguments) {
    Conformance suite = new Conformance(arguments[0]);
    Map<String, Case> cases = new LinkedHashMap<>();
    for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
      cases.put("round_trip_" + codec, () -> suite.roundTrip(codec));
    }
    for (String acks : List.of("0", "1", "all")) {
      cases.put("acks_" + acks, () -> suite.acks(acks));
    }
    cases.put("idempotent_in_order", suite::idempotentInOrder);
    cases.put("group_rebalance", () -> suite.groupRebalance(RangeAssignor.class.getName()));
    cases.put("group_cooperative", () -> suite.groupRebalance(CooperativeStickyAssignor.class.getName()));
    cases.put("static_member", suite::staticMember);
    cases.put("commit_and_resume", suite::commitAndResume);
    cases.put("seek_by_time", suite::seekByTime);
    cases.put("large_message", suite::largeMessage);
    cases.put("oversize_message", suite::oversizeMessage);
    cases.put("admin_topics", suite::adminTopics);
    cases.put("admin_configs", suite::adminConfigs);
    cases.put("admin_groups", suite::adminGroups);
    cases.put("admin_delete_records", suite::adminDeleteRecords);
    cases.put("admin_cluster", suite::adminCluster);
    cases.put("admin_features", suite::adminFeatures);
    cases.put("read_committed", suite::readCommitted);
    cases.put("offset_out_of_range", suite::offsetOutOfRange);
    cases.put("thousand_partitions", suite::thousandPartitions);
    boolean failed = false;
    for (Map.Entry<String, Case> entry : cases.entrySet()) {
      try {
        entry.getValue().run();
        System.out.println("ok " + entry.getKey());
      } catch (Throwable problem) {
        failed = true;
        System.out.println("FAILED " + entry.getKey() + ": " + problem);
        problem.printStackTrace();
      }
    }
    System.exit(failed ? 1 : 0);
  }

  // --- clients ---------------------------------------------------------------------------------

  private KafkaProducer<byte[], byte[]> producer(Object... settings) {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", bootstrap);
    config.put("delivery.timeout.ms", 30000);
    config.put("request.timeout.ms", 10000);
    config.put("linger.ms", 5);
    for (int i = 0; i < settings.length; i += 2) config.put((String) settings[i], settings[i + 1]);
    return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
  }

  private KafkaConsumer<byte[], byte[]> consumer(String group, Object... settings) {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", bootstrap);
    config.put("group.id", group);
    config.put("auto.offset.reset", "earliest");
    config.put("enable.auto.commit", false);
    config.put("session.timeout.ms", 10000);
    config.put("heartbeat.interval.ms", 500);
    for (int i = 0; i < settings.length; i += 2) config.put((String) settings[i], settings[i + 1]);
    return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  private Admin admin() {
    return Admin.create(Map.of("bootstrap.servers", bootstrap));
  }

  private String topic(String name, int partitions, Map<String, String> configs) throws Exception {
    String topic = "java-" + name + "-" + run;
    try (Admin admin = admin()) {
      admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
    }
    return topic;
  }

  private String topic(String name, int partitions) throws Exception {
    return topic(name, partitions, Map.of());
  }

  private static byte[] bytes(String text) {
    return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
  }

  private static void check(boolean condition, String message) {
    if (!condition) throw new AssertionError(message);
  }

  /** In a cell the next question may go to a broker that hears of the change a moment later. */
  private static void eventually(Callable<Boolean> condition, String message) throws Exception {
    long deadline = System.currentTimeMillis() + 10000;
    while (!condition.call()) {
      check(System.currentTimeMillis() < deadline, message);
      Thread.sleep(10);
    }
  }

  private static void equal(Object wanted, Object got, String what) {
    check(Objects.equals(wanted, got), what + ": wanted " + wanted + ", got " + got);
  }

  private void send(String topic, int partition, int count) throws Exception {
    try (KafkaProducer<byte[], byte[]> producer = producer()) {
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      for (int i = 0; i < count; i++) {
        sent.add(producer.send(new ProducerRecord<>(topic, partition, bytes("k" + i), bytes("v" + i))));
      }
      for (int i = 0; i < count; i++) sent.get(i).get();
    }
  }

  private List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
    List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
    long deadline = System.currentTimeMillis() + 30000;
    while (got.size() < count && System.currentTimeMillis() < deadline) {
      for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) got.add(record);
    }
    equal(count, got.size(), "records read");
    return got;
  }

  private List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int partitions, int count, Object... settings) {
    try (KafkaConsumer<byte[], byte[]> consumer = consumer("reader-" + run, settings)) {
      List<TopicPartition> all = IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).toList();
      consumer.assign(all);
      consumer.seekToBeginning(all);
      return read(consumer, count);
    }
  }

  // --- cases -----------------------------------------------------------------------------------

  private void roundTrip(String codec) throws Exception {
    String topic = topic("codec-" + codec, 1);
    int count = 2000;
    try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", codec, "linger.ms", 50)) {
      for (int i = 0; i < count; i++) {
        byte[] key = i % 7 == 0 ? null : bytes("key-" + i);
        byte[] value = i % 11 == 0 ? null : bytes("value-" + i + "-" + "x".repeat(i % 300));
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i, key, value);
        record.headers().add(new RecordHeader("index", bytes("" + i)));
        record.headers().add(new RecordHeader("nothing", null));
        producer.send(record);
      }
      producer.flush();
    }
    List<ConsumerRecord<byte[], byte[]>> got = readAll(topic, 1, count);
    for (int i = 0; i < count; i++) {
      ConsumerRecord<byte[], byte[]> record = got.get(i);
      equal((long) i, record.offset(), "offset");
      equal(1_700_000_000_000L + i, record.timestamp(), "timestamp");
      check(Arrays.equals(i % 7 == 0 ? null : bytes("key-" + i), record.key()), "key of " + i);
      check(Arrays.equals(i % 11 == 0 ? null : bytes("value-" + i + "-" + "x".repeat(i % 300)), record.value()), "value of " + i);
      equal("" + i, new String(record.headers().lastHeader("index").value()), "header");
      check(record.headers().lastHeader("nothing").value() == null, "null header");
    }
  }

  private void acks(String acks) throws Exception {
    String topic = topic("acks-" + acks, 1);
    try (KafkaProducer<byte[], byte[]> producer = producer("acks", acks, "enable.idempotence", false)) {
      for (int i = 0; i < 500; i++) producer.send(new ProducerRecord<>(topic, 0, null, bytes("" + i)));
    }
    List<ConsumerRecord<byte[], byte[]>> got = readAll(topic, 1, 500);
    for (int i = 0; i < 500; i++) equal("" + i, new String(got.get(i).value()), "value");
  }

  private void idempotentInOrder() throws Exception {
    String topic = topic("idempotent", 3);
    try (KafkaProducer<byte[], byte[]> producer = producer("enable.idempotence", true, "linger.ms", 0, "batch.size", 200)) {
      for (int i = 0; i < 6000; i++) producer.send(new ProducerRecord<>(topic, i % 3, null, bytes("" + i)));
    }
    int[] next = {0, 1, 2};
    for (ConsumerRecord<byte[], byte[]> record : readAll(topic, 3, 6000)) {
      equal(next[record.partition()], Integer.parseInt(new String(record.value())), "order in " + record.partition());
      next[record.partition()] += 3;
    }
  }

  private void groupRebalance(String assignor) throws Exception {
    String topic = topic("rebalance-" + assignor.length(), 4);
    String group = "java-group-" + assignor.length() + "-" + run;
    for (int p = 0; p < 4; p++) send(topic, p, 50);
    Object[] settings = {"partition.assignment.strategy", assignor};
    try (KafkaConsumer<byte[], byte[]> first = consumer(group, settings);
        KafkaConsumer<byte[], byte[]> second = consumer(group, settings)) {
      first.subscribe(List.of(topic));
      Set<String> seen = new HashSet<>();
      long deadline = System.currentTimeMillis() + 30000;
      while (seen.size() < 200 && System.currentTimeMillis() < deadline) {
        first.poll(Duration.ofMillis(100)).forEach(r -> seen.add(r.partition() + ":" + r.offset()));
      }
      equal(200, seen.size(), "records of the only member");
      first.commitSync();
      second.subscribe(List.of(topic));
      while ((first.assignment().size() != 2 || second.assignment().size() != 2) && System.currentTimeMillis() < deadline) {
        first.poll(Duration.ofMillis(50));
        equal(0, second.poll(Duration.ofMillis(50)).count(), "records read again after the commit");
      }
      equal(2, first.assignment().size(), "partitions of the first");
      equal(2, second.assignment().size(), "partitions of the second");
      second.unsubscribe();
      while (first.assignment().size() != 4 && System.currentTimeMillis() < deadline) first.poll(Duration.ofMillis(50));
      equal(4, first.assignment().size(), "partitions after the second left");
    }
  }

  private void staticMember() throws Exception {
    String topic = topic("static", 2);
    String group = "java-static-" + run;
    Object[] settings = {"group.instance.id", "instance-a"};
    KafkaConsumer<byte[], byte[]> first = consumer(group, settings);
    first.subscribe(List.of(topic));
    long deadline = System.currentTimeMillis() + 30000;
    while (first.assignment().size() != 2 && System.currentTimeMillis() < deadline) first.poll(Duration.ofMillis(50));
    int generation = first.groupMetadata().generationId();
    first.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP));
    try (KafkaConsumer<byte[], byte[]> again = consumer(group, settings)) {
      again.subscribe(List.of(topic));
      while (again.assignment().size() != 2 && System.currentTimeMillis() < deadline) again.poll(Duration.ofMillis(50));
      equal(2, again.assignment().size(), "partitions after coming back");
      equal(generation, again.groupMetadata().generationId(), "generation: a static member comes back without a rebalance");
    }
  }

  private void commitAndResume() throws Exception {
    String topic = topic("resume", 1);
    String group = "java-resume-" + run;
    TopicPartition partition = new TopicPartition(topic, 0);
    send(topic, 0, 100);
    try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
      consumer.assign(List.of(partition));
      read(consumer, 100);
      consumer.commitSync(Map.of(partition, new OffsetAndMetadata(42, Optional.of(0), "so far")));
    }
    try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
      consumer.assign(List.of(partition));
      OffsetAndMetadata committed = consumer.committed(Set.of(partition)).get(partition);
      equal(42L, committed.offset(), "committed offset");
      equal("so far", committed.metadata(), "metadata");
      equal(42L, read(consumer, 58).get(0).offset(), "first offset after the restart");
    }
  }

  private void seekByTime() throws Exception {
    String topic = topic("time", 1);
    try (KafkaProducer<byte[], byte[]> producer = producer()) {
      for (int i = 0; i < 1000; i++) {
        producer.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i * 1000L, null, bytes("" + i)));
      }
    }
    TopicPartition partition = new TopicPartition(topic, 0);
    try (KafkaConsumer<byte[], byte[]> consumer = consumer("java-time-" + run)) {
      equal(500L, consumer.offsetsForTimes(Map.of(partition, 1_700_000_499_500L)).get(partition).offset(), "offset for time");
      check(consumer.offsetsForTimes(Map.of(partition, 1_800_000_000_000L)).get(partition) == null, "no offset after the end");
      equal(1000L, consumer.endOffsets(List.of(partition)).get(partition), "end offset");
      equal(0L, consumer.beginningOffsets(List.of(partition)).get(partition), "beginning offset");
    }
    try (Admin admin = admin()) {
      equal(999L, admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).all().get().get(partition).offset(), "max timestamp");
    }
  }

  private void largeMessage() throws Exception {
    String topic = topic("large", 1, Map.of("max.message.bytes", "2000000"));
    byte[] value = new byte[1 << 20];
    new Random(1).nextBytes(value);
    try (KafkaProducer<byte[], byte[]> producer = producer("max.request.size", 3000000)) {
      producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
    }
    check(Arrays.equals(value, readAll(topic, 1, 1).get(0).value()), "1 MiB as sent");
  }

  private void oversizeMessage() throws Exception {
    String topic = topic("oversize", 1, Map.of("max.message.bytes", "10000"));
    try (KafkaProducer<byte[], byte[]> producer = producer()) {
      ExecutionException refused = null;
      try {
        producer.send(new ProducerRecord<>(topic, 0, null, new byte[20000])).get();
      } catch (ExecutionException error) {
        refused = error;
      }
      check(refused != null && refused.getCause() instanceof RecordTooLargeException, "refused as too large, got " + refused);
      equal(0L, producer.send(new ProducerRecord<>(topic, 0, null, new byte[10])).get().offset(), "offset of the next");
    }
  }

  private void adminTopics() throws Exception {
    String topic = topic("admin", 2, Map.of("retention.ms", "3600000"));
    try (Admin admin = admin()) {
      TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
      equal(2, described.partitions().size(), "partitions");
      check(!described.topicId().equals(Uuid.ZERO_UUID), "a topic id");
      eventually(() -> admin.listTopics().names().get().contains(topic), "listed");
      expect(TopicExistsException.class, () -> admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get());
      expect(InvalidTopicException.class, () -> admin.createTopics(List.of(new NewTopic("not ok!", 1, (short) 1))).all().get());
      expect(InvalidPartitionsException.class, () -> admin.createTopics(List.of(new NewTopic(topic + "x", 0, (short) 1))).all().get());
      expect(InvalidReplicationFactorException.class, () -> admin.createTopics(List.of(new NewTopic(topic + "x", 1, (short) 9))).all().get());
      expect(InvalidConfigurationException.class, () ->
          admin.createTopics(List.of(new NewTopic(topic + "x", 1, (short) 1).configs(Map.of("no.such", "1")))).all().get());
      admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
      eventually(() -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 5, "after the increase");
      expect(InvalidPartitionsException.class, () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get());
      admin.deleteTopics(TopicCollection.ofTopicIds(List.of(described.topicId()))).all().get();
      expect(UnknownTopicOrPartitionException.class, () -> admin.describeTopics(List.of(topic)).allTopicNames().get());
      expect(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of(topic)).all().get());
    }
  }

  private void adminConfigs() throws Exception {
    String topic = topic("configs", 1);
    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
    try (Admin admin = admin()) {
      admin.incrementalAlterConfigs(Map.of(resource, List.of(
          new AlterConfigOp(new ConfigEntry("retention.ms", "60000"), AlterConfigOp.OpType.SET),
          new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)))).all().get();
      eventually(() -> "60000".equals(admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value()), "set");
      Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
      equal("60000", config.get("retention.ms").value(), "retention.ms");
      equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, config.get("retention.ms").source(), "source");
      equal(Set.of("delete", "compact"), Set.of(config.get("cleanup.policy").value().split(",")), "cleanup.policy");
      check(config.get("segment.bytes").isDefault(), "segment.bytes is default");
      admin.incrementalAlterConfigs(Map.of(resource, List.of(
          new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE)))).all().get();
      eventually(() -> admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").source() != ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "deleted");
      expect(InvalidConfigurationException.class, () -> admin.incrementalAlterConfigs(Map.of(resource, List.of(
          new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET)))).all().get());
      Node node = admin.describeCluster().nodes().get().iterator().next();
      ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node.idString());
      check(admin.describeConfigs(List.of(broker)).all().get().get(broker).get("num.partitions") != null, "broker configs");
    }
  }

  private void adminGroups() throws Exception {
    String topic = topic("groups", 1);
    String group = "java-admin-group-" + run;
    TopicPartition partition = new TopicPartition(topic, 0);
    send(topic, 0, 10);
    try (Admin admin = admin(); KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
      consumer.subscribe(List.of(topic));
      read(consumer, 10);
      consumer.commitSync();
      ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
      equal(GroupState.STABLE, described.groupState(), "state");
      equal(1, described.members().size(), "members");
      equal(Set.of(partition), described.members().iterator().next().assignment().topicPartitions(), "assignment");
      equal(10L, admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition).offset(), "offset");
      expect(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
      expect(GroupSubscribedToTopicException.class, () -> admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get());
      check(admin.listGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), "listed");
      consumer.close();
      admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(3))).all().get();
      equal(3L, admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition).offset(), "altered");
      admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
      admin.deleteConsumerGroups(List.of(group)).all().get();
      expect(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
    }
  }

  private void adminDeleteRecords() throws Exception {
    String topic = topic("delete-records", 1);
    TopicPartition partition = new TopicPartition(topic, 0);
    send(topic, 0, 100);
    try (Admin admin = admin()) {
      equal(60L, admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(60))).lowWatermarks().get(partition).get().lowWatermark(), "low watermark");
      equal(60L, admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).all().get().get(partition).offset(), "earliest");
      expect(org.apache.kafka.common.errors.OffsetOutOfRangeException.class, () -> admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(1000))).all().get());
    }
    equal(60L, readAll(topic, 1, 40).get(0).offset(), "first record left");
  }

  private void adminCluster() throws Exception {
    try (Admin admin = admin()) {
      DescribeClusterResult cluster = admin.describeCluster();
      check(!cluster.nodes().get().isEmpty(), "nodes");
      check(cluster.controller().get() != null, "a controller");
      check(!cluster.clusterId().get().isEmpty(), "a cluster id");
      int id = cluster.nodes().get().iterator().next().id();
      check(!admin.describeLogDirs(List.of(id)).allDescriptions().get().get(id).isEmpty(), "log directories");
    }
  }

  private void readCommitted() throws Exception {
    String topic = topic("committed", 1);
    send(topic, 0, 100);
    equal(100, readAll(topic, 1, 100, "isolation.level", "read_committed").size(), "records");
  }

  private void offsetOutOfRange() throws Exception {
    String topic = topic("range", 1);
    send(topic, 0, 10);
    TopicPartition partition = new TopicPartition(topic, 0);
    try (KafkaConsumer<byte[], byte[]> consumer = consumer("java-range-" + run, "auto.offset.reset", "none")) {
      consumer.assign(List.of(partition));
      consumer.seek(partition, 99);
      expect(org.apache.kafka.clients.consumer.OffsetOutOfRangeException.class, () -> {
        for (int i = 0; i < 50; i++) consumer.poll(Duration.ofMillis(100));
      });
    }
  }

  private void thousandPartitions() throws Exception {
    String topic = topic("thousand", 1000);
    try (KafkaProducer<byte[], byte[]> producer = producer()) {
      for (int i = 0; i < 1000; i++) producer.send(new ProducerRecord<>(topic, i, null, bytes("" + i)));
    }
    Set<Integer> seen = readAll(topic, 1000, 1000).stream().map(ConsumerRecord::partition).collect(Collectors.toSet());
    equal(1000, seen.size(), "partitions read");
  }

  private void adminFeatures() throws Exception {
    String name = "metadata.version";
    try (Admin admin = admin()) {
      FeatureMetadata before = admin.describeFeatures().featureMetadata().get();
      short newest = before.supportedFeatures().get(name).maxVersion();
      equal(newest, before.finalizedFeatures().get(name).maxVersionLevel(), "a new cell's level");
      check(before.finalizedFeaturesEpoch().isPresent(), "an epoch");
      short lower = (short) (newest - 1);
      expect(InvalidUpdateVersionException.class, () -> update(admin, name, lower, FeatureUpdate.UpgradeType.UPGRADE, false));
      expect(InvalidUpdateVersionException.class, () -> update(admin, "nobody.knows", (short) 1, FeatureUpdate.UpgradeType.UPGRADE, false));
      update(admin, name, lower, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE, true);
      equal(before.finalizedFeatures(), admin.describeFeatures().featureMetadata().get().finalizedFeatures(), "after a dry run");
      update(admin, name, lower, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE, false);
      eventually(() -> level(admin, name) == lower, "the lower level");
      update(admin, name, newest, FeatureUpdate.UpgradeType.UPGRADE, false);
      eventually(() -> level(admin, name) == newest, "the newest level again");
    }
  }

  private static short level(Admin admin, String name) throws Exception {
    return admin.describeFeatures().featureMetadata().get().finalizedFeatures().get(name).maxVersionLevel();
  }

  private static void update(Admin admin, String name, short level, FeatureUpdate.UpgradeType type, boolean dryRun) throws Exception {
    Map<String, FeatureUpdate> updates = Map.of(name, new FeatureUpdate(level, type));
    admin.updateFeatures(updates, new UpdateFeaturesOptions().validateOnly(dryRun)).all().get();
  }

  private static void expect(Class<? extends Throwable> wanted, Case action) throws Exception {
    try {
      action.run();
    } catch (Throwable problem) {
      Throwable cause = problem instanceof ExecutionException ? problem.getCause() : problem;
      if (wanted.isInstance(cause)) return;
      throw new AssertionError("wanted " + wanted.getSimpleName() + ", got " + cause, problem);
    }
    throw new AssertionError("wanted " + wanted.getSimpleName() + ", but nothing was thrown");
  }
}
