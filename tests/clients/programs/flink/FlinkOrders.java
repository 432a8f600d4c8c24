import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetIdentifier;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacetProvider;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * A Flink job that writes a bill for each order, exactly once, in a cluster within this JVM.
 *
 * <p>Owns: BOOTSTRAP INPUT OUTPUT KEY=VALUE... Flink's settings go by their names, those of the
 * sink's producer follow `producer.`; prefix, naming and parallelism are its own. Source, map and
 * sink are one chain of tasks. Prints a line `sent SUBTASK CHECKPOINT ID...` for the orders between
 * two checkpoints as the second passes, and `complete SUBTASK CHECKPOINT` for one that is complete
 * and, since it was told to the sink first, committed. As long as there is a file `hold`, the sink
 * does not commit (HeldSink.java).
 * Must never: end by itself but with the cause of a failed job.
 */
public final class FlinkOrders {
    public static void main(String[] words) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (String word : Arrays.asList(words).subList(3, words.length)) {
            String[] pair = word.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        int parallelism = Integer.parseInt(settings.remove("parallelism"));
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(
                parallelism, Configuration.fromMap(settings));
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(words[0])
                .setTopics(words[1])
                .setGroupId(settings.get("prefix"))
                .setProperty("isolation.level", "read_committed")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setDeserializer(new Orders())
                .build();
        var sink = KafkaSink.<String>builder()
                .setBootstrapServers(words[0])
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(settings.get("prefix"))
                .setTransactionNamingStrategy(
                        TransactionNamingStrategy.valueOf(settings.get("naming")))
                .setRecordSerializer(new Bills(words[2]));
        settings.forEach((key, value) -> {
            if (key.startsWith("producer.")) {
                sink.setProperty(key.substring("producer.".length()), value);
            }
        });
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "orders")
                .map(new Billing())
                .uid("billing")
                .sinkTo(new HeldSink(sink.build(), settings.get("hold")))
                .uid("bills");
        environment.execute("bills");
    }

    /** Partition, key and value, which are text. */
    private static final class Orders implements KafkaRecordDeserializationSchema<String> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> order, Collector<String> out) {
            out.collect(order.partition() + "\t" + text(order.key()) + "\t" + text(order.value()));
        }

        @Override
        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }

        private static String text(byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
    }

    /** The same form, into the same partition. */
    private static final class Bills
            implements KafkaRecordSerializationSchema<String>, KafkaDatasetFacetProvider {
        private final String topic;

        Bills(String topic) {
            this.topic = topic;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(
                String bill, KafkaSinkContext context, Long timestamp) {
            String[] parts = bill.split("\t");
            return new ProducerRecord<>(
                    topic, Integer.valueOf(parts[0]), bytes(parts[1]), bytes(parts[2]));
        }

        /** To list the transactions of the topic, which POOLING does, the sink has to know it. */
        @Override
        public Optional<KafkaDatasetFacet> getKafkaDatasetFacet() {
            return Optional.of(new DefaultKafkaDatasetFacet(
                    DefaultKafkaDatasetIdentifier.ofTopics(List.of(topic))));
        }

        private static byte[] bytes(String text) {
            return text.getBytes(StandardCharsets.UTF_8);
        }
    }

    /** Makes bills, and tells of them and of checkpoints. */
    private static final class Billing extends RichMapFunction<String, String>
            implements CheckpointedFunction, CheckpointListener, Serializable {
        private transient List<String> ids;

        @Override
        public String map(String order) throws InterruptedException {
            String[] parts = order.split("\t");
            ids.add(parts[1]);
            Thread.sleep(5);
            return parts[0] + "\t" + parts[1] + "\tbill of " + parts[2];
        }

        @Override
        public void initializeState(FunctionInitializationContext context) {
            ids = new ArrayList<>();
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {
            say("sent", context.getCheckpointId(), ids);
            ids.clear();
        }

        @Override
        public void notifyCheckpointComplete(long checkpoint) {
            say("complete", checkpoint, List.of());
        }

        private void say(String event, long checkpoint, List<String> ids) {
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            String head = event + " " + subtask + " " + checkpoint + " ";
            System.out.println((head + String.join(" ", ids)).trim());
        }
    }

    private FlinkOrders() {}
}
