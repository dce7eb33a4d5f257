// Prints Apache Kafka's own table of settings, for ottla/broker/kafka_settings.tsv. Run it with Kafka's jars:
//   java -cp "$KAFKA_PEER_DIR/libs/*" compat_tests/settings/KafkaSettings.java > ottla/broker/kafka_settings.tsv

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
        print("broker", AbstractKafkaConfig.CONFIG_DEF, DynamicBrokerConfig.dynamicConfigUpdateModes());
        print("topic", LogConfig.configDefCopy(), Map.of());
        print("group", GroupConfig.CONFIG_DEF, Map.of());
        print("client-metrics", ClientMetricsConfigs.configDef(), Map.of());
    }

    static void print(String scope, ConfigDef settings, Map<String, String> updateModes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(settings.configKeys()).values()) {
            if (key.internalConfig) continue;
            String fallback = !key.hasDefault() ? "required"
                : key.defaultValue == null ? "null"
                : "=" + ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.println(String.join("\t", scope, key.name, key.type.name().toLowerCase(), clean(fallback),
                key.importance.name().toLowerCase(), key.validator == null ? "" : clean(key.validator.toString()),
                updateModes.getOrDefault(key.name, scope.equals("broker") ? "read-only" : "dynamic"), synonyms(scope, key.name)));
        }
    }

    static String synonyms(String scope, String name) {
        List<String> names = new ArrayList<>();
        if (scope.equals("topic"))
            for (ConfigSynonym each : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(name, List.of())) {
                String unit = each.converter() == ConfigSynonym.HOURS_TO_MILLISECONDS ? "*3600000"
                    : each.converter() == ConfigSynonym.MINUTES_TO_MILLISECONDS ? "*60000" : "";
                names.add(each.name() + unit);
            }
        if (scope.equals("broker")) {
            names.addAll(DynamicBrokerConfig.brokerConfigSynonyms(name, false));
            names.remove(name);
        }
        if (scope.equals("group")) GroupConfig.brokerSynonym(name).ifPresent(names::add);
        return String.join(",", names);
    }

    static String clean(String text) {
        return text.replaceAll("\\s+", " ").trim();
    }
}
