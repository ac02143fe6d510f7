// kafkajs against a running broker. Prints one line a case: "ok NAME" or "FAILED NAME: why".
// Usage: node conformance.js BOOTSTRAP
'use strict'
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const assert = require('node:assert/strict')
const crypto = require('node:crypto')

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: async (buffer) => lz4.decompressFrame(buffer),
})

const run = crypto.randomBytes(4).toString('hex')
const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING, retry: { retries: 3 } })
const admin = kafka.admin()

async function topic(name, numPartitions, configEntries = []) {
  const full = `node-${name}-${run}`
  await admin.createTopics({ topics: [{ topic: full, numPartitions, configEntries }], waitForLeaders: true })
  return full
}

async function withProducer(options, action) {
  const producer = kafka.producer(options)
  await producer.connect()
  try {
    return await action(producer)
  } finally {
    await producer.disconnect()
  }
}

// Reads `count` messages with a group of its own, or fails after 30 s.
async function readAll(name, count, options = {}) {
  const consumer = kafka.consumer({ groupId: `node-reader-${crypto.randomUUID()}`, ...options })
  await consumer.connect()
  const got = []
  let timer
  try {
    await consumer.subscribe({ topic: name, fromBeginning: true })
    await new Promise((resolve, reject) => {
      timer = setTimeout(() => reject(new Error(`${got.length} of ${count} messages`)), 30000)
      consumer.run({
        eachMessage: async ({ partition, message }) => {
          got.push({ partition, ...message })
          if (got.length === count) resolve()
        },
      }).catch(reject)
    })
  } finally {
    clearTimeout(timer)
    await consumer.disconnect()
  }
  return got
}

async function roundTrip(compression, name) {
  const full = await topic(`codec-${name}`, 1)
  const messages = []
  for (let i = 0; i < 1000; i++) {
    messages.push({
      key: i % 7 ? `key-${i}` : null,
      value: i % 11 ? `value-${i}-${'x'.repeat(i % 300)}` : null,
      timestamp: `${1700000000000 + i}`,
      headers: { index: `${i}` },
    })
  }
  await withProducer({}, (p) => p.send({ topic: full, messages, compression }))
  const got = await readAll(full, messages.length)
  got.forEach((message, i) => {
    assert.equal(message.offset, `${i}`)
    assert.equal(message.key && message.key.toString(), messages[i].key)
    assert.equal(message.value && message.value.toString(), messages[i].value)
    assert.equal(message.timestamp, messages[i].timestamp)
    assert.equal(message.headers.index.toString(), `${i}`)
  })
}

async function acks(value) {
  const full = await topic(`acks-${value}`, 1)
  const messages = Array.from({ length: 500 }, (_, i) => ({ value: `${i}` }))
  await withProducer({}, (p) => p.send({ topic: full, messages, acks: value }))
  const got = await readAll(full, 500)
  assert.deepEqual(got.map((m) => m.value.toString()), messages.map((m) => m.value))
}

async function idempotent() {
  const full = await topic('idempotent', 2)
  await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
    for (let i = 0; i < 50; i++) {
      await producer.send({ topic: full, acks: -1, messages: [0, 1].map((partition) => ({ partition, value: `${i}` })) })
    }
  })
  const next = [0, 0]
  for (const message of await readAll(full, 100)) assert.equal(Number(message.value), next[message.partition]++)
}

async function groupRebalance() {
  const full = await topic('group', 4)
  const groupId = `node-group-${run}`
  const members = [0, 1].map(() => kafka.consumer({ groupId, heartbeatInterval: 300, sessionTimeout: 10000 }))
  const assigned = [0, 0]
  members.forEach((member, i) => member.on(member.events.GROUP_JOIN, (e) => {
    assigned[i] = (e.payload.memberAssignment[full] || []).length
  }))
  const start = async (member) => {
    await member.connect()
    await member.subscribe({ topic: full, fromBeginning: true })
    await member.run({ eachMessage: async () => {} })
  }
  const until = async (condition) => {
    for (let i = 0; i < 300; i++) {
      if (condition()) return
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
    assert.fail(`assignments stay ${assigned}`)
  }
  try {
    await start(members[0])
    await until(() => assigned[0] === 4)
    await start(members[1])
    await until(() => assigned[0] === 2 && assigned[1] === 2)
    const { groups } = await admin.describeGroups([groupId])
    assert.equal(groups[0].state, 'Stable')
    assert.equal(groups[0].members.length, 2)
    await members[1].disconnect()
    await until(() => assigned[0] === 4)
  } finally {
    await Promise.all(members.map((member) => member.disconnect()))
  }
  await admin.deleteGroups([groupId])
}

async function offsets() {
  const full = await topic('offsets', 1)
  const groupId = `node-offsets-${run}`
  const messages = Array.from({ length: 100 }, (_, i) => ({ value: `${i}`, timestamp: `${1700000000000 + i * 1000}` }))
  await withProducer({}, (p) => p.send({ topic: full, messages }))
  assert.equal((await admin.fetchTopicOffsetsByTimestamp(full, 1700000049500))[0].offset, '50')
  await admin.setOffsets({ groupId, topic: full, partitions: [{ partition: 0, offset: '42' }] })
  assert.equal((await admin.fetchOffsets({ groupId, topics: [full] }))[0].partitions[0].offset, '42')
  const got = await readAll(full, 58, { groupId })
  assert.equal(got[0].offset, '42')
  await admin.deleteTopicRecords({ topic: full, partitions: [{ partition: 0, offset: '60' }] })
  assert.equal((await admin.fetchTopicOffsets(full))[0].low, '60')
}

async function largeAndOversize() {
  const full = await topic('large', 1, [{ name: 'max.message.bytes', value: '2000000' }])
  const value = crypto.randomBytes(1 << 20)
  await withProducer({}, async (producer) => {
    await producer.send({ topic: full, messages: [{ value }] })
    await assert.rejects(producer.send({ topic: full, messages: [{ value: Buffer.alloc(3000000) }] }), /larger than/)
  })
  const [message] = await readAll(full, 1, { maxBytesPerPartition: 4000000 })
  assert.ok(message.value.equals(value))
}

async function adminCalls() {
  const full = await topic('admin', 2)
  assert.equal(await admin.createTopics({ topics: [{ topic: full }] }), false)
  await admin.createPartitions({ topicPartitions: [{ topic: full, count: 5 }] })
  for (let i = 0; ; i++) {
    const { topics } = await admin.fetchTopicMetadata({ topics: [full] })
    if (topics[0].partitions.length === 5) break
    assert.ok(i < 50, 'five partitions')
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  await admin.alterConfigs({
    resources: [{ type: ConfigResourceTypes.TOPIC, name: full, configEntries: [{ name: 'retention.ms', value: '60000' }] }],
  })
  const { resources } = await admin.describeConfigs({
    resources: [{ type: ConfigResourceTypes.TOPIC, name: full }], includeSynonyms: false,
  })
  assert.ok(resources[0].configEntries.some((entry) => entry.configName === 'retention.ms'))
  const cluster = await admin.describeCluster()
  assert.ok(cluster.brokers.length >= 1)
  await admin.deleteTopics({ topics: [full] })
}

const cases = {
  round_trip_none: () => roundTrip(CompressionTypes.None, 'none'),
  round_trip_gzip: () => roundTrip(CompressionTypes.GZIP, 'gzip'),
  round_trip_snappy: () => roundTrip(CompressionTypes.Snappy, 'snappy'),
  round_trip_lz4: () => roundTrip(CompressionTypes.LZ4, 'lz4'),
  acks_0: () => acks(0),
  acks_1: () => acks(1),
  acks_all: () => acks(-1),
  idempotent_in_order: idempotent,
  group_rebalance: groupRebalance,
  offsets_and_times: offsets,
  large_and_oversize: largeAndOversize,
  admin: adminCalls,
}

async function main() {
  let failed = false
  await admin.connect()
  for (const [name, action] of Object.entries(cases)) {
    try {
      await action()
      console.log(`ok ${name}`)
    } catch (error) {
      failed = true
      console.log(`FAILED ${name}: ${error.stack.split('\n').slice(0, 3).join(' | ')}`)
    }
  }
  await admin.disconnect()
  process.exit(failed ? 1 : 0)
}

main()
