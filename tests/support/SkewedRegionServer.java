import org.apache.hadoop.hbase.regionserver.HRegionServer;
import org.apache.hadoop.hbase.util.EnvironmentEdgeManager;

/** A region server whose clock is ahead by so many milliseconds, the first argument; Java runs it from this source. */
class SkewedRegionServer {
    public static void main(String[] arguments) throws Exception {
        long skew = Long.parseLong(arguments[0]);
        EnvironmentEdgeManager.injectEdge(() -> System.currentTimeMillis() + skew);
        HRegionServer.main(java.util.Arrays.copyOfRange(arguments, 1, arguments.length));
    }
}
