// Transactions of kafkajs driven by JSON lines (told in transactions.py): node
// kafkajs_transactions.js BOOTSTRAP FILE ID. Runs the transactions of the file back to back and
// prints one line each. Requests with their versions, and answers that are errors, go to standard
// error as `request NAME VERSION` and `error NAME VERSION TEXT`.
'use strict'
const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, file, transactionalId] = process.argv.slice(2)
const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const REQUEST = /^(Request|Response) (\w+)\(key: \d+, version: (\d+)\)/

const logCreator = () => ({ log }) => {
  const match = REQUEST.exec(log.message)
  if (!match) return
  const [, kind, name, version] = match
  if (kind === 'Request') console.error(`request ${name} ${version}`)
  else if (log.error) console.error(`error ${name} ${version} ${log.error}`)
}

// Messages of one transaction by topic, each with its place among the transaction's records.
const byTopic = (records) => {
  const topics = new Map()
  records.forEach((fields, index) => {
    const headers = {}
    for (const [name, value] of fields.h) headers[name] = bytes(value)
    const message = { partition: fields.p, timestamp: String(fields.t), headers }
    if (!topics.has(fields.topic)) topics.set(fields.topic, [])
    const plain = { ...message, key: bytes(fields.k), value: bytes(fields.v) }
    topics.get(fields.topic).push({ index, message: plain })
  })
  return topics
}

const transact = async (producer, line) => {
  const { commit, records } = JSON.parse(line)
  const topics = byTopic(records)
  const offsets = records.map(() => null)
  const started = performance.now()
  const transaction = await producer.transaction()
  if (topics.size > 0) {
    const topicMessages = [...topics].map(([topic, entries]) => {
      return { topic, messages: entries.map(({ message }) => message) }
    })
    for (const answer of await transaction.sendBatch({ acks: -1, topicMessages })) {
      if (answer.errorCode !== 0) throw new Error(`error ${answer.errorCode}`)
      const own = topics
        .get(answer.topicName)
        .filter(({ message }) => message.partition === answer.partition)
      own.forEach(({ index }, at) => (offsets[index] = Number(answer.baseOffset) + at))
    }
  }
  const ending = performance.now()
  await (commit ? transaction.commit() : transaction.abort())
  const ended = performance.now()
  console.log(JSON.stringify({ o: offsets, end_ms: ended - ending, ms: ended - started }))
}

const main = async () => {
  const brokers = bootstrap.split(',')
  const kafka = new Kafka({ clientId: 'clients', brokers, logLevel: logLevel.DEBUG, logCreator })
  const producer = kafka.producer({
    transactionalId,
    idempotent: true,
    maxInFlightRequests: 1,
    allowAutoTopicCreation: false,
  })
  await producer.connect()
  for (const line of fs.readFileSync(file, 'utf8').trim().split('\n')) {
    await transact(producer, line)
  }
  await producer.disconnect()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
