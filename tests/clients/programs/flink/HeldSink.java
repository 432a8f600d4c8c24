import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.StatefulSinkWriter;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.SupportsWriterState;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.connector.kafka.sink.KafkaCommittable;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.KafkaWriterState;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.streaming.api.connector.sink2.CommittableMessage;
import org.apache.flink.streaming.api.connector.sink2.SupportsPostCommitTopology;
import org.apache.flink.streaming.api.datastream.DataStream;

/**
 * Flink's Kafka sink, whose commits wait as long as there is a file.
 *
 * <p>Owns: the line `held SUBTASK`, printed when the checkpoint of that subtask's pre-committed
 * transactions is complete, and their commit, which is the next thing, is being held back.
 * Must never: change anything else of what the sink does.
 */
final class HeldSink
        implements Sink<String>,
                SupportsWriterState<String, KafkaWriterState>,
                SupportsCommitter<KafkaCommittable>,
                SupportsPostCommitTopology<KafkaCommittable> {
    private static final long serialVersionUID = 1;

    private final KafkaSink<String> sink;
    private final String hold;

    HeldSink(KafkaSink<String> sink, String hold) {
        this.sink = sink;
        this.hold = hold;
    }

    @Override
    public SinkWriter<String> createWriter(WriterInitContext context) throws IOException {
        return sink.createWriter(context);
    }

    @Override
    public StatefulSinkWriter<String, KafkaWriterState> restoreWriter(
            WriterInitContext context, Collection<KafkaWriterState> states) throws IOException {
        return sink.restoreWriter(context, states);
    }

    @Override
    public SimpleVersionedSerializer<KafkaWriterState> getWriterStateSerializer() {
        return sink.getWriterStateSerializer();
    }

    @Override
    public SimpleVersionedSerializer<KafkaCommittable> getCommittableSerializer() {
        return sink.getCommittableSerializer();
    }

    @Override
    public void addPostCommitTopology(DataStream<CommittableMessage<KafkaCommittable>> done) {
        sink.addPostCommitTopology(done);
    }

    @Override
    public Committer<KafkaCommittable> createCommitter(CommitterInitContext context)
            throws IOException {
        return new HeldCommitter(
                sink.createCommitter(context), context.getTaskInfo().getIndexOfThisSubtask());
    }

    private final class HeldCommitter implements Committer<KafkaCommittable> {
        private final Committer<KafkaCommittable> committer;
        private final int subtask;

        HeldCommitter(Committer<KafkaCommittable> committer, int subtask) {
            this.committer = committer;
            this.subtask = subtask;
        }

        @Override
        public void commit(Collection<CommitRequest<KafkaCommittable>> requests)
                throws IOException, InterruptedException {
            if (Files.exists(Path.of(hold))) {
                System.out.println("held " + subtask);
            }
            while (Files.exists(Path.of(hold))) {
                Thread.sleep(20);
            }
            committer.commit(requests);
        }

        @Override
        public void close() throws Exception {
            committer.close();
        }
    }
}
