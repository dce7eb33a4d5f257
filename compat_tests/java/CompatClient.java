import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client as the tests run it, one release a run.
 *
 * <pre>
 *   read BOOTSTRAP TOPIC                    partition, offset, timestamp, key, value of every record, tab-separated
 *   produce BOOTSTRAP TOPIC CODEC COUNT     default settings; partition, offset, value of every acknowledgement
 *   admin BOOTSTRAP TOPIC                   creates, describes, configures, grows and deletes a topic, a fact a line
 * </pre>
 */
public final class CompatClient {
  private static final PrintStream OUT = new PrintStream(new BufferedOutputStream(System.out, 1 << 20), false);

  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", arguments[1]);
    String topic = arguments[2];
    switch (arguments[0]) {
      case "read" -> read(settings, topic);
      case "produce" -> produce(settings, topic, arguments[3], Integer.parseInt(arguments[4]));
      case "admin" -> admin(settings, topic);
      default -> throw new IllegalArgumentException(arguments[0]);
    }
    OUT.flush();
    if (OUT.checkError()) throw new IllegalStateException("could not write to standard output");
  }

  private static void read(Properties settings, String topic) {
    settings.put("auto.offset.reset", "earliest");
    settings.put("enable.auto.commit", "false");
    settings.put("max.poll.records", "10000");
    var bytes = new ByteArrayDeserializer();
    try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
      List<TopicPartition> partitions = new ArrayList<>();
      consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
      consumer.assign(partitions);
      long left = consumer.endOffsets(partitions).values().stream().mapToLong(Long::longValue).sum();
      while (left > 0) {
        var records = consumer.poll(Duration.ofSeconds(30));
        if (records.isEmpty()) throw new IllegalStateException("nothing within 30 s, missing " + left);
        left -= records.count();
        for (ConsumerRecord<byte[], byte[]> r : records) {
          OUT.print(r.partition() + "\t" + r.offset() + "\t" + r.timestamp() + "\t");
          OUT.write(r.key(), 0, r.key().length);
          OUT.write('\t');
          OUT.write(r.value(), 0, r.value().length);
          OUT.write('\n');
        }
      }
    }
  }

  private static void produce(Properties settings, String topic, String codec, int count) throws Exception {
    settings.put("compression.type", codec);
    var bytes = new ByteArraySerializer();
    try (var producer = new KafkaProducer<byte[], byte[]>(settings, bytes, bytes)) {
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      for (int i = 0; i < count; i++) {
        byte[] value = ("value-" + i).getBytes(StandardCharsets.UTF_8);
        sent.add(producer.send(new ProducerRecord<>(topic, value)));
      }
      for (int i = 0; i < count; i++) {
        RecordMetadata where = sent.get(i).get();
        OUT.print(where.partition() + "\t" + where.offset() + "\tvalue-" + i + "\n");
      }
    }
  }

  private static void admin(Properties settings, String topic) throws Exception {
    try (Admin admin = Admin.create(settings)) {
      say("nodes", admin.describeCluster().nodes().get().size());
      say("cluster id", admin.describeCluster().clusterId().get().length() > 0);
      admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "60000"))))
          .all().get();
      say("listed", admin.listTopics().names().get().contains(topic));
      say("partitions", describe(admin, topic).partitions().size());
      say("leader is a node", describe(admin, topic).partitions().get(0).leader() != null);
      say("retention.ms", config(admin, topic, "retention.ms"));
      var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
      var change = new AlterConfigOp(new ConfigEntry("retention.ms", "120000"), AlterConfigOp.OpType.SET);
      admin.incrementalAlterConfigs(Map.of(resource, Set.of(change))).all().get();
      say("retention.ms changed", config(admin, topic, "retention.ms"));
      admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
      say("partitions grown", describe(admin, topic).partitions().size());
      say("earliest", offsets(admin, topic, OffsetSpec.earliest()));
      say("latest", offsets(admin, topic, OffsetSpec.latest()));
      admin.deleteTopics(List.of(topic)).all().get();
      say("listed after delete", admin.listTopics().names().get().contains(topic));
    }
  }

  private static void say(String name, Object fact) {
    OUT.print(name + "\t" + fact + "\n");
  }

  private static TopicDescription describe(Admin admin, String topic) throws Exception {
    return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
  }

  private static String config(Admin admin, String topic, String name) throws Exception {
    var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
    return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name).value();
  }

  private static Map<Integer, Long> offsets(Admin admin, String topic, OffsetSpec spec) throws Exception {
    Map<TopicPartition, OffsetSpec> asked = Map.of(new TopicPartition(topic, 0), spec);
    Map<Integer, Long> found = new TreeMap<>();
    admin.listOffsets(asked).all().get().forEach((p, info) -> found.put(p.partition(), info.offset()));
    return found;
  }
}
