import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** A contender by Apache Curator: reads one command a line, answers one line. */
public final class Contender {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(arguments[0], new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        InterProcessMutex mutex = new InterProcessMutex(client, arguments[1]);
        Path counter = Path.of(arguments[2]);
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "acquire":
                    mutex.acquire();
                    System.out.println("held");
                    break;
                case "try":
                    System.out.println(mutex.acquire(500, TimeUnit.MILLISECONDS) ? "held" : "busy");
                    break;
                case "release":
                    mutex.release();
                    System.out.println("released");
                    break;
                case "count":
                    for (int times = Integer.parseInt(words[1]); times > 0; times--) {
                        mutex.acquire();
                        try {
                            int value = Integer.parseInt(Files.readString(counter).trim());
                            Files.writeString(counter, Integer.toString(value + 1));
                        } finally {
                            mutex.release();
                        }
                    }
                    System.out.println("counted");
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
    }
}
