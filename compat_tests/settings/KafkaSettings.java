// Prints Apache Kafka's own table of settings, for ottla/broker/settings/kafka_settings.tsv:
//   java -cp "$KAFKA_PEER_DIR/libs/*" compat_tests/settings/KafkaSettings.java
// The rows of what 4.x removed are RemovedSettings.java's, behind these.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

class KafkaSettings {
    public static void main(String[] arguments) {
        System.out.println("scope\tname\ttype\tdefault\timportance\tvalid\tupdate\tsynonyms");
        print("broker", AbstractKafkaConfig.CONFIG_DEF,
            DynamicBrokerConfig.dynamicConfigUpdateModes(), "read-only");
        print("topic", LogConfig.configDefCopy(), Map.of(), "dynamic");
        print("group", GroupConfig.CONFIG_DEF, Map.of(), "dynamic");
        print("client-metrics", ClientMetricsConfigs.configDef(), Map.of(), "dynamic");
    }

    static void print(String scope, ConfigDef settings, Map<String, String> updates, String other) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(settings.configKeys()).values()) {
            if (key.internalConfig) continue;
            String valid = key.validator == null ? "" : clean(key.validator.toString());
            System.out.println(String.join("\t",
                scope, key.name, key.type.name().toLowerCase(), fallback(key),
                key.importance.name().toLowerCase(), valid,
                updates.getOrDefault(key.name, other), synonyms(scope, key.name)));
        }
    }

    /** "required", "null", or the default behind an equals sign. */
    static String fallback(ConfigDef.ConfigKey key) {
        if (!key.hasDefault()) return "required";
        if (key.defaultValue == null) return "null";
        String text = ConfigDef.convertToString(key.defaultValue, key.type);
        return clean("=" + text);
    }

    /** The broker's properties that stand for a setting, with the factor to its unit. */
    static String synonyms(String scope, String name) {
        List<String> names = new ArrayList<>();
        if (scope.equals("topic"))
            for (ConfigSynonym each : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS
                    .getOrDefault(name, List.of()))
                names.add(each.name() + unit(each));
        if (scope.equals("broker")) {
            names.addAll(DynamicBrokerConfig.brokerConfigSynonyms(name, false));
            names.remove(name);
        }
        if (scope.equals("group")) GroupConfig.brokerSynonym(name).ifPresent(names::add);
        return String.join(",", names);
    }

    static String unit(ConfigSynonym synonym) {
        if (synonym.converter() == ConfigSynonym.HOURS_TO_MILLISECONDS) return "*3600000";
        return synonym.converter() == ConfigSynonym.MINUTES_TO_MILLISECONDS ? "*60000" : "";
    }

    static String clean(String text) {
        return text.replaceAll("\\s+", " ").trim();
    }
}
