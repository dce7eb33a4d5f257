// kafkajs as the tests run it: creates the topic, produces COUNT records, prints offsets and metadata as JSON.
//
//   node roundtrip.js BOOTSTRAP TOPIC none|gzip COUNT [JSON]
//
// JSON has the client's `sasl` option, as `ca` the file with the certificate that it trusts, as `key` that with its own key
// and certificate, and as `token` what it logs in with by OAUTHBEARER.
// kafkajs reads in groups only, so what it wrote is read back by other clients.
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const [bootstrap, topic, codec, count, security] = process.argv.slice(2)
const { ca, key, token, ...given } = JSON.parse(security || '{}')
const read = (file) => require('fs').readFileSync(file, 'utf-8')
const own = key ? { key: read(key), cert: read(key) } : {}
const ssl = ca ? { ca: [read(ca)], ...own } : false
const oauth = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
const sasl = token ? oauth : given.sasl
const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[codec]

async function main() {
  const kafka = new Kafka({ brokers: bootstrap.split(','), sasl, ssl, logLevel: logLevel.ERROR, retry: { retries: 3 } })
  const admin = kafka.admin()
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await admin.connect()
  await producer.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true })
  const messages = Array.from({ length: Number(count) }, (_, i) => ({ value: `value-${i}`, partition: i % 2 }))
  const sent = await producer.send({ topic, compression, acks: -1, messages })
  const offsets = await admin.fetchTopicOffsets(topic)
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
  console.log(JSON.stringify({ sent, offsets, partitions: metadata.topics[0].partitions.length }))
  await producer.disconnect()
  await admin.disconnect()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
