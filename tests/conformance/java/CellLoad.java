import java.io.*;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * A load on one topic while a cell is being maltreated: one idempotent producer, two members of a
 * group. Prints what happens, a line an event; tests/conformance/cell_load.py says which.
 * Usage: CellLoad BOOTSTRAP TOPIC MESSAGES_PER_S
 */
public final class CellLoad {
  private static final PrintStream OUT =
      new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16));
  private static String bootstrap;
  private static String topic;

  private static void print(String line) {
    synchronized (OUT) {
      OUT.println(line);
      OUT.flush();
    }
  }

  private static String oneLine(Throwable problem) {
    return String.valueOf(problem).replace('\n', ' ');
  }

  private static Map<String, Object> common() {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", bootstrap);
    config.put("metadata.max.age.ms", 1000);
    return config;
  }

  /** Numbers its messages per partition, over as many partitions as the metadata shows. */
  static final class Writer extends Thread {
    private final int rate;
    private final AtomicBoolean done = new AtomicBoolean();

    Writer(int rate) {
      this.rate = rate;
    }

    @Override
    public void run() {
      Map<String, Object> config = common();
      config.put("enable.idempotence", true);
      config.put("acks", "all");
      config.put("linger.ms", 2);
      Map<Integer, Integer> numbers = new HashMap<>();
      try (KafkaProducer<byte[], byte[]> producer =
          new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
        long began = System.nanoTime();
        for (long sent = 0; !done.get(); sent++) {
          int partition = (int) (sent % producer.partitionsFor(topic).size());
          int number = numbers.merge(partition, 1, Integer::sum) - 1;
          byte[] value = ByteBuffer.allocate(88).putInt(0).putInt(number).array();
          print("sent " + partition + " " + number);
          producer.send(
              new ProducerRecord<>(topic, partition, null, value),
              (where, problem) -> {
                if (problem == null) {
                  print("acknowledged " + partition + " " + number + " " + where.offset());
                } else {
                  print("failed " + partition + " " + number + " " + oneLine(problem));
                }
              });
          long wait = began + (sent + 1) * 1_000_000_000L / rate - System.nanoTime();
          if (wait > 0) TimeUnit.NANOSECONDS.sleep(wait);
        }
        producer.flush();
        print("written");
      } catch (Throwable problem) {
        print("error writer " + oneLine(problem));
      }
    }
  }

  /** A member of the group. Commits what it has printed, five times a second. */
  static final class Reader extends Thread {
    private final AtomicBoolean done = new AtomicBoolean();
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();

    Reader(String name) {
      super(name);
    }

    @Override
    public void run() {
      Map<String, Object> config = common();
      config.put("group.id", topic + "-readers");
      config.put("auto.offset.reset", "earliest");
      config.put("enable.auto.commit", false);
      config.put("session.timeout.ms", 10000);
      config.put("heartbeat.interval.ms", 1000);
      config.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
      try (KafkaConsumer<byte[], byte[]> consumer =
          new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
        consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
          @Override
          public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            for (TopicPartition one : partitions) print("assigned " + getName() + " " + one.partition());
          }

          @Override
          public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            commit(consumer);
            uncommitted.keySet().removeAll(partitions);
          }

          @Override
          public void onPartitionsLost(Collection<TopicPartition> partitions) {
            uncommitted.keySet().removeAll(partitions);
          }
        });
        long commitAt = System.nanoTime();
        while (!done.get()) {
          for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
            ByteBuffer value = ByteBuffer.wrap(record.value());
            print("read " + getName() + " " + record.partition() + " " + record.offset() + " "
                + value.getInt() + " " + value.getInt());
            uncommitted.put(new TopicPartition(topic, record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
          }
          if (System.nanoTime() >= commitAt) {
            commit(consumer);
            commitAt = System.nanoTime() + 200_000_000L;
          }
        }
        commit(consumer);
      } catch (Throwable problem) {
        print("error " + getName() + " " + oneLine(problem));
      }
    }

    private void commit(KafkaConsumer<byte[], byte[]> consumer) {
      if (uncommitted.isEmpty()) return;
      try {
        consumer.commitSync(uncommitted, Duration.ofSeconds(5));
        uncommitted.forEach((where, what) ->
            print("committed " + getName() + " " + where.partition() + " " + what.offset()));
        uncommitted.clear();
      } catch (RetriableException | RebalanceInProgressException | CommitFailedException problem) {
        // Not acknowledged; what is read next is committed with the next attempt.
        print("retried " + getName() + " " + oneLine(problem));
      }
    }
  }

  public static void main(String[] arguments) throws Exception {
    bootstrap = arguments[0];
    topic = arguments[1];
    Writer writer = new Writer(Integer.parseInt(arguments[2]));
    List<Reader> readers = List.of(new Reader("reader-0"), new Reader("reader-1"));
    writer.start();
    readers.forEach(Thread::start);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    // Two lines: stop writing, stop reading.
    commands.readLine();
    writer.done.set(true);
    commands.readLine();
    for (Reader reader : readers) reader.done.set(true);
    for (Reader reader : readers) reader.join();
    writer.join();
    System.exit(0);
  }
}
