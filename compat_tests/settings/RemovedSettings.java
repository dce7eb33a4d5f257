// Prints the broker settings of Apache Kafka 3.9 that 4.x removed, the last rows of
// ottla/broker/settings/kafka_settings.tsv. Run it with the jars of kafka_2.13-3.9.2, and the rows of 4.x:
//   java -cp "3.9.2/*" compat_tests/settings/RemovedSettings.java ottla/broker/settings/kafka_settings.tsv

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;

class RemovedSettings {
    public static void main(String[] arguments) throws Exception {
        Set<String> kept = Files.readAllLines(Path.of(arguments[0])).stream()
            .filter(line -> line.startsWith("broker\t"))
            .map(line -> line.split("\t")[1])
            .collect(Collectors.toSet());
        ConfigDef settings = kafka.server.KafkaConfig.configDef();
        for (ConfigDef.ConfigKey key : new TreeMap<>(settings.configKeys()).values()) {
            if (key.internalConfig || kept.contains(key.name)) continue;
            System.out.println(String.join("\t",
                "removed", key.name, key.type.name().toLowerCase(), "null",
                key.importance.name().toLowerCase(), "", "read-only", ""));
        }
    }
}
