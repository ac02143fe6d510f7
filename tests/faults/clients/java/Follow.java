import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.*;

/**
 * The Java client while a cell changes under it: an idempotent producer and a group of one consumer.
 * Usage: Follow BOOTSTRAP TOPIC PARTITIONS WRITER. Ends when its input ends; "grow N" on its input
 * makes it write to N partitions. What it is told goes to its output, a line each:
 * "K partition number offset" acknowledged, "F partition number why" failed, "S partition count"
 * sent (at the end), "A p,p,…" assigned, "D partition offset writer number" delivered,
 * "C partition offset" committed.
 */
public final class Follow {
    private static final int MESSAGES_PER_S = 100;
    private static volatile int partitions;
    private static volatile boolean done;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1];
        partitions = Integer.parseInt(arguments[2]);
        int writer = Integer.parseInt(arguments[3]);
        Thread producing = new Thread(() -> produce(bootstrap, topic, writer));
        Thread consuming = new Thread(() -> consume(bootstrap, topic));
        producing.start();
        consuming.start();
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            String line = input.nextLine();
            if (line.startsWith("grow ")) {
                partitions = Integer.parseInt(line.substring(5));
            } else if (line.equals("stop producing")) {
                done = true;
                producing.join();
            }
        }
        done = true;
        producing.join();
        stopConsuming = true;
        consuming.join();
    }

    private static volatile boolean stopConsuming;

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static Properties common(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("metadata.max.age.ms", "1000");
        return properties;
    }

    private static void produce(String bootstrap, String topic, int writer) {
        Properties properties = common(bootstrap);
        properties.put("acks", "all");
        properties.put("enable.idempotence", "true");
        properties.put("linger.ms", "2");
        Map<Integer, Integer> next = new TreeMap<>();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            long began = System.nanoTime();
            for (long sent = 0; !done; sent++) {
                int partition = (int) (sent % partitions);
                int number = next.merge(partition, 1, Integer::sum) - 1;
                byte[] value = ByteBuffer.allocate(88).putInt(writer).putInt(number).array();
                producer.send(new ProducerRecord<>(topic, partition, null, value), (data, error) -> {
                    if (error != null) {
                        say("F " + partition + " " + number + " " + error);
                    } else {
                        say("K " + partition + " " + number + " " + data.offset());
                    }
                });
                long due = began + (sent + 1) * 1_000_000_000L / MESSAGES_PER_S;
                long left = (due - System.nanoTime()) / 1_000_000;
                if (left > 0) {
                    Thread.sleep(left);
                }
            }
            producer.flush();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
        next.forEach((partition, count) -> say("S " + partition + " " + count));
    }

    private static void consume(String bootstrap, String topic) {
        Properties properties = common(bootstrap);
        properties.put("group.id", topic + "-java");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> revoked) {}

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                    StringJoiner numbers = new StringJoiner(",");
                    assigned.forEach(p -> numbers.add(Integer.toString(p.partition())));
                    say("A " + numbers);
                }
            });
            long commitAt = 0;
            Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
            while (!stopConsuming) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    ByteBuffer value = ByteBuffer.wrap(record.value());
                    say("D " + record.partition() + " " + record.offset() + " " + value.getInt()
                            + " " + value.getInt());
                    uncommitted.put(new TopicPartition(topic, record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                if (System.nanoTime() > commitAt && !uncommitted.isEmpty()) {
                    commit(consumer, uncommitted);
                    commitAt = System.nanoTime() + 200_000_000L;
                }
            }
        }
    }

    private static void commit(
            Consumer<byte[], byte[]> consumer, Map<TopicPartition, OffsetAndMetadata> offsets) {
        try {
            consumer.commitSync(offsets);
        } catch (RetriableException | CommitFailedException error) {
            // Not acknowledged: committed with what comes next.
            return;
        }
        offsets.forEach((p, offset) -> say("C " + p.partition() + " " + offset.offset()));
        offsets.clear();
    }
}
