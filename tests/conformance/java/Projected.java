import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads COUNT records as a group that commits by itself, then SEEK_COUNT of partition 0 from
 * SEEK_OFFSET. tests/conformance/test_projections.py says what it prints. A TOPIC that begins with ^
 * is a pattern.
 * Usage: Projected BOOTSTRAP TOPIC GROUP COUNT SEEK_OFFSET SEEK_COUNT ISOLATION
 */
public final class Projected {
  private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group, String isolation) {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", bootstrap);
    config.put("group.id", group);
    config.put("auto.offset.reset", "earliest");
    config.put("enable.auto.commit", true);
    config.put("auto.commit.interval.ms", 100);
    config.put("fetch.max.wait.ms", 200);
    config.put("isolation.level", isolation);
    return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  private static int read(KafkaConsumer<byte[], byte[]> consumer, String word, int count) {
    int got = 0;
    while (got < count) got += print(consumer.poll(Duration.ofMillis(200)), word);
    return got;
  }

  private static int print(ConsumerRecords<byte[], byte[]> records, String word) {
    for (ConsumerRecord<byte[], byte[]> one : records) {
      String value = new String(one.value(), StandardCharsets.UTF_8);
      System.out.println(word + " " + one.partition() + " " + one.offset() + " " + value);
    }
    return records.count();
  }

  public static void main(String[] arguments) {
    String topic = arguments[1];
    try (KafkaConsumer<byte[], byte[]> consumer = consumer(arguments[0], arguments[2], arguments[6])) {
      if (topic.startsWith("^")) consumer.subscribe(Pattern.compile(topic));
      else consumer.subscribe(List.of(topic));
      read(consumer, "got", Integer.parseInt(arguments[3]));
      long until = System.nanoTime() + 1_500_000_000L;
      while (System.nanoTime() < until) print(consumer.poll(Duration.ofMillis(100)), "got");
    }
    try (KafkaConsumer<byte[], byte[]> consumer = consumer(arguments[0], arguments[2] + "-seek", arguments[6])) {
      TopicPartition partition = new TopicPartition(topic, 0);
      consumer.assign(List.of(partition));
      consumer.seek(partition, Long.parseLong(arguments[4]));
      read(consumer, "again", Integer.parseInt(arguments[5]));
    }
    System.exit(0);
  }
}
