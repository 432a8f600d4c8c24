import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.ProducerIdAndEpoch;

/**
 * Transactions of Apache Kafka's Java producer, driven by JSON lines (told in transactions.py).
 *
 * <p>Owns: transact BOOTSTRAP FILE ID [key=value...] runs the transactions of a file back to back
 * and prints one line each: offsets of its records, milliseconds of its end and of all of it;
 * begin BOOTSTRAP FILE ID [key=value...] leaves the file's one transaction open after a flush;
 * end BOOTSTRAP ID commit|abort|close ends it (close sends nothing). Both need `Records serve`.
 * resume BOOTSTRAP ID PRODUCER-ID EPOCH commit|abort ends a transaction that another process began,
 * as Flink's sink does: no InitProducerId, the client's state is set from outside.
 * Must never: use a group, or go on after an error.
 */
public final class Transactions {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String IDENTITY = "producerIdAndEpoch";
    private static final Map<String, KafkaProducer<byte[], byte[]>> OPEN = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        run(List.of(arguments), System.out);
    }

    static void run(List<String> words, PrintStream output) throws Exception {
        switch (words.get(0)) {
            case "transact" -> transact(words, output);
            case "begin" -> begin(words, output);
            case "end" -> end(words);
            case "resume" -> resume(words);
            default -> throw new IllegalArgumentException(words.get(0));
        }
    }

    private static void transact(List<String> words, PrintStream output) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(words)) {
            producer.initTransactions();
            for (String line : Files.readAllLines(Path.of(words.get(2)))) {
                JsonNode transaction = JSON.readTree(line);
                long started = System.nanoTime();
                List<Future<RecordMetadata>> answers = send(producer, transaction);
                // An abort would throw away records that are not on their way yet, and a commit can
                // overtake them: the client's I/O thread asks whether batches are left before it
                // locks the queue of requests (Sender: nextRequest(accumulator.hasIncomplete())).
                // Held up in between, it takes an EndTxn that is newer than its answer. Until
                // KIP-890 an AddPartitionsToTxn stood in front of that one; now the broker hears
                // of an end before anything has begun, and INVALID_TXN_STATE is fatal.
                producer.flush();
                long ending = System.nanoTime();
                if (transaction.get("commit").asBoolean()) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                long ended = System.nanoTime();
                ObjectNode fields = JSON.createObjectNode();
                offsets(answers, fields.putArray("o"));
                fields.put("end_ms", (ended - ending) / 1e6);
                fields.put("ms", (ended - started) / 1e6);
                output.println(JSON.writeValueAsString(fields));
            }
        }
    }

    private static void begin(List<String> words, PrintStream output) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(words);
        producer.initTransactions();
        JsonNode transaction = JSON.readTree(Files.readAllLines(Path.of(words.get(2))).get(0));
        List<Future<RecordMetadata>> answers = send(producer, transaction);
        producer.flush();
        ObjectNode fields = JSON.createObjectNode();
        offsets(answers, fields.putArray("o"));
        output.println(JSON.writeValueAsString(fields));
        ProducerIdAndEpoch identity = (ProducerIdAndEpoch) get(manager(producer), IDENTITY);
        output.println(JSON.writeValueAsString(
                Map.of("producer_id", identity.producerId, "epoch", identity.epoch)));
        OPEN.put(words.get(3), producer);
    }

    private static void end(List<String> words) {
        try (KafkaProducer<byte[], byte[]> producer = OPEN.remove(words.get(2))) {
            switch (words.get(3)) {
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                case "close" -> producer.close(Duration.ZERO);
                default -> throw new IllegalArgumentException(words.get(3));
            }
        }
    }

    private static void resume(List<String> words) throws Exception {
        long id = Long.parseLong(words.get(3));
        short epoch = Short.parseShort(words.get(4));
        List<String> settings = List.of("", words.get(1), "", words.get(2));
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            Object manager = manager(producer);
            synchronized (manager) {
                // A client that hears of transaction.version 2 before it builds its EndTxn adds an
                // InitProducerId of its own after it. Whether it does is a race: keep it out.
                set(manager, "latestFinalizedFeaturesEpoch", Long.MAX_VALUE);
                turn(manager, "INITIALIZING");
                set(manager, IDENTITY, new ProducerIdAndEpoch(id, epoch));
                turn(manager, "READY");
                turn(manager, "IN_TRANSACTION");
                set(manager, "transactionStarted", true);
            }
            if (words.get(5).equals("commit")) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    private static Object manager(KafkaProducer<byte[], byte[]> producer) throws Exception {
        return get(producer, "transactionManager");
    }

    private static Object get(Object object, String name) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    private static void set(Object object, String name, Object value) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        field.set(object, value);
    }

    private static void turn(Object manager, String state) throws Exception {
        Class<?> states = get(manager, "currentState").getClass();
        Method method = manager.getClass().getDeclaredMethod("transitionTo", states);
        method.setAccessible(true);
        for (Object constant : states.getEnumConstants()) {
            if (constant.toString().equals(state)) {
                method.invoke(manager, constant);
            }
        }
    }

    private static List<Future<RecordMetadata>> send(
            KafkaProducer<byte[], byte[]> producer, JsonNode transaction) throws Exception {
        producer.beginTransaction();
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        for (JsonNode fields : transaction.get("records")) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode pair : fields.get("h")) {
                headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1))));
            }
            answers.add(producer.send(new ProducerRecord<>(
                    fields.get("topic").asText(), fields.get("p").asInt(), fields.get("t").asLong(),
                    bytes(fields.get("k")), bytes(fields.get("v")), headers)));
        }
        return answers;
    }

    private static void offsets(List<Future<RecordMetadata>> answers, ArrayNode array)
            throws Exception {
        for (Future<RecordMetadata> answer : answers) {
            array.add(answer.get().offset());
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(List<String> words) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", words.get(1));
        properties.put("transactional.id", words.get(3));
        properties.put("linger.ms", "0");
        for (String word : words.subList(4, words.size())) {
            String[] pair = word.split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        return new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }

    private Transactions() {}
}
