import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.*;

/**
 * Reads COUNT messages as a group that commits by itself, and what else comes within 1.5 s. With MODE
 * handle it says of some that they have failed, as tests/conformance/test_retried_clients.py says.
 * Usage: Retried BOOTSTRAP TOPIC GROUP COUNT MODE
 */
public final class Retried {
  public static void main(String[] arguments) throws Exception {
    int count = Integer.parseInt(arguments[3]);
    boolean handles = arguments[4].equals("handle");
    Map<String, Object> reading = new HashMap<>();
    reading.put("bootstrap.servers", arguments[0]);
    reading.put("group.id", arguments[2]);
    reading.put("auto.offset.reset", "earliest");
    Map<String, Object> sending = Map.of("bootstrap.servers", arguments[0]);
    ByteArrayDeserializer in = new ByteArrayDeserializer();
    ByteArraySerializer out = new ByteArraySerializer();
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading, in, in);
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(sending, out, out)) {
      consumer.subscribe(List.of(arguments[1]));
      long until = 0;
      for (int got = 0; got < count || System.nanoTime() < until; ) {
        for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(200))) {
          String value = new String(one.value(), StandardCharsets.UTF_8);
          String attempt = header(one.headers(), "tw-attempt", "1");
          String position = one.partition() + " " + one.offset();
          String reason = header(one.headers(), "tw-reason", "-");
          System.out.println("got " + position + " " + attempt + " " + reason + " " + value);
          String outcome = outcome(value, attempt);
          if (handles && outcome != null) {
            ProducerRecord<byte[], byte[]> nack =
                new ProducerRecord<>(arguments[1], one.partition() | 1, null, null);
            nack.headers().add(outcome, bytes(one.partition() + ":" + one.offset()));
            nack.headers().add("tw-reason", bytes("failed-" + attempt));
            producer.send(nack).get();
          }
          if (++got == count) until = System.nanoTime() + 1_500_000_000L;
        }
      }
    }
    System.exit(0);
  }

  /** The header that says what became of a message; null for one that is done. */
  private static String outcome(String value, String attempt) {
    switch (value.split(":")[0]) {
      case "fail":
        return "tw-nack";
      case "once":
        return attempt.equals("1") ? "tw-nack" : null;
      case "dead":
        return "tw-dead-letter";
      default:
        return null;
    }
  }

  private static String header(Headers headers, String name, String otherwise) {
    Header header = headers.lastHeader(name);
    return header == null ? otherwise : new String(header.value(), StandardCharsets.UTF_8);
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
