import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.connector.format.DecodingFormat;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.conversion.RowRowConverter;
import org.apache.flink.table.factories.DeserializationFormatFactory;
import org.apache.flink.table.factories.Factory;
import org.apache.flink.table.runtime.connector.source.ScanRuntimeProviderContext;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.utils.LogicalTypeParser;
import org.apache.flink.table.types.utils.TypeConversions;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

/**
 * Reads messages with one of Flink's formats, made by its factory as for a table in SQL. One message per line of the
 * standard input, in base64, an empty line for a null value; one JSON array per line out: the rows that Flink made of
 * it, each with its kind, or one text that says why it read none.
 *
 * Arguments: the format's name, the table's columns as a ROW type, its metadata columns with commas between, and options
 * as name=value.
 */
public class FlinkReader {
    public static void main(String[] arguments) throws Exception {
        ClassLoader loader = FlinkReader.class.getClassLoader();
        Configuration options = new Configuration();
        for (String option : Arrays.asList(arguments).subList(3, arguments.length)) {
            int at = option.indexOf('=');
            options.setString(option.substring(0, at), option.substring(at + 1));
        }
        DecodingFormat<DeserializationSchema<RowData>> format =
                factory(arguments[0], loader).createDecodingFormat(null, options);
        DataType physical = TypeConversions.fromLogicalToDataType(LogicalTypeParser.parse(arguments[1], loader));
        List<String> metadata = arguments[2].isEmpty() ? List.of() : List.of(arguments[2].split(","));
        Map<String, DataType> readable = format.listReadableMetadata();
        format.applyReadableMetadata(metadata);
        List<RowType.RowField> fields = new ArrayList<>(((RowType) physical.getLogicalType()).getFields());
        for (String name : metadata) {
            fields.add(new RowType.RowField(name, readable.get(name).getLogicalType()));
        }
        RowRowConverter converter =
                RowRowConverter.create(TypeConversions.fromLogicalToDataType(new RowType(fields)));
        converter.open(loader);
        DeserializationSchema<RowData> schema =
                format.createRuntimeDecoder(ScanRuntimeProviderContext.INSTANCE, physical);
        schema.open(null);

        ObjectMapper json = new ObjectMapper();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<Object> found = new ArrayList<>();
            try {
                byte[] message = line.isEmpty() ? null : Base64.getDecoder().decode(line);
                schema.deserialize(message, new Collector<RowData>() {
                    @Override
                    public void collect(RowData row) {
                        found.add(plain(row, converter, fields));
                    }

                    @Override
                    public void close() {}
                });
            } catch (Exception error) {
                Throwable reason = error;
                while (reason.getCause() != null) {
                    reason = reason.getCause();
                }
                found.clear();
                found.add(reason.getClass().getSimpleName());
            }
            out.println(json.writeValueAsString(found));
        }
    }

    @SuppressWarnings("unchecked")
    private static DeserializationFormatFactory factory(String name, ClassLoader loader) {
        for (Factory factory : ServiceLoader.load(Factory.class, loader)) {
            if (factory instanceof DeserializationFormatFactory && factory.factoryIdentifier().equals(name)) {
                return (DeserializationFormatFactory) factory;
            }
        }
        throw new IllegalArgumentException("Flink has no format " + name);
    }

    private static Map<String, Object> plain(RowData data, RowRowConverter converter, List<RowType.RowField> fields) {
        Row row = converter.toExternal(data);
        Map<String, Object> columns = new LinkedHashMap<>();
        for (int at = 0; at < fields.size(); at++) {
            columns.put(fields.get(at).getName(), text(row.getField(at)));
        }
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("kind", data.getRowKind().shortString());
        found.put("row", columns);
        return found;
    }

    /** A value as text that loses nothing; collections of such texts. */
    private static Object text(Object value) {
        if (value == null) {
            return null;
        }
        if (value instanceof byte[]) {
            return Base64.getEncoder().encodeToString((byte[]) value);
        }
        if (value instanceof Object[]) {
            List<Object> found = new ArrayList<>();
            for (Object item : (Object[]) value) {
                found.add(text(item));
            }
            return found;
        }
        if (value instanceof Map) {
            Map<String, Object> found = new java.util.TreeMap<>();
            ((Map<?, ?>) value).forEach((key, item) -> found.put(String.valueOf(key), text(item)));
            return found;
        }
        if (value instanceof java.math.BigDecimal) {
            return ((java.math.BigDecimal) value).toPlainString();
        }
        return value.toString();
    }
}
