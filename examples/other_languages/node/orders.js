// Publishes COUNT messages, or handles COUNT messages in order:
//   npm install && node orders.js publish|consume COUNT
const amqp = require('amqplib');

const QUEUES = 4;

async function publish(connection, count) {
  const channel = await connection.createConfirmChannel();
  let returned = 0;
  channel.on('return', () => { returned += 1; });
  for (let n = 0; n < count; n += 1) {
    const body = Buffer.from(String(n));
    channel.publish('orders', `customer-${n % 50}`, body, { mandatory: true, persistent: true });
  }
  await channel.waitForConfirms();
  if (returned) throw new Error(`${returned} messages are unroutable`);
}

async function consume(connection, count) {
  let unhandled = count;
  let finish;
  const finished = new Promise((resolve) => { finish = resolve; });
  for (let n = 1; n <= QUEUES; n += 1) {
    const queue = `orders.${n}`;
    const channel = await connection.createChannel();
    await channel.prefetch(1); // the next message arrives after the acknowledgement of this one
    await channel.consume(queue, (message) => {
      if (message === null) throw new Error(`${queue} was deleted`);
      console.log(queue, message.fields.routingKey, message.content.toString());
      channel.ack(message);
      unhandled -= 1;
      if (unhandled === 0) finish();
    });
  }
  await finished;
}

async function main([action, count]) {
  const connection = await amqp.connect(process.env.AMQP_URL);
  await (action === 'publish' ? publish : consume)(connection, Number(count));
  await connection.close();
}

main(process.argv.slice(2)).catch((error) => { console.error(error.message); process.exit(1); });
