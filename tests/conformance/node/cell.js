// kafkajs's load for cell_load.ForeignLoad, which says what is printed.
// Usage: node cell.js BOOTSTRAP TOPIC MESSAGES_PER_S
'use strict'
const { Kafka, logLevel } = require('kafkajs')
const readline = require('node:readline')

const [bootstrap, topic, rate] = [process.argv[2], process.argv[3], Number(process.argv[4])]
const COMMIT_INTERVAL_MS = 200
const kafka = new Kafka({
  brokers: bootstrap.split(','),
  logLevel: logLevel.NOTHING,
  // kafkajs gives up after five attempts, which is less than a failover takes.
  retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 },
})
const event = (...words) => process.stdout.write(words.join(' ') + '\n')
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const say = (error) => String(error.message).replace(/\s+/g, '_')

function payload(number) {
  const bytes = Buffer.alloc(88)
  bytes.writeUInt32BE(0, 0)
  bytes.writeUInt32BE(number, 4)
  return bytes
}

// One partition a call. kafkajs takes a call for done when each broker that it began with has answered:
// what moves to one of them in the meantime is neither sent again nor reported, and its sequence is
// used for the next message, which the leader then takes for a repetition.
async function write(stopped) {
  const admin = kafka.admin()
  await admin.connect()
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  await admin.disconnect()
  const partitions = topics[0].partitions.map(({ partitionId }) => partitionId)
  await Promise.all(partitions.map((partition) => writeTo(partition, (1000 * partitions.length) / rate, stopped)))
  event('written')
}

async function writeTo(partition, intervalMs, stopped) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, metadataMaxAge: 1000 })
  await producer.connect()
  for (let number = 0; !stopped.is; number++) {
    event('sent', partition, number)
    try {
      const [answer] = await producer.send({ topic, messages: [{ partition, value: payload(number) }], acks: -1 })
      event('acknowledged', partition, number, answer.baseOffset)
    } catch (error) {
      event('failed', partition, number, say(error))
    }
    await sleep(intervalMs)
  }
  await producer.disconnect()
}

async function read(name, stopped) {
  const consumer = kafka.consumer({
    groupId: `${topic}-readers`,
    sessionTimeout: 10000,
    heartbeatInterval: 1000,
    metadataMaxAge: 1000,
    maxWaitTimeInMs: 50,
  })
  const uncommitted = new Map()
  consumer.on(consumer.events.GROUP_JOIN, ({ payload: joined }) => {
    uncommitted.clear()
    for (const partition of joined.memberAssignment[topic] || []) event('assigned', name, partition)
  })
  consumer.on(consumer.events.CRASH, ({ payload: crash }) => {
    if (!crash.restart) event('error', name, say(crash.error))
  })
  const fetchedFrom = new Set()
  consumer.on(consumer.events.FETCH_START, ({ payload: fetch }) => fetchedFrom.add(fetch.nodeId))
  // Within the handler, as kafkajs wants it: a commit from outside may be sent after a rebalance, for
  // partitions that are another member's by then.
  let committedAt = Date.now()
  const commit = async () => {
    const wanted = [...uncommitted]
    try {
      await consumer.commitOffsets(wanted.map(([partition, offset]) => ({ topic, partition, offset: String(offset) })))
    } catch (error) {
      // Thrown on, it would have the message delivered again.
      event('retried', name, say(error))
      return
    }
    for (const [partition, offset] of wanted) event('committed', name, partition, offset)
    uncommitted.clear()
    committedAt = Date.now()
  }
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      event('read', name, partition, message.offset, message.value.readUInt32BE(0), message.value.readUInt32BE(4))
      uncommitted.set(partition, Number(message.offset) + 1)
      if (Date.now() - committedAt >= COMMIT_INTERVAL_MS) await commit()
    },
  })
  while (!stopped.is) await sleep(COMMIT_INTERVAL_MS)
  // A reader that is stopped while it takes in that there are other brokers now begins to fetch again
  // after its stop, gets nothing at once, and so on for ever: its process does nothing else any more.
  fetchedFrom.clear()
  while (fetchedFrom.size < bootstrap.split(',').length) await sleep(COMMIT_INTERVAL_MS)
  await consumer.disconnect()
}

async function main() {
  const stops = [{ is: false }, { is: false }]
  const lines = readline.createInterface({ input: process.stdin })
  let heard = 0
  lines.on('line', () => {
    if (heard < stops.length) stops[heard++].is = true
    if (heard === stops.length) lines.close()
  })
  await Promise.all([write(stops[0]), read('reader-0', stops[1]), read('reader-1', stops[1])])
}

main().then(
  () => process.exit(0),
  (error) => {
    event('error', 'main', say(error))
    process.exit(1)
  },
)
