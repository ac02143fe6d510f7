import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/**
 * Sends and reads a message over TLS, with nobody asked who it is and as alice by each mechanism.
 * Prints "ok WAY" or "FAILED WAY: why" for every way.
 * Usage: Secure SSL_ADDRESS SASL_SSL_ADDRESS CA_FILE TOPIC
 */
public final class Secure {
  private static Map<String, Object> settings(String[] arguments, String way) {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", arguments[way.equals("SSL") ? 0 : 1]);
    config.put("security.protocol", way.equals("SSL") ? "SSL" : "SASL_SSL");
    config.put("ssl.truststore.type", "PEM");
    config.put("ssl.truststore.location", arguments[2]);
    if (!way.equals("SSL")) {
      String module = way.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
      config.put("sasl.mechanism", way);
      config.put("sasl.jaas.config", "org.apache.kafka.common.security." + module
          + " required username=\"alice\" password=\"secret\";");
    }
    return config;
  }

  private static void talk(String[] arguments, String way) throws Exception {
    String topic = arguments[3];
    Map<String, Object> config = settings(arguments, way);
    config.put("delivery.timeout.ms", 30000);
    config.put("request.timeout.ms", 10000);
    try (KafkaProducer<String, String> producer =
        new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
      producer.send(new ProducerRecord<>(topic, "java", way)).get();
    }
    config = settings(arguments, way);
    config.put("group.id", "java-" + way);
    config.put("auto.offset.reset", "earliest");
    try (KafkaConsumer<String, String> consumer =
        new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(topic));
      long until = System.nanoTime() + 30_000_000_000L;
      while (System.nanoTime() < until) {
        for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
          if ("java".equals(one.key()) && way.equals(one.value())) return;
        }
      }
    }
    throw new AssertionError("it did not come back");
  }

  public static void main(String[] arguments) {
    boolean failed = false;
    for (String way : List.of("SSL", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")) {
      try {
        talk(arguments, way);
        System.out.println("ok " + way);
      } catch (Throwable problem) {
        failed = true;
        System.out.println("FAILED " + way + ": " + problem);
      }
    }
    System.exit(failed ? 1 : 0);
  }
}
