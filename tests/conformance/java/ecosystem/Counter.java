import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.*;

/**
 * Kafka Streams counts words: through a topic that it makes for repartitioning, in a store whose
 * changelog is another one. Then it begins anew on an empty disk and goes on counting.
 * Prints "ok CASE" or "FAILED CASE: why" for every case.
 * Usage: Counter SASL_PLAINTEXT_ADDRESS LOGIN PASSWORD
 */
public final class Counter {
  private static final String WORDS = "words";
  private static final String COUNTS = "counts";
  private static final String APPLICATION = "counter";
  private static final int DIFFERENT = 7;
  private static final long DEADLINE_NS = 120_000_000_000L;

  private final Map<String, Object> login = new HashMap<>();
  private final Map<String, Long> expected = new TreeMap<>();

  private Counter(String[] arguments) {
    login.put("bootstrap.servers", arguments[0]);
    login.put("security.protocol", "SASL_PLAINTEXT");
    login.put("sasl.mechanism", "SCRAM-SHA-256");
    login.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule "
        + "required username=\"" + arguments[1] + "\" password=\"" + arguments[2] + "\";");
  }

  private Map<String, Object> config(Object... more) {
    Map<String, Object> config = new HashMap<>(login);
    for (int at = 0; at < more.length; at += 2) config.put((String) more[at], more[at + 1]);
    return config;
  }

  private void makeTopics() throws Exception {
    try (Admin admin = Admin.create(config())) {
      admin.createTopics(List.of(
          new NewTopic(WORDS, Optional.of(3), Optional.empty()),
          new NewTopic(COUNTS, Optional.of(1), Optional.empty()))).all().get();
    }
  }

  private void send(int count) throws Exception {
    try (KafkaProducer<String, String> producer =
        new KafkaProducer<>(config(), new StringSerializer(), new StringSerializer())) {
      for (int number = 0; number < count; number++) {
        String word = "word-" + number % DIFFERENT;
        producer.send(new ProducerRecord<>(WORDS, word));
        expected.merge(word, 1L, Long::sum);
      }
    }
  }

  private Topology topology() {
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(WORDS, Consumed.with(Serdes.String(), Serdes.String()))
        .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
        .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("store"))
            .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
        .toStream()
        .to(COUNTS, Produced.with(Serdes.String(), Serdes.Long()));
    return builder.build();
  }

  /** Runs until the newest count of each word is as expected, with nothing on its disk before. */
  private void count() throws Exception {
    Path state = Files.createTempDirectory("counter");
    Properties properties = new Properties();
    properties.putAll(config(
        "application.id", APPLICATION,
        "state.dir", state.toString(),
        "processing.guarantee", "at_least_once",
        "commit.interval.ms", 100,
        // Streams does not leave its group when it ends: who begins anew waits for that.
        "session.timeout.ms", 6000,
        "heartbeat.interval.ms", 1000,
        "statestore.cache.max.bytes", 0,
        "auto.offset.reset", "earliest"));
    try (KafkaStreams streams = new KafkaStreams(topology(), properties)) {
      streams.start();
      awaitCounts();
    }
  }

  private void awaitCounts() {
    Map<String, Long> found = new TreeMap<>();
    try (KafkaConsumer<String, Long> consumer =
        new KafkaConsumer<>(config(), new StringDeserializer(), new LongDeserializer())) {
      TopicPartition partition = new TopicPartition(COUNTS, 0);
      consumer.assign(List.of(partition));
      consumer.seekToBeginning(List.of(partition));
      long until = System.nanoTime() + DEADLINE_NS;
      while (!found.equals(expected)) {
        if (System.nanoTime() > until) throw new AssertionError(found + " for " + expected);
        for (ConsumerRecord<String, Long> one : consumer.poll(Duration.ofMillis(200))) {
          found.put(one.key(), one.value());
        }
      }
    }
  }

  /** Its own topics are those of the tenant, and there are no others. */
  private void look() throws Exception {
    Set<String> wanted = new TreeSet<>(List.of(WORDS, COUNTS,
        APPLICATION + "-store-changelog", APPLICATION + "-store-repartition"));
    try (Admin admin = Admin.create(config())) {
      Set<String> topics = new TreeSet<>(
          admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
      if (!topics.equals(wanted)) throw new AssertionError("topics " + topics);
      List<String> groups = new ArrayList<>();
      for (GroupListing group : admin.listGroups().all().get()) groups.add(group.groupId());
      if (!groups.equals(List.of(APPLICATION))) throw new AssertionError("groups " + groups);
    }
  }

  private interface Case {
    void run() throws Exception;
  }

  private static boolean passes(String name, Case one) {
    try {
      one.run();
      System.out.println("ok " + name);
      return true;
    } catch (Throwable problem) {
      System.out.println("FAILED " + name + ": " + problem);
      return false;
    }
  }

  public static void main(String[] arguments) {
    Counter counter = new Counter(arguments);
    boolean passed = passes("counts", () -> {
      counter.makeTopics();
      counter.send(300);
      counter.count();
    }) && passes("goes on from its changelog", () -> {
      counter.send(100);
      counter.count();
    }) && passes("has its own topics", counter::look);
    System.exit(passed ? 0 : 1);
  }
}
