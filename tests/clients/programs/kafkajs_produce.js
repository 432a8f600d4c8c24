// kafkajs driven by JSON lines (the form is told in records.py): node kafkajs_produce.js BOOTSTRAP
// TOPIC FILE CODEC IDEMPOTENT. Owns the producing side only: kafkajs reads through groups alone.
// Prints one line `base P O` a request, then `offsets` as its admin client sees them.
'use strict'
const fs = require('fs')
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const [bootstrap, topic, file, codec, idempotent] = process.argv.slice(2)
const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))

const messageOf = (line) => {
  const fields = JSON.parse(line)
  const headers = {}
  for (const [name, value] of fields.h) {
    headers[name] = name in headers ? [].concat(headers[name], bytes(value)) : bytes(value)
  }
  const plain = { partition: fields.p, timestamp: String(fields.t), headers }
  return { ...plain, key: bytes(fields.k), value: bytes(fields.v) }
}

const main = async () => {
  const brokers = bootstrap.split(',')
  const kafka = new Kafka({ clientId: 'clients', brokers, logLevel: logLevel.ERROR })
  const producer = kafka.producer({
    idempotent: idempotent === 'true',
    maxInFlightRequests: 1,
    allowAutoTopicCreation: false,
  })
  await producer.connect()
  const messages = fs.readFileSync(file, 'utf8').trim().split('\n').map(messageOf)
  for (let start = 0; start < messages.length; start += 25) {
    const answers = await producer.send({
      topic,
      acks: -1,
      compression: CompressionTypes[codec],
      messages: messages.slice(start, start + 25),
    })
    for (const answer of answers) {
      if (answer.errorCode !== 0) throw new Error(`error ${answer.errorCode}`)
      console.log(`base ${answer.partition} ${answer.baseOffset}`)
    }
  }
  await producer.disconnect()
  const admin = kafka.admin()
  await admin.connect()
  const offsets = await admin.fetchTopicOffsets(topic)
  offsets.sort((one, other) => one.partition - other.partition)
  const ranges = offsets.map((entry) => `${entry.partition}:${entry.low}-${entry.high}`)
  console.log('offsets ' + ranges.join(' '))
  await admin.disconnect()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
