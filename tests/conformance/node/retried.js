// Reads COUNT messages as a group that commits by itself, and what else comes within 1.5 s. With MODE
// handle it says of some that they have failed, as tests/conformance/test_retried_clients.py says.
// Usage: node retried.js BOOTSTRAP TOPIC GROUP COUNT MODE
'use strict'
const { Kafka, Partitioners, logLevel } = require('kafkajs')

const [bootstrap, topic, groupId, count, mode] = process.argv.slice(2)

// The header that says what became of a message; none for one that is done.
function outcome(value, attempt) {
  const kind = value.split(':')[0]
  if (kind === 'fail' || (kind === 'once' && attempt === '1')) return 'tw-nack'
  return kind === 'dead' ? 'tw-dead-letter' : undefined
}

async function main() {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 200 })
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    let got = 0
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        const value = `${message.value}`
        const attempt = `${message.headers['tw-attempt'] ?? 1}`
        const reason = `${message.headers['tw-reason'] ?? '-'}`
        console.log(`got ${partition} ${message.offset} ${attempt} ${reason} ${value}`)
        const name = outcome(value, attempt)
        if (mode === 'handle' && name !== undefined) {
          const headers = { [name]: `${partition}:${message.offset}`, 'tw-reason': `failed-${attempt}` }
          await producer.send({ topic, messages: [{ partition: partition | 1, value: null, headers }] })
        }
        got += 1
        if (got === Number(count)) setTimeout(resolve, 1500)
      },
    }).catch(reject)
  })
  await consumer.disconnect()
  await producer.disconnect()
  process.exit(0)
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
