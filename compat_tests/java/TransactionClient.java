import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions of the Java client, one release a run.
 *
 * <pre>
 *   facts BOOTSTRAP TOPIC     commits, aborts, fences, lists and describes; a fact a line, tab-separated
 *   read BOOTSTRAP TOPIC      the values of all committed records
 * </pre>
 */
public final class TransactionClient {
  private static String bootstrap;

  public static void main(String[] arguments) throws Exception {
    bootstrap = arguments[1];
    switch (arguments[0]) {
      case "facts" -> facts(arguments[2]);
      case "read" -> read(arguments[2]).forEach(System.out::println);
      default -> throw new IllegalArgumentException(arguments[0]);
    }
  }

  private static KafkaProducer<String, String> producer(String id) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", bootstrap);
    settings.put("transactional.id", id);
    return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
  }

  private static KafkaConsumer<String, String> consumer(String group) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", bootstrap);
    settings.put("group.id", group);
    settings.put("auto.offset.reset", "earliest");
    settings.put("enable.auto.commit", "false");
    settings.put("isolation.level", "read_committed");
    settings.put("session.timeout.ms", "6000");
    settings.put("max.poll.records", "20");
    return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
  }

  private static void fact(String name, Object value) {
    System.out.println(name + "\t" + value);
  }

  private static void facts(String topic) throws Exception {
    String id = "facts-" + topic;
    var first = producer(id);
    first.initTransactions();
    for (int round = 0; round < 6; round++) {
      first.beginTransaction();
      for (int n = 0; n < 4; n++) {
        first.send(new ProducerRecord<>(topic, n % 2, null, (round % 3 == 2 ? "aborted-" : "committed-") + round));
      }
      if (round % 3 == 2) first.abortTransaction();
      else first.commitTransaction();
    }
    long committed = read(topic).stream().filter(v -> v.startsWith("committed-")).count();
    fact("committed", committed);
    fact("all", read(topic).size());
    first.beginTransaction();
    first.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
    try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
      var described = admin.describeTransactions(List.of(id)).description(id).get();
      fact("state", described.state());
      fact("partitions", described.topicPartitions());
      var listed = admin.listTransactions().all().get();
      fact("listed", listed.stream().anyMatch(each -> each.transactionalId().equals(id)));
      var where = new TopicPartition(topic, 0);
      var active = admin.describeProducers(List.of(where)).partitionResult(where).get().activeProducers();
      fact("open", active.stream().anyMatch(each -> each.currentTransactionStartOffset().isPresent()));
    }
    var second = producer(id);
    second.initTransactions();
    try {
      first.commitTransaction();
      fact("zombie", "committed");
    } catch (KafkaException error) {
      fact("zombie", error.getClass().getSimpleName());
    }
    first.close(Duration.ZERO);
    second.beginTransaction();
    second.send(new ProducerRecord<>(topic, 0, null, "after"));
    second.commitTransaction();
    second.close();
    fact("after", read(topic).size());
  }

  private static List<String> read(String topic) {
    List<String> values = new ArrayList<>();
    try (var consumer = consumer("read-" + topic)) {
      List<TopicPartition> partitions = new ArrayList<>();
      consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      var ends = consumer.endOffsets(partitions);
      while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
        consumer.poll(Duration.ofSeconds(1)).forEach(each -> values.add(each.value()));
      }
    }
    return values;
  }
}
