import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.SplittableRandom;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * Apache Kafka's own Java clients, driven by JSON lines (the form is told in records.py).
 *
 * <p>Owns: one command a run. create BOOTSTRAP TOPIC:PARTITIONS... [key=value...]; produce
 * BOOTSTRAP TOPIC FILE [key=value...] prints every record as acknowledged; consume BOOTSTRAP TOPIC
 * [key=value...] prints all records up to the end offsets of the start; offsets BOOTSTRAP TOPIC
 * [key=value...] TIMESTAMP...; verify-perf BOOTSTRAP TOPIC COUNT SIZE; segments FILE... reads
 * segment files with Kafka's file reader; tool CLASS WORD... runs the main class of one of Kafka's
 * command line tools and adds a line `exit CODE` to what it prints; and those of Transactions.java.
 * serve takes one command a line on standard input (an output file, then the words, tab between
 * them) and answers each with `ok` or `failed ...`, which saves JVM starts.
 * Must never: use a group, commit an offset, or go on after an error.
 */
public final class Records {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration BOUND = Duration.ofSeconds(60);

    private static PrintStream output = System.out;

    public static void main(String[] arguments) throws Exception {
        if (!arguments[0].equals("serve")) {
            run(Arrays.asList(arguments));
            return;
        }
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            List<String> words = Arrays.asList(line.split("\t"));
            String answer = "ok";
            try (PrintStream file = new PrintStream(words.get(0), StandardCharsets.UTF_8)) {
                output = file;
                run(words.subList(1, words.size()));
            } catch (Exception error) {
                error.printStackTrace();
                answer = "failed " + error.toString().replaceAll("\\s+", " ");
            }
            answers.println(answer);
            answers.flush();
        }
    }

    private static void run(List<String> words) throws Exception {
        switch (words.get(0)) {
            case "create" -> create(words);
            case "produce" -> produce(words);
            case "consume" -> consume(words);
            case "offsets" -> offsets(words);
            case "verify-perf" -> verifyPerf(words);
            case "segments" -> segments(words);
            case "tool" -> tool(words);
            default -> Transactions.run(words, output);
        }
    }

    private static void create(List<String> words) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", words.get(1));
        Map<String, String> configs = new HashMap<>();
        configs.put("retention.ms", "-1");
        List<NewTopic> topics = new ArrayList<>();
        for (String word : words.subList(2, words.size())) {
            if (word.contains("=")) {
                String[] pair = word.split("=", 2);
                configs.put(pair[0], pair[1]);
            } else {
                String[] parts = word.split(":");
                int partitions = Integer.parseInt(parts[1]);
                topics.add(new NewTopic(parts[0], Optional.of(partitions), Optional.empty()));
            }
        }
        topics.forEach(topic -> topic.configs(configs));
        try (Admin admin = Admin.create(properties)) {
            admin.createTopics(topics).all().get();
            // A leader that answers ListOffsets serves Produce too; metadata may be ahead of it.
            Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
            for (NewTopic topic : topics) {
                for (int partition = 0; partition < topic.numPartitions(); partition++) {
                    ends.put(new TopicPartition(topic.name(), partition), OffsetSpec.latest());
                }
            }
            long deadline = System.nanoTime() + BOUND.toNanos();
            while (!answers(admin, ends)) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("no leader for " + ends.keySet());
                }
                Thread.sleep(50);
            }
        }
    }

    private static boolean answers(Admin admin, Map<TopicPartition, OffsetSpec> ends)
            throws Exception {
        try {
            admin.listOffsets(ends).all().get();
            return true;
        } catch (ExecutionException error) {
            if (error.getCause() instanceof RetriableException) {
                return false;
            }
            throw error;
        }
    }

    private static void produce(List<String> words) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", words.get(1));
        properties.put("acks", "all");
        properties.put("linger.ms", "5");
        for (String word : words.subList(4, words.size())) {
            String[] pair = word.split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        String topic = words.get(2);
        List<JsonNode> sent = new ArrayList<>();
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String line : Files.readAllLines(Path.of(words.get(3)))) {
                JsonNode fields = JSON.readTree(line);
                List<Header> headers = new ArrayList<>();
                for (JsonNode pair : fields.get("h")) {
                    headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1))));
                }
                sent.add(fields);
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                        topic, fields.get("p").asInt(), fields.get("t").asLong(),
                        bytes(fields.get("k")), bytes(fields.get("v")), headers);
                answers.add(producer.send(record));
            }
        }
        try (BufferedWriter lines = writer()) {
            for (int index = 0; index < sent.size(); index++) {
                RecordMetadata metadata = answers.get(index).get();
                ObjectNode fields = (ObjectNode) sent.get(index);
                fields.put("o", metadata.offset()).put("t", metadata.timestamp());
                lines.write(JSON.writeValueAsString(fields) + "\n");
            }
        }
    }

    private static void consume(List<String> words) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(words);
                BufferedWriter lines = writer()) {
            read(consumer, words.get(2), record -> {
                ObjectNode fields = JSON.createObjectNode();
                fields.put("p", record.partition()).put("o", record.offset());
                fields.put("t", record.timestamp());
                fields.put("k", record.key()).put("v", record.value());
                ArrayNode headers = fields.putArray("h");
                for (Header header : record.headers()) {
                    headers.addArray().add(header.key()).add(header.value());
                }
                lines.write(JSON.writeValueAsString(fields) + "\n");
            });
        }
    }

    private static void offsets(List<String> words) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(words)) {
            List<TopicPartition> partitions = partitions(consumer, words.get(2));
            print("beginning", consumer.beginningOffsets(partitions));
            print("end", consumer.endOffsets(partitions));
            for (String word : words.subList(3, words.size())) {
                if (word.contains("=")) {
                    continue;
                }
                Map<TopicPartition, Long> times = new HashMap<>();
                partitions.forEach(partition -> times.put(partition, Long.parseLong(word)));
                Map<TopicPartition, Object> found = new HashMap<>();
                consumer.offsetsForTimes(times).forEach((partition, answer) -> found.put(
                        partition,
                        answer == null ? "none" : answer.offset() + "@" + answer.timestamp()));
                print(word, found);
            }
        }
    }

    /** ProducerPerformance draws every payload from one seeded generator: draw them again. */
    private static void verifyPerf(List<String> words) throws Exception {
        int count = Integer.parseInt(words.get(3));
        int size = Integer.parseInt(words.get(4));
        SplittableRandom random = new SplittableRandom(0);
        byte[] payload = new byte[size];
        long[] expected = new long[count];
        for (int index = 0; index < count; index++) {
            for (int at = 0; at < size; at++) {
                payload[at] = (byte) (random.nextInt(26) + 65);
            }
            expected[index] = hash(payload);
        }
        long[] found = new long[count];
        int[] seen = {0};
        Map<Integer, Long> perPartition = new TreeMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(words)) {
            read(consumer, words.get(2), record -> {
                boolean plain = record.key() == null && record.headers().toArray().length == 0;
                long next = perPartition.getOrDefault(record.partition(), 0L);
                boolean fits = record.value().length == size && record.offset() == next;
                if (!plain || !fits || seen[0] == count) {
                    String place = record.partition() + "/" + record.offset();
                    throw new IllegalStateException("unexpected record at " + place);
                }
                perPartition.put(record.partition(), next + 1);
                found[seen[0]++] = hash(record.value());
            });
        }
        Arrays.sort(expected);
        Arrays.sort(found);
        if (seen[0] != count || !Arrays.equals(expected, found)) {
            String counts = seen[0] + " records read, " + count + " expected";
            throw new IllegalStateException(counts + ", or other payloads");
        }
        output.println("verified " + count + " records: " + perPartition);
    }

    private static void segments(List<String> words) throws Exception {
        try (BufferedWriter lines = writer()) {
            for (String name : words.subList(1, words.size())) {
                String directory = new File(name).getAbsoluteFile().getParentFile().getName();
                String number = directory.substring(directory.lastIndexOf('-') + 1);
                int partition = Integer.parseInt(number);
                try (FileRecords file = FileRecords.open(new File(name), false)) {
                    for (RecordBatch batch : file.batches()) {
                        batch.ensureValid();
                        for (Record record : batch) {
                            ObjectNode fields = JSON.createObjectNode();
                            fields.put("p", partition).put("o", record.offset());
                            fields.put("t", record.timestamp());
                            fields.put("k", bytes(record.key())).put("v", bytes(record.value()));
                            ArrayNode headers = fields.putArray("h");
                            for (Header header : record.headers()) {
                                headers.addArray().add(header.key()).add(header.value());
                            }
                            lines.write(JSON.writeValueAsString(fields) + "\n");
                        }
                    }
                }
            }
        }
    }

    private static void tool(List<String> words) throws Exception {
        PrintStream standardOutput = System.out;
        PrintStream standardError = System.err;
        // A tool that catches what is thrown here asks again, with another code: the first counts.
        List<Integer> codes = new ArrayList<>();
        Exit.setExitProcedure((code, message) -> {
            codes.add(code);
            throw new Exited();
        });
        System.setOut(output);
        System.setErr(output);
        try {
            String[] arguments = words.subList(2, words.size()).toArray(new String[0]);
            Class.forName(words.get(1)).getMethod("main", String[].class)
                    .invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exited)) {
                throw error;
            }
        } finally {
            System.setOut(standardOutput);
            System.setErr(standardError);
            Exit.resetExitProcedure();
        }
        output.println("exit " + (codes.isEmpty() ? 0 : codes.get(0)));
    }

    /** A tool wanted to end the JVM. */
    private static final class Exited extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private interface Sink {
        void take(ConsumerRecord<byte[], byte[]> record) throws Exception;
    }

    private static void read(KafkaConsumer<byte[], byte[]> consumer, String topic, Sink sink)
            throws Exception {
        List<TopicPartition> partitions = partitions(consumer, topic);
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        long deadline = System.nanoTime() + BOUND.toNanos() * 4;
        while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the end was not reached: " + ends);
            }
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                sink.take(record);
            }
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(List<String> words) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", words.get(1));
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "none");
        properties.put("max.poll.records", "5000");
        // Nothing more comes, and closing waits for the fetch that is on its way.
        properties.put("fetch.max.wait.ms", "50");
        for (String word : words) {
            if (word.contains("=")) {
                String[] pair = word.split("=", 2);
                properties.put(pair[0], pair[1]);
            }
        }
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        return new KafkaConsumer<>(properties, plain, plain);
    }

    private static List<TopicPartition> partitions(KafkaConsumer<?, ?> consumer, String topic) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (PartitionInfo info : consumer.partitionsFor(topic, BOUND)) {
            partitions.add(new TopicPartition(topic, info.partition()));
        }
        return partitions;
    }

    private static void print(String name, Map<TopicPartition, ?> values) {
        Map<Integer, Object> sorted = new TreeMap<>();
        values.forEach((partition, value) -> sorted.put(partition.partition(), value));
        output.println(name + " " + sorted);
    }

    private static long hash(byte[] data) {
        long hash = 0xcbf29ce484222325L;
        ByteBuffer buffer = ByteBuffer.wrap(data);
        while (buffer.remaining() >= 8) {
            hash = (hash ^ buffer.getLong()) * 0x9e3779b97f4a7c15L;
            hash ^= hash >>> 29;
        }
        while (buffer.hasRemaining()) {
            hash = (hash ^ buffer.get()) * 0x100000001b3L;
        }
        return hash;
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return data;
    }

    private static BufferedWriter writer() {
        OutputStreamWriter text = new OutputStreamWriter(output, StandardCharsets.UTF_8);
        return new BufferedWriter(text, 1 << 20);
    }

    private Records() {}
}
