import java.io.FileReader;
import java.io.Reader;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * An instance of a Kafka Streams application: sums by key, with all that Streams keeps in a broker.
 *
 * <p>Owns: FILE (Streams' properties, and `input`, `output`, `pause.ms` of its own). A record of
 * the input has an id as its key and `KEY AMOUNT` as its value. It goes through a repartition topic
 * to the sums of its key, which live in a store with a changelog. Each one leaves a record in the
 * output: the key, and `COUNT SUM ID`: how many there were, what they make, and which was last.
 * Prints every change of state, and ends after SIGTERM once it is closed.
 * Must never: go on after an error that Streams itself does not recover from.
 */
public final class StreamsSums {
    private static final Duration CLOSE = Duration.ofSeconds(20);

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        KafkaStreams streams = new KafkaStreams(sums(properties).build(), properties);
        CountDownLatch closed = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            System.out.println(before + " -> " + now);
            if (now == KafkaStreams.State.NOT_RUNNING || now == KafkaStreams.State.ERROR) {
                closed.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            System.out.println("failed: " + error);
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(
                () -> System.out.println(streams.close(CLOSE) ? "closed" : "still open")));
        streams.start();
        closed.await();
        if (streams.state() == KafkaStreams.State.ERROR) {
            Runtime.getRuntime().halt(1);
        }
    }

    private static StreamsBuilder sums(Properties properties) {
        long pauseNanos = Long.parseLong(properties.getProperty("pause.ms")) * 1_000_000;
        StreamsBuilder builder = new StreamsBuilder();
        Materialized<String, String, KeyValueStore<Bytes, byte[]>> store = Materialized.as("sums");
        builder.stream(
                        properties.getProperty("input"),
                        Consumed.with(Serdes.String(), Serdes.String()))
                .map((id, value) -> {
                    String[] words = value.split(" ");
                    return KeyValue.pair(words[0], words[1] + " " + id);
                })
                .groupByKey(Grouped.as("by-key"))
                // Without a cache every record leaves one in the changelog and one in the output.
                .aggregate(() -> "0 0 -", (key, value, sums) -> {
                    LockSupport.parkNanos(pauseNanos);
                    return add(sums, value);
                }, store.withCachingDisabled())
                .toStream()
                .to(
                        properties.getProperty("output"),
                        Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }

    private static String add(String sums, String value) {
        String[] before = sums.split(" ");
        String[] more = value.split(" ");
        long count = Long.parseLong(before[0]) + 1;
        long sum = Long.parseLong(before[1]) + Long.parseLong(more[0]);
        return count + " " + sum + " " + more[1];
    }

    private StreamsSums() {}
}
