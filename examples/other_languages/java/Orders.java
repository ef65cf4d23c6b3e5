// Publishes COUNT messages, or handles COUNT messages in order:
//   java -cp amqp-client.jar:slf4j-api.jar Orders.java publish|consume COUNT
import static java.nio.charset.StandardCharsets.UTF_8;

import com.rabbitmq.client.*;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

public class Orders {
    static final int QUEUES = 4;

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[1]);
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URL"));
        try (Connection connection = factory.newConnection()) {
            if (arguments[0].equals("publish")) publish(connection.createChannel(), count);
            else consume(connection, count);
        }
    }

    static void publish(Channel channel, int count) throws Exception {
        AtomicInteger returned = new AtomicInteger();
        channel.addReturnListener((code, text, exchange, key, properties, body) -> returned.incrementAndGet());
        channel.confirmSelect();
        for (int n = 0; n < count; n++) {
            byte[] body = Integer.toString(n).getBytes(UTF_8);
            channel.basicPublish("orders", "customer-" + n % 50, true, MessageProperties.PERSISTENT_BASIC, body);
        }
        channel.waitForConfirmsOrDie(60_000);
        if (returned.get() > 0) throw new IllegalStateException(returned + " messages are unroutable");
    }

    static void consume(Connection connection, int count) throws Exception {
        CountDownLatch unhandled = new CountDownLatch(count);
        for (int n = 1; n <= QUEUES; n++) {
            String queue = "orders." + n;
            Channel channel = connection.createChannel();
            channel.basicQos(1); // the next message arrives after the acknowledgement of this one
            channel.basicConsume(queue, false, (tag, message) -> {
                Envelope envelope = message.getEnvelope();
                System.out.println(queue + " " + envelope.getRoutingKey() + " " + new String(message.getBody(), UTF_8));
                channel.basicAck(envelope.getDeliveryTag(), false);
                unhandled.countDown();
            }, tag -> System.exit(1)); // the queue was deleted
        }
        unhandled.await();
    }
}
