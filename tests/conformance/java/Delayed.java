import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends records to partition 0, each with its delay as a header; none for an empty one.
 * Usage: Delayed BOOTSTRAP TOPIC VALUE=DELAY ...
 */
public final class Delayed {
  public static void main(String[] arguments) throws Exception {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", arguments[0]);
    ByteArraySerializer bytes = new ByteArraySerializer();
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, bytes, bytes)) {
      for (String argument : Arrays.asList(arguments).subList(2, arguments.length)) {
        String[] parts = argument.split("=", 2);
        byte[] value = parts[0].getBytes(StandardCharsets.UTF_8);
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(arguments[1], 0, null, value);
        if (!parts[1].isEmpty()) {
          byte[] delay = parts[1].getBytes(StandardCharsets.UTF_8);
          record.headers().add(new RecordHeader("tw-delay", delay));
        }
        producer.send(record).get();
      }
    }
  }
}
