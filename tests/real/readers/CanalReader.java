import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.protocol.FlatMessage;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Reads messages as Canal's own Kafka consumer does: the text through fastjson into a FlatMessage. One message per line
 * of the standard input, in base64; one JSON object per line out, with what the FlatMessage then holds.
 */
public class CanalReader {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> found = new LinkedHashMap<>();
            try {
                String text = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
                FlatMessage message = JSON.parseObject(text, FlatMessage.class);
                found.put("type", message.getType());
                found.put("database", message.getDatabase());
                found.put("table", message.getTable());
                found.put("isDdl", message.getIsDdl());
                found.put("sql", message.getSql());
                found.put("pkNames", message.getPkNames());
                found.put("mysqlType", message.getMysqlType());
                found.put("sqlType", message.getSqlType());
                found.put("data", message.getData());
                found.put("old", message.getOld());
                found.put("es", message.getEs());
                found.put("ts", message.getTs());
                found.put("id", message.getId());
                found.put("gtid", message.getGtid());
            } catch (RuntimeException error) {
                found.clear();
                found.put("error", error.toString());
            }
            out.println(JSON.toJSONString(found, JSONWriter.Feature.WriteMapNullValue));
        }
    }
}
