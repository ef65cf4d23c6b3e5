// Publish rows with rabbitmq-stream-js-client, single or in sub-entries, and wait for all confirms.
//
//   node stream_js.js HOST PORT USER PASSWORD VHOST STREAM ROWS BODY_BYTES SUB_ENTRY_ROWS CODEC
//
// SUB_ENTRY_ROWS 0: single rows. CODEC: None or Gzip. It prints the seconds and the CPU seconds from the first row to the last confirm.
const { randomBytes } = require("node:crypto")
const { connect } = require("rabbitmq-stream-js-client")
const { CompressionType } = require("rabbitmq-stream-js-client/dist/compression") // the index does not export it

const [host, port, username, password, vhost, stream, ...rest] = process.argv.slice(2)
const [rows, bodyBytes, subEntryRows] = rest.map(Number)
const codec = CompressionType[rest[3]]
const CHUNK = 1000 // as in the client's performance test

async function main() {
  const endpoint = { host, port: Number(port) }
  const addressResolver = { enabled: true, endpoint } // the broker advertises the name of its container
  const client = await connect({ hostname: host, port: Number(port), username, password, vhost, addressResolver })
  const publisher = await client.declarePublisher({ stream, maxChunkLength: CHUNK })
  const bodies = Array.from({ length: rows }, () => Buffer.from(randomBytes(bodyBytes / 2).toString("hex")))
  const entries = subEntryRows ? Math.ceil(rows / subEntryRows) : rows

  let confirmed = 0
  const allConfirmed = new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`${confirmed} of ${entries} entries are confirmed after 120 s`)), 120_000).unref()
    publisher.on("publish_confirm", (error, ids) => {
      if (error) reject(new Error(`the broker refused entry ${ids}: ${error}`))
      confirmed += ids.length
      if (confirmed === entries) resolve()
    })
  })
  const cpu = process.cpuUsage()
  const started = process.hrtime.bigint()
  if (subEntryRows) {
    for (let i = 0; i < rows; i += subEntryRows) {
      const messages = bodies.slice(i, i + subEntryRows).map((content) => ({ content }))
      await publisher.sendSubEntries(messages, codec)
    }
  } else {
    for (const body of bodies) await publisher.send(body)
    await publisher.flush()
  }
  await allConfirmed
  const seconds = Number(process.hrtime.bigint() - started) / 1e9
  const { user, system } = process.cpuUsage(cpu)
  console.log(seconds.toFixed(6), ((user + system) / 1e6).toFixed(6))
}

main().then(() => process.exit(0), (error) => {
  console.error(`rabbitmq-stream-js-client: ${error}`)
  process.exit(1)
})
