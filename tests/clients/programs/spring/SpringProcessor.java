import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.BatchMessageListener;
import org.springframework.kafka.listener.ConsumerAwareRebalanceListener;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.transaction.support.AbstractPlatformTransactionManager;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/**
 * A processor of orders over spring-kafka, in the lines of orders.py.
 *
 * <p>Owns: BOOTSTRAP NAME INPUT OUTPUT SETTING... until SIGTERM, then it leaves. A listener
 * container begins a transaction for each batch, in which a template sends; it adds the offsets
 * and commits, and begins anew after a rollback, all by itself. Told that it is fenced it takes a
 * new producer: what keeps a zombie out is the generation that goes with its offsets.
 * Must never: print `committed` but after the container has committed.
 */
public final class SpringProcessor {
    public static void main(String[] words) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (String word : Arrays.asList(words).subList(4, words.length)) {
            String[] pair = word.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        say("started", "");
        var producers = producers(words[0], words[1], settings);
        var container = container(words, settings, producers);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            container.stop();
            producers.destroy();
            say("closed", "");
            Runtime.getRuntime().halt(0);
        }));
        container.start();
        Thread.currentThread().join();
    }

    private static DefaultKafkaProducerFactory<byte[], byte[]> producers(
            String bootstrap, String name, Map<String, String> settings) {
        Map<String, Object> values = new HashMap<>();
        values.put("bootstrap.servers", bootstrap);
        values.put("client.id", name);
        values.put("transaction.timeout.ms", settings.get("transaction.timeout.ms"));
        values.put("delivery.timeout.ms", settings.get("transaction.timeout.ms"));
        values.put("request.timeout.ms", "2000");
        var producers = new DefaultKafkaProducerFactory<>(
                values, new ByteArraySerializer(), new ByteArraySerializer());
        producers.setTransactionIdPrefix(settings.get("transactional.id") + "-");
        return producers;
    }

    private static KafkaMessageListenerContainer<byte[], byte[]> container(
            String[] words,
            Map<String, String> settings,
            DefaultKafkaProducerFactory<byte[], byte[]> producers) {
        Map<String, Object> values = new HashMap<>();
        values.put("bootstrap.servers", words[0]);
        values.put("client.id", words[1]);
        values.put("auto.offset.reset", "earliest");
        values.put("isolation.level", "read_committed");
        values.put("enable.auto.commit", false);
        for (String key : List.of("group.id", "max.poll.records", "session.timeout.ms",
                "heartbeat.interval.ms")) {
            values.put(key, settings.get(key));
        }
        KafkaTransactionManager<byte[], byte[]> transactions =
                new KafkaTransactionManager<>(producers);
        // It calls back after the end.
        transactions.setTransactionSynchronization(
                AbstractPlatformTransactionManager.SYNCHRONIZATION_ALWAYS);
        ContainerProperties properties = new ContainerProperties(words[2]);
        properties.setKafkaAwareTransactionManager(transactions);
        properties.setConsumerRebalanceListener(new Places());
        properties.setMessageListener(new Bills(new KafkaTemplate<>(producers), words[3],
                Long.parseLong(settings.get("pause.ms"))));
        return new KafkaMessageListenerContainer<>(
                new DefaultKafkaConsumerFactory<>(
                        values, new ByteArrayDeserializer(), new ByteArrayDeserializer()),
                properties);
    }

    /** Bills for some orders. */
    private record Bills(KafkaTemplate<byte[], byte[]> template, String output, long pauseMs)
            implements BatchMessageListener<byte[], byte[]> {
        @Override
        public void onMessage(List<ConsumerRecord<byte[], byte[]>> orders) {
            List<String> ids = new ArrayList<>();
            List<CompletableFuture<?>> answers = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> order : orders) {
                ids.add(new String(order.key(), StandardCharsets.UTF_8));
                String bill = "bill of " + new String(order.value(), StandardCharsets.UTF_8);
                answers.add(template.send(output, order.partition(), order.key(),
                        bill.getBytes(StandardCharsets.UTF_8)));
            }
            answers.forEach(CompletableFuture::join);
            String list = ", \"ids\": [" + String.join(", ", ids) + "]";
            say("sent", list);
            try {
                Thread.sleep(pauseMs);
            } catch (InterruptedException stopped) {
                throw new IllegalStateException(stopped);
            }
            TransactionSynchronizationManager.registerSynchronization(
                    new TransactionSynchronization() {
                        @Override
                        public void afterCompletion(int status) {
                            say(switch (status) {
                                case STATUS_COMMITTED -> "committed";
                                case STATUS_ROLLED_BACK -> "aborted";
                                default -> "unknown";
                            }, list);
                        }
                    });
        }
    }

    /** Tells of partitions. */
    private static final class Places implements ConsumerAwareRebalanceListener {
        @Override
        public void onPartitionsAssigned(Consumer<?, ?> consumer, Collection<TopicPartition> some) {
            say("assigned", ", \"p\": " + some.stream().map(TopicPartition::partition).toList());
        }

        @Override
        public void onPartitionsRevokedAfterCommit(
                Consumer<?, ?> consumer, Collection<TopicPartition> some) {
            say("revoked", ", \"p\": " + some.stream().map(TopicPartition::partition).toList());
        }
    }

    private static synchronized void say(String event, String rest) {
        System.out.println("{\"event\": \"" + event + "\"" + rest + "}");
    }

    private SpringProcessor() {}
}
