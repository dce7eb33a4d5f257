import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams' word count: every occurrence of a word is one record with its running count.
 *
 * <pre>
 *   BOOTSTRAP APPLICATION INPUT OUTPUT GUARANTEE STATE_DIRECTORY
 * </pre>
 *
 * It passes a repartition topic and a changelog topic, keeps no cache, and runs until it is killed.
 */
public final class WordCount {
  public static void main(String[] args) throws Exception {
    Properties config = new Properties();
    config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
    config.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
    config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[4]);
    config.put(StreamsConfig.STATE_DIR_CONFIG, args[5]);
    config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
    config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
    config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    config.put(StreamsConfig.mainConsumerPrefix("session.timeout.ms"), 6000);
    config.put(StreamsConfig.mainConsumerPrefix("heartbeat.interval.ms"), 500);
    config.put(StreamsConfig.mainConsumerPrefix("group.instance.id"), "only");

    StreamsBuilder builder = new StreamsBuilder();
    builder
        .<String, String>stream(args[2])
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word, Grouped.as("words"))
        .count(Materialized.as("counts"))
        .toStream()
        .mapValues(count -> Long.toString(count))
        .to(args[3], Produced.with(Serdes.String(), Serdes.String()));

    KafkaStreams streams = new KafkaStreams(builder.build(), config);
    CountDownLatch ended = new CountDownLatch(1);
    streams.setStateListener((state, before) -> System.out.println("state " + state));
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
    ended.await();
  }
}
