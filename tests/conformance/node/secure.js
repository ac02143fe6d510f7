// Sends and reads a message over TLS, with nobody asked who it is and as alice by each mechanism.
// Prints "ok WAY" or "FAILED WAY: why" for every way.
// Usage: node secure.js SSL_ADDRESS SASL_SSL_ADDRESS CA_FILE TOPIC
'use strict'
const { readFileSync } = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const [sslAddress, saslAddress, caFile, topic] = process.argv.slice(2)

async function talk(way) {
  const kafka = new Kafka({
    brokers: [way === 'SSL' ? sslAddress : saslAddress],
    ssl: { ca: [readFileSync(caFile, 'utf-8')] },
    sasl: way === 'SSL' ? undefined : { mechanism: way.toLowerCase(), username: 'alice', password: 'secret' },
    logLevel: logLevel.NOTHING,
    retry: { retries: 3 },
  })
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ key: 'kafkajs', value: way }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: `kafkajs-${way}` })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let timer
  try {
    await new Promise((resolve, reject) => {
      timer = setTimeout(() => reject(new Error('it did not come back')), 30000)
      consumer.run({
        eachMessage: async ({ message }) => {
          if (String(message.key) === 'kafkajs' && String(message.value) === way) resolve()
        },
      }).catch(reject)
    })
  } finally {
    clearTimeout(timer)
    await consumer.disconnect()
  }
}

async function main() {
  let failed = false
  for (const way of ['SSL', 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512']) {
    try {
      await talk(way)
      console.log(`ok ${way}`)
    } catch (problem) {
      failed = true
      console.log(`FAILED ${way}: ${problem}`)
    }
  }
  process.exit(failed ? 1 : 0)
}

main()
