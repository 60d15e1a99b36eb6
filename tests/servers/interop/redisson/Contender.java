import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Locale;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.config.Config;

/**
 * A contender by Redisson: enters again and again, twice each time, and answers with its waits. Each entry is counted
 * without protection against lost updates, and written to a journal.
 */
public final class Contender {
    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(arguments[0]).setConnectionMinimumIdleSize(2).setConnectionPoolSize(4);
        config.setLockWatchdogTimeout(Long.parseLong(arguments[4]));
        RLock lock = Redisson.create(config).getLock(arguments[1]);
        Path counter = Path.of(arguments[2]);
        Path journal = Path.of(arguments[3]);
        long id = ProcessHandle.current().pid();
        System.out.println("ready");
        String[] order = new BufferedReader(new InputStreamReader(System.in)).readLine().split(" ");
        long section = Math.round(1000 * Double.parseDouble(order[0]));
        long end = System.nanoTime() + Math.round(1e9 * Double.parseDouble(order[1]));
        StringBuilder waits = new StringBuilder("waited");
        for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
            lock.lock();
            waits.append(String.format(Locale.ROOT, " %.3f", (System.nanoTime() - asked) / 1e6));
            lock.lock();
            Files.writeString(journal, id + " in " + System.nanoTime() + "\n", StandardOpenOption.APPEND);
            String text = Files.readString(counter).trim();
            // Empty after a process that was killed while it wrote.
            int value = text.isEmpty() ? 0 : Integer.parseInt(text);
            if (section > 0) {
                Thread.sleep(section);
            }
            Files.writeString(counter, Integer.toString(value + 1));
            Files.writeString(journal, id + " out " + System.nanoTime() + "\n", StandardOpenOption.APPEND);
            lock.unlock();
            lock.unlock();
        }
        System.out.println(waits);
        System.exit(0);
    }
}
