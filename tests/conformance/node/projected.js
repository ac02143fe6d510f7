// Reads COUNT records as a group that commits by itself, then SEEK_COUNT of partition 0 from
// SEEK_OFFSET. tests/conformance/test_projections.py says what it prints. A TOPIC that begins with ^
// is a pattern.
// Usage: node projected.js BOOTSTRAP TOPIC GROUP COUNT SEEK_OFFSET SEEK_COUNT ISOLATION
'use strict'
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')
const lz4 = require('lz4-napi')

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: async (buffer) => lz4.decompressFrame(buffer),
})

const [bootstrap, topic, group, count, seekOffset, seekCount, isolation] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })

// Reads `wanted` messages, and what else comes within `lingerMs`. kafkajs seeks once it runs.
async function read(word, groupId, wanted, lingerMs, offset) {
  const consumer = kafka.consumer({
    groupId, maxWaitTimeInMs: 200, readUncommitted: isolation !== 'read_committed',
  })
  await consumer.connect()
  await consumer.subscribe({
    topic: topic.startsWith('^') ? new RegExp(topic) : topic, fromBeginning: true,
  })
  await new Promise((resolve, reject) => {
    let got = 0
    let isSought = offset === undefined
    consumer.run({
      autoCommitInterval: 100,
      eachMessage: async ({ partition, message }) => {
        if (offset !== undefined && (!isSought || partition !== 0 || Number(message.offset) < offset)) return
        console.log(`${word} ${partition} ${message.offset} ${message.value}`)
        got += 1
        if (got === wanted) setTimeout(resolve, lingerMs)
      },
    }).catch(reject)
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    if (offset !== undefined) {
      consumer.on(consumer.events.GROUP_JOIN, () => {
        isSought = true
        consumer.seek({ topic, partition: 0, offset: `${offset}` })
      })
    }
  })
  await consumer.disconnect()
}

async function main() {
  await read('got', group, Number(count), 1500)
  await read('again', `${group}-seek`, Number(seekCount), 0, Number(seekOffset))
  process.exit(0)
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
