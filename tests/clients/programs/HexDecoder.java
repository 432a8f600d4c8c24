import java.util.HexFormat;
import org.apache.kafka.tools.api.Decoder;

/** Lets DumpLogSegments print keys and values as hex, so that bytes that are no text stay exact. */
public final class HexDecoder implements Decoder<String> {
    @Override
    public String fromBytes(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }
}
