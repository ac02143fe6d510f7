// Sends records to partition 0, each with its delay as a header; none for an empty one.
// Usage: node delayed.js BOOTSTRAP TOPIC VALUE=DELAY ...
'use strict'
const { Kafka, Partitioners, logLevel } = require('kafkajs')

const [bootstrap, topic, ...records] = process.argv.slice(2)

async function main() {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  for (const record of records) {
    const [value, delay] = record.split('=')
    const headers = delay === '' ? {} : { 'tw-delay': delay }
    await producer.send({ topic, messages: [{ partition: 0, value, headers }] })
  }
  await producer.disconnect()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
