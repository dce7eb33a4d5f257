import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Compiles against every Java client from 0.9.0.1 on; default settings but for those below.
 *
 * <pre>
 *   produce BOOTSTRAP TOPIC PARTITIONS NAME COUNT CODEC...   COUNT records a codec; partition, offset, key, value
 *   assigned BOOTSTRAP TOPIC PARTITIONS COUNT                reads COUNT records of assigned partitions, the same line
 *   group BOOTSTRAP TOPIC PARTITIONS COUNT GROUP             the same as the one member of a group; commits, leaves
 * </pre>
 */
public final class AnyClient {
  private static final long SILENCE_MS = 30_000;
  private static final PrintStream OUT = new PrintStream(new BufferedOutputStream(System.out, 1 << 20), false);

  public static void main(String[] arguments) throws Exception {
    String topic = arguments[2];
    int partitions = Integer.parseInt(arguments[3]);
    Properties settings = new Properties();
    settings.put("bootstrap.servers", arguments[1]);
    if (arguments[0].equals("produce")) {
      for (int i = 6; i < arguments.length; i++)
        produce(settings, topic, partitions, arguments[4], Integer.parseInt(arguments[5]), arguments[i]);
    } else {
      settings.put("auto.offset.reset", "earliest");
      settings.put("enable.auto.commit", "false");
      if (arguments[0].equals("group")) settings.put("group.id", arguments[5]);
      read(settings, topic, partitions, Integer.parseInt(arguments[4]));
    }
    OUT.flush();
  }

  private static void produce(
      Properties settings, String topic, int partitions, String name, int count, String codec) throws Exception {
    settings.put("compression.type", codec);
    settings.put("linger.ms", "5");
    ByteArraySerializer bytes = new ByteArraySerializer();
    KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes);
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      byte[] key = i % 10 == 0 ? null : (codec + "-" + i).getBytes(StandardCharsets.UTF_8);
      sent.add(producer.send(new ProducerRecord<>(topic, i % partitions, key, value(name, codec, i))));
    }
    for (int i = 0; i < count; i++) {
      RecordMetadata where = sent.get(i).get();
      byte[] key = i % 10 == 0 ? null : (codec + "-" + i).getBytes(StandardCharsets.UTF_8);
      print(where.partition(), where.offset(), key, value(name, codec, i));
    }
    producer.close();
  }

  private static byte[] value(String name, String codec, int i) {
    return i % 17 == 0 ? null : (name + "-" + codec + "-" + i).getBytes(StandardCharsets.UTF_8);
  }

  private static void read(Properties settings, String topic, int partitions, int count) throws Exception {
    ByteArrayDeserializer bytes = new ByteArrayDeserializer();
    KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes);
    List<String> topics = new ArrayList<>();
    topics.add(topic);
    if (settings.containsKey("group.id")) {
      consumer.subscribe(topics);
    } else {
      List<TopicPartition> assigned = new ArrayList<>();
      for (int i = 0; i < partitions; i++) assigned.add(new TopicPartition(topic, i));
      consumer.assign(assigned);
      for (TopicPartition partition : assigned) consumer.seek(partition, 0);
    }
    long deadline = System.currentTimeMillis() + SILENCE_MS;
    int left = count;
    while (left > 0 && System.currentTimeMillis() < deadline) {
      for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
        print(record.partition(), record.offset(), record.key(), record.value());
        left--;
        deadline = System.currentTimeMillis() + SILENCE_MS;
      }
    }
    if (settings.containsKey("group.id")) consumer.commitSync();
    consumer.close();
    if (left != 0) throw new IllegalStateException(left + " records more were to be there");
  }

  /** poll(long) is in every client up to 3.9, poll(Duration) from 2.0 on. */
  @SuppressWarnings("unchecked")
  private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
    Method poll;
    Object wait = Duration.ofSeconds(1);
    try {
      poll = KafkaConsumer.class.getMethod("poll", Duration.class);
    } catch (NoSuchMethodException old) {
      poll = KafkaConsumer.class.getMethod("poll", long.class);
      wait = 1000L;
    }
    return (ConsumerRecords<byte[], byte[]>) poll.invoke(consumer, wait);
  }

  private static void print(int partition, long offset, byte[] key, byte[] value) {
    OUT.print(partition + "\t" + offset + "\t" + text(key) + "\t" + text(value) + "\n");
  }

  private static String text(byte[] bytes) {
    return bytes == null ? "null" : new String(bytes, StandardCharsets.UTF_8);
  }
}
