// Follow a stream with rabbitmq-stream-js-client, and print the rows, the CPU seconds and percentiles of the delays.
//
//   node stream_follow.js HOST PORT USER PASSWORD VHOST STREAM SECONDS
//
// A body begins with the time at which it was published, in nanoseconds since 1970 (8 bytes). It prints JSON.
const { connect, Offset } = require("rabbitmq-stream-js-client")

const [host, port, username, password, vhost, stream, seconds] = process.argv.slice(2)

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function main() {
  const endpoint = { host, port: Number(port) }
  const addressResolver = { enabled: true, endpoint } // the broker advertises the name of its container
  const client = await connect({ hostname: host, port: Number(port), username, password, vhost, addressResolver })
  const delays = []
  await client.declareConsumer({ stream, offset: Offset.next() }, (message) => {
    const now = performance.timeOrigin + performance.now()
    delays.push(now - Number(message.content.readBigUInt64BE(0)) / 1e6)
  })
  await sleep(5000) // the first seconds are not measured
  delays.length = 0
  const cpu = process.cpuUsage()
  await sleep(Number(seconds) * 1000)
  const { user, system } = process.cpuUsage(cpu)
  const sorted = Float64Array.from(delays).sort()
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]
  console.log(JSON.stringify({ rows: sorted.length, cpu_s: (user + system) / 1e6, p50_ms: at(0.5), p99_ms: at(0.99) }))
}

main().then(() => process.exit(0), (error) => {
  console.error(`rabbitmq-stream-js-client: ${error}`)
  process.exit(1)
})
