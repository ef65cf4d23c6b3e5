import com.rabbitmq.client.*;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.BitSet;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * Publish with the Java client, with asynchronous confirms and a window.
 *
 * <p>java AmqpJava HOST PORT USER PASSWORD VHOST EXCHANGE MESSAGES BODY_BYTES WINDOW prints the seconds and the CPU seconds from the first
 * publish to the last confirm.
 */
public class AmqpJava {
  private static final BitSet answered = new BitSet();
  private static int low = 1; // every tag below it is answered; only the connection's thread changes it

  /** Returns how many messages an ack is for. */
  private static int count(int tag, boolean multiple) {
    int messages = 0;
    for (int next = answered.nextClearBit(multiple ? low : tag); next <= tag; next = answered.nextClearBit(next)) {
      answered.set(next);
      messages++;
    }
    low = answered.nextClearBit(low);
    return messages;
  }

  private static void fail(String what) {
    System.err.println("Java client: " + what);
    Runtime.getRuntime().halt(1);
  }

  public static void main(String[] a) throws Exception {
    ConnectionFactory factory = new ConnectionFactory();
    factory.setHost(a[0]);
    factory.setPort(Integer.parseInt(a[1]));
    factory.setUsername(a[2]);
    factory.setPassword(a[3]);
    factory.setVirtualHost(a[4]);
    int messages = Integer.parseInt(a[6]), window = Integer.parseInt(a[8]);
    byte[] body = new byte[Integer.parseInt(a[7])];
    Arrays.fill(body, (byte) 'x');
    String[] keys = new String[messages];
    for (int i = 0; i < messages; i++) keys[i] = String.format("order-%08d", i);
    Semaphore room = new Semaphore(window);
    try (Connection connection = factory.newConnection()) {
      Channel channel = connection.createChannel();
      channel.confirmSelect();
      channel.addConfirmListener(
          (tag, multiple) -> room.release(count((int) tag, multiple)), (tag, multiple) -> fail("the broker sent basic.nack"));
      channel.addReturnListener(returned -> fail("a message was returned"));
      OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
      long cpu = process.getProcessCpuTime(), started = System.nanoTime();
      for (String key : keys) {
        if (!room.tryAcquire(60, TimeUnit.SECONDS)) fail("no confirm for 60 s");
        channel.basicPublish(a[5], key, true, MessageProperties.MINIMAL_PERSISTENT_BASIC, body);
      }
      if (!room.tryAcquire(window, 60, TimeUnit.SECONDS)) fail("no confirm for 60 s");
      double seconds = (System.nanoTime() - started) / 1e9;
      System.out.printf("%.6f %.6f%n", seconds, (process.getProcessCpuTime() - cpu) / 1e9);
    }
  }
}
