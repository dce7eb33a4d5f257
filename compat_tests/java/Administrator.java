import java.io.PrintStream;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/**
 * Administrative requests to a cluster of one broker, one fact on each line: name, tab, value. An error is shown by the
 * name of its exception. At the end everything is restored.
 *
 * <pre>
 *   BOOTSTRAP TOPIC     makes the topic and deletes it
 * </pre>
 */
public final class Administrator {
  private static final PrintStream OUT = System.out;

  public static void main(String[] arguments) throws Exception {
    String topic = arguments[1];
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
      int node = admin.describeCluster().nodes().get().iterator().next().id();
      admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
      partitions(admin, new TopicPartition(topic, 1), node);
      cluster(admin);
      credentials(admin, topic);
      quotas(admin, topic);
      loggers(admin, Integer.toString(node));
      var groups = ConfigResource.Type.forId((byte) 32); // unknown to the client of 3.9
      if (groups != ConfigResource.Type.UNKNOWN) {
        settings(admin, new ConfigResource(groups, topic), "consumer.session.timeout.ms", "50000", "1");
      }
      var broker = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(node));
      settings(admin, broker, "max.connections.per.ip", "100000", "-1");
      settings(admin, broker, "sasl.kerberos.min.time.before.relogin", "58000", "soon");
      say("read-only setting", told(set(admin, broker, "node.id", "7")));
      say("access rules", told(admin.describeAcls(AclBindingFilter.ANY).values()));
      say("delegation token", told(admin.createDelegationToken().delegationToken()));
      admin.deleteTopics(List.of(topic)).all().get();
    }
    if (OUT.checkError()) throw new IllegalStateException("could not write to standard output");
  }

  private static void partitions(Admin admin, TopicPartition one, int node) throws Exception {
    var elected = admin.electLeaders(ElectionType.PREFERRED, Set.of(one)).partitions().get().get(one);
    say("preferred leader", elected.map(Administrator::name).orElse("elected"));
    say("all leaders", told(admin.electLeaders(ElectionType.PREFERRED, null).all()));
    say("same replicas", told(reassign(admin, one, Optional.of(List.of(node)))));
    say("unknown replica", told(reassign(admin, one, Optional.of(List.of(99)))));
    say("no replica", told(reassign(admin, one, Optional.of(List.of(node, node)))));
    say("cancelled", told(reassign(admin, one, Optional.empty())));
    say("reassignments", admin.listPartitionReassignments().reassignments().get());
  }

  private static KafkaFuture<Void> reassign(Admin admin, TopicPartition one, Optional<List<Integer>> replicas) {
    return admin.alterPartitionReassignments(Map.of(one, replicas.map(NewPartitionReassignment::new))).all();
  }

  private static void cluster(Admin admin) throws Exception {
    var quorum = admin.describeMetadataQuorum().quorumInfo().get();
    say("voters", quorum.voters().size());
    say("leader is a voter", quorum.voters().get(0).replicaId() == quorum.leaderId());
    say("the leader has it all", quorum.voters().get(0).logEndOffset() >= quorum.highWatermark());
    String feature = "transaction.version";
    say("level", level(admin, feature, 2));
    say("downgraded as an upgrade", told(update(admin, feature, 1, UpgradeType.UPGRADE)));
    say("too high", told(update(admin, feature, 99, UpgradeType.UPGRADE)));
    say("unknown feature", told(update(admin, "no.such.feature", 1, UpgradeType.UPGRADE)));
    say("downgraded", told(update(admin, feature, 1, UpgradeType.SAFE_DOWNGRADE)));
    say("level after it", level(admin, feature, 1));
    say("upgraded", told(update(admin, feature, 2, UpgradeType.UPGRADE)));
    say("level again", level(admin, feature, 2));
    say("unknown broker", told(admin.unregisterBroker(99).all()));
  }

  private static KafkaFuture<Void> update(Admin admin, String feature, int level, UpgradeType type) {
    var wanted = new FeatureUpdate((short) level, type);
    return admin.updateFeatures(Map.of(feature, wanted), new UpdateFeaturesOptions()).all();
  }

  private static int level(Admin admin, String feature, int wanted) throws Exception {
    int level = -1;
    for (int tries = 0; tries < 500 && level != wanted; tries++) {
      if (tries > 0) Thread.sleep(20);
      level = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get(feature).maxVersionLevel();
    }
    return level;
  }

  private static void credentials(Admin admin, String user) throws Exception {
    var mechanism = ScramMechanism.SCRAM_SHA_256;
    var good = new ScramCredentialInfo(mechanism, 8192);
    say("credential", told(admin.alterUserScramCredentials(
        List.of(new UserScramCredentialUpsertion(user, good, "secret"))).all()));
    var known = admin.describeUserScramCredentials(List.of(user)).description(user).get();
    say("credential is", known.credentialInfos());
    var weak = new ScramCredentialInfo(mechanism, 4095);
    say("weak credential", told(admin.alterUserScramCredentials(
        List.of(new UserScramCredentialUpsertion(user, weak, "secret"))).all()));
    var gone = new UserScramCredentialDeletion(user, mechanism);
    say("credential deleted", told(admin.alterUserScramCredentials(List.of(gone)).all()));
    say("deleted again", told(admin.alterUserScramCredentials(List.of(gone)).all()));
    say("nobody", told(admin.describeUserScramCredentials(List.of(user)).description(user)));
  }

  private static void quotas(Admin admin, String user) throws Exception {
    var entity = new ClientQuotaEntity(new TreeMap<>(Map.of("user", user, "client-id", "c")));
    say("quota", told(quota(admin, entity, "producer_byte_rate", 1024.0)));
    var filter = ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity("user", user)));
    say("quotas are", admin.describeClientQuotas(filter).entities().get().values());
    var only = ClientQuotaFilter.containsOnly(List.of(ClientQuotaFilterComponent.ofEntity("user", user)));
    say("quotas of the user alone", admin.describeClientQuotas(only).entities().get().values());
    say("unknown quota", told(quota(admin, entity, "no_such_rate", 1.0)));
    say("quota of nothing", told(quota(admin, entity, "producer_byte_rate", 0.0)));
    say("quota removed", told(quota(admin, entity, "producer_byte_rate", null)));
    say("quotas left", admin.describeClientQuotas(filter).entities().get().values());
  }

  private static KafkaFuture<Void> quota(Admin admin, ClientQuotaEntity entity, String key, Double value) {
    var change = new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op(key, value)));
    return admin.alterClientQuotas(List.of(change)).all();
  }

  private static void loggers(Admin admin, String node) throws Exception {
    var loggers = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, node);
    var levels = admin.describeConfigs(List.of(loggers)).all().get().get(loggers);
    say("root logger", levels.get("root").value());
    String name = levels.entries().stream().map(ConfigEntry::name).filter(n -> !n.equals("root")).sorted()
        .findFirst().orElseThrow();
    settings(admin, loggers, name, "DEBUG", "LOUD", "logger");
    say("unknown logger", told(set(admin, loggers, "no.such.logger", "INFO")));
  }

  private static void settings(Admin admin, ConfigResource of, String name, String good, String bad) throws Exception {
    settings(admin, of, name, good, bad, name);
  }

  private static void settings(
      Admin admin, ConfigResource of, String name, String good, String bad, String title) throws Exception {
    say(title, told(set(admin, of, name, good)));
    say(title + " is", valueOnce(admin, of, name, good));
    say(title + " refused", told(set(admin, of, name, bad)));
    var removal = new AlterConfigOp(new ConfigEntry(name, null), AlterConfigOp.OpType.DELETE);
    say(title + " deleted", told(admin.incrementalAlterConfigs(Map.of(of, Set.of(removal))).all()));
  }

  /** The value, once it is there: brokers apply the controller's decisions some time later. */
  private static String valueOnce(Admin admin, ConfigResource of, String name, String wanted) throws Exception {
    String value = null;
    for (int tries = 0; tries < 500 && !wanted.equals(value); tries++) {
      if (tries > 0) Thread.sleep(20);
      value = admin.describeConfigs(List.of(of)).all().get().get(of).get(name).value();
    }
    return value;
  }

  private static KafkaFuture<Void> set(Admin admin, ConfigResource of, String name, String value) {
    var change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    return admin.incrementalAlterConfigs(Map.of(of, Set.of(change))).all();
  }

  private static String told(KafkaFuture<?> future) throws InterruptedException {
    try {
      future.get();
      return "done";
    } catch (ExecutionException refused) {
      return name(refused.getCause());
    }
  }

  private static String name(Throwable refusal) {
    return refusal.getClass().getSimpleName();
  }

  private static void say(String fact, Object value) {
    OUT.println(fact + "\t" + value);
  }
}
