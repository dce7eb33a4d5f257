import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Consume, transform, produce: at most once, at least once, exactly once.
 *
 * <pre>
 *   at_most_once | at_least_once | exactly_once   BOOTSTRAP SOURCE SINK
 * </pre>
 *
 * Any error ends the program; after a restart it continues at the committed offsets. It prints a line after each
 * batch. Consumers of the exactly-once output must set isolation.level=read_committed.
 */
public final class Delivery {
  private final KafkaConsumer<String, String> consumer;
  private final KafkaProducer<String, String> producer;
  private final String sink;

  public static void main(String[] arguments) throws Exception {
    var program = new Delivery(arguments[0], arguments[1], arguments[2], arguments[3]);
    while (true) {
      ConsumerRecords<String, String> records = program.consumer.poll(Duration.ofMillis(200));
      if (records.isEmpty()) continue;
      switch (arguments[0]) {
        case "at_most_once" -> program.atMostOnce(records);
        case "at_least_once" -> program.atLeastOnce(records);
        case "exactly_once" -> program.exactlyOnce(records);
        default -> throw new IllegalArgumentException(arguments[0]);
      }
      System.out.println(records.count());
    }
  }

  private Delivery(String semantics, String bootstrap, String source, String sink) {
    this.sink = sink;
    var settings = new Properties();
    settings.put("bootstrap.servers", bootstrap);
    settings.put("group.id", source + "-to-" + sink);
    settings.put("group.instance.id", "1"); // a restarted program gets its partitions back at once
    settings.put("auto.offset.reset", "earliest");
    settings.put("enable.auto.commit", "false");
    settings.put("isolation.level", "read_committed");
    settings.put("max.poll.records", "20");
    consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    var output = new Properties();
    output.put("bootstrap.servers", bootstrap);
    // The same id after a restart: it fences a former process that may still be running.
    if (semantics.equals("exactly_once")) output.put("transactional.id", source + "-to-" + sink);
    producer = new KafkaProducer<>(output, new StringSerializer(), new StringSerializer());
    if (semantics.equals("exactly_once")) producer.initTransactions();
    consumer.subscribe(List.of(source));
  }

  private static String transform(String value) {
    return value == null ? null : value.toUpperCase();
  }

  /** Sends the records; a future completes when its record is acknowledged. */
  private List<Future<RecordMetadata>> write(ConsumerRecords<String, String> records) {
    List<Future<RecordMetadata>> written = new ArrayList<>();
    for (ConsumerRecord<String, String> each : records) {
      written.add(producer.send(new ProducerRecord<>(sink, each.key(), transform(each.value()))));
    }
    return written;
  }

  private void atMostOnce(ConsumerRecords<String, String> records) {
    consumer.commitSync();
    write(records);
    producer.flush();
  }

  private void atLeastOnce(ConsumerRecords<String, String> records) throws Exception {
    for (Future<RecordMetadata> each : write(records)) each.get();
    consumer.commitSync();
  }

  private void exactlyOnce(ConsumerRecords<String, String> records) {
    try {
      producer.beginTransaction();
      write(records);
      producer.sendOffsetsToTransaction(positions(), consumer.groupMetadata());
      producer.commitTransaction();
    } catch (KafkaException error) {
      producer.abortTransaction(); // throws if this producer is fenced, which ends the program
      rewind();
    }
  }

  private Map<TopicPartition, OffsetAndMetadata> positions() {
    Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
    for (TopicPartition each : consumer.assignment()) {
      positions.put(each, new OffsetAndMetadata(consumer.position(each)));
    }
    return positions;
  }

  /** Seeks to the committed offsets: the records of an aborted transaction are read again. */
  private void rewind() {
    var committed = consumer.committed(consumer.assignment());
    for (TopicPartition each : consumer.assignment()) {
      if (committed.get(each) == null) consumer.seekToBeginning(List.of(each));
      else consumer.seek(each, committed.get(each).offset());
    }
  }
}
