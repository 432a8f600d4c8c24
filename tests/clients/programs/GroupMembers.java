import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of a consumer group, each in a thread of its own, in the lines that group_checker.py
 * reads: BOOTSTRAP TOPIC NAME[,NAME...] SETTING... until SIGTERM, then all of them leave. A JVM is
 * slow to start and large, so one holds several.
 *
 * <p>Must never: print `revoked` before the work on these partitions is over, or `commit` before
 * the broker has answered. A client of group.protocol=consumer that is closed while it gives up
 * partitions has them given up once more with all others: that is told once.
 */
public final class GroupMembers implements ConsumerRebalanceListener, Runnable {
    private static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);
    private static final long COMMIT_NANOS = 200_000_000;
    private static volatile boolean stop;

    private final String topic;
    private final String name;
    private final KafkaConsumer<byte[], byte[]> consumer;

    /** What it has been given and has not given up. */
    private final Set<Integer> own = new TreeSet<>();

    /** By partition: the offset to commit, when it is not committed yet. */
    private final Map<Integer, Long> next = new TreeMap<>();

    private GroupMembers(String topic, String name, Properties settings) {
        this.topic = topic;
        this.name = name;
        settings.put("client.id", name);
        consumer = new KafkaConsumer<>(settings);
    }

    public static void main(String[] words) throws Exception {
        List<Thread> members = new ArrayList<>();
        for (String name : words[2].split(",")) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", words[0]);
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
            for (int at = 3; at < words.length; at++) {
                String[] setting = words[at].split("=", 2);
                settings.put(setting[0], setting[1]);
            }
            members.add(new Thread(new GroupMembers(words[1], name, settings), name));
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> leave(members)));
        say("started", "");
        members.forEach(Thread::start);
    }

    /** Ends with 0 when every member has left by itself. */
    private static void leave(List<Thread> members) {
        stop = true;
        try {
            for (Thread member : members) {
                member.join();
            }
        } catch (InterruptedException interrupted) {
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    @Override
    public void run() {
        try {
            read();
        } catch (Throwable fault) {
            fault.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private void read() {
        consumer.subscribe(List.of(topic), this);
        long committed = System.nanoTime();
        while (!stop) {
            for (ConsumerRecord<byte[], byte[]> found : consumer.poll(Duration.ofMillis(50))) {
                tell("record", "\"p\":" + found.partition() + ",\"o\":" + found.offset());
                next.put(found.partition(), found.offset() + 1);
            }
            if (System.nanoTime() - committed > COMMIT_NANOS) {
                commit();
                committed = System.nanoTime();
            }
        }
        consumer.close();
        tell("closed", "");
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> given) {
        given.forEach(place -> own.add(place.partition()));
        tellPlaces("assigned", given);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> taken) {
        commit();
        giveUp("revoked", taken);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> taken) {
        giveUp("lost", taken);
    }

    private void giveUp(String event, Collection<TopicPartition> taken) {
        taken.forEach(place -> next.remove(place.partition()));
        List<TopicPartition> held =
                taken.stream().filter(place -> own.remove(place.partition())).toList();
        if (!held.isEmpty()) {
            tellPlaces(event, held);
        }
    }

    /** What has been read; asks and waits. */
    private void commit() {
        if (next.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        next.forEach((place, offset) ->
                offsets.put(new TopicPartition(topic, place), new OffsetAndMetadata(offset)));
        String done = next.entrySet().stream()
                .map(one -> "\"" + one.getKey() + "\":" + one.getValue())
                .collect(Collectors.joining(","));
        long asked = System.nanoTime();
        try {
            consumer.commitSync(offsets, Duration.ofSeconds(5));
        } catch (KafkaException fault) {
            tell("commit_failed", "\"code\":\"" + fault.getClass().getSimpleName() + "\"");
            return;
        }
        next.clear();
        tell("commit", "\"asked\":" + asked + ",\"offsets\":{" + done + "}");
    }

    private void tellPlaces(String event, Collection<TopicPartition> places) {
        String list = places.stream()
                .map(place -> String.valueOf(place.partition()))
                .collect(Collectors.joining(","));
        tell(event, "\"p\":[" + list + "]");
    }

    private void tell(String event, String fields) {
        say(event, "\"member\":\"" + name + "\"" + (fields.isEmpty() ? "" : "," + fields));
    }

    /** One line in one write, with the machine's monotonic clock. */
    private static void say(String event, String fields) {
        String rest = fields.isEmpty() ? "" : "," + fields;
        String line = "{\"event\":\"" + event + "\",\"ns\":" + System.nanoTime() + rest + "}\n";
        try {
            OUT.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException fault) {
            throw new IllegalStateException(fault);
        }
    }
}
