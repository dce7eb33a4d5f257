import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A Flink job in one process: every occurrence of a word is one record, the word and its running
 * count, exactly once.
 *
 * <pre>
 *   BOOTSTRAP INPUT OUTPUT CHECKPOINTS [CHECKPOINT]
 * </pre>
 *
 * Checkpoints are made twice a second, each commits a transaction. With the path of a checkpoint it
 * continues from there. It runs until it is killed.
 */
public final class FlinkCount {
  /** Counts the words of one key. */
  static final class Counter extends RichMapFunction<String, String> {
    private transient ValueState<Integer> count;

    @Override
    public void open(OpenContext context) {
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Integer.class));
    }

    @Override
    public String map(String word) throws Exception {
      Integer before = count.value();
      int now = before == null ? 1 : before + 1;
      count.update(now);
      return word + " " + now;
    }
  }

  /** One of the words of a line, as bytes. */
  static final class Field implements SerializationSchema<String> {
    private final int number;

    Field(int number) {
      this.number = number;
    }

    @Override
    public byte[] serialize(String line) {
      return line.split(" ")[number].getBytes(StandardCharsets.UTF_8);
    }
  }

  public static void main(String[] args) throws Exception {
    Configuration config = new Configuration();
    config.setString("execution.checkpointing.interval", "500ms");
    config.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
    config.setString("execution.checkpointing.dir", args[3]);
    config.setString("execution.checkpointing.externalized-checkpoint-retention",
        "RETAIN_ON_CANCELLATION");
    config.setString("restart-strategy.type", "fixed-delay");
    config.setString("restart-strategy.fixed-delay.attempts", "1000");
    config.setString("restart-strategy.fixed-delay.delay", "500ms");
    if (args.length > 4) {
      config.setString("execution.state-recovery.path", args[4]);
    }
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(config);
    env.setParallelism(2);

    KafkaSource<String> source = KafkaSource.<String>builder()
        .setBootstrapServers(args[0])
        .setTopics(args[1])
        .setGroupId("flink")
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setValueOnlyDeserializer(new SimpleStringSchema())
        .build();
    KafkaSink<String> sink = KafkaSink.<String>builder()
        .setBootstrapServers(args[0])
        .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
            .setTopic(args[2])
            .setKeySerializationSchema(new Field(0))
            .setValueSerializationSchema(new Field(1))
            .build())
        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .setTransactionalIdPrefix("flink-" + args[2])
        .setProperty("transaction.timeout.ms", "120000")
        .build();
    env.fromSource(source, WatermarkStrategy.noWatermarks(), "words")
        .uid("words")
        .keyBy(word -> word)
        .map(new Counter())
        .uid("counts")
        .sinkTo(sink)
        .uid("sink");
    env.execute("count");
  }
}
