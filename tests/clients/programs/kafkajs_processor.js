// A processor of orders over kafkajs, in the lines of orders.py: node kafkajs_processor.js BOOTSTRAP
// NAME INPUT OUTPUT SETTING... until SIGTERM, then it leaves.
//
// The client sends no generation with its offsets, so that nothing but the transactional id fences
// it; it joins again only when no handler runs. It takes a group's offsets as they are, and not as a
// transaction that is ending will leave them: after each commit the program waits until they are
// there, else the next owner could begin before them. After an error nobody knows whether a
// transaction has ended, so that it ends too, and a successor looks.
'use strict'
const fs = require('fs')
const { Kafka, PartitionAssigners, logLevel } = require('kafkajs')

const [bootstrap, name, input, output, ...words] = process.argv.slice(2)
const settings = Object.fromEntries(words.map((word) => word.split(/=(.*)/)))
const number = (key) => Number(settings[key])
const FENCED = ['PRODUCER_FENCED', 'INVALID_PRODUCER_EPOCH', 'INVALID_PRODUCER_ID_MAPPING']

let leaving = false
let working = Promise.resolve()

// One line in one write.
const say = (event, fields) => fs.writeSync(1, `${JSON.stringify({ event, ...fields })}\n`)

const end = (error) => {
  const fenced = FENCED.includes(error.type)
  if (fenced) say('fenced', { code: error.type })
  else console.error(error)
  process.exit(fenced ? 3 : 1)
}

// A commit is answered when it is decided.
const isThere = async (admin, partition, offset) => {
  const asked = { groupId: settings['group.id'], topics: [input] }
  for (;;) {
    const [topic] = await admin.fetchOffsets(asked)
    const found = topic.partitions.find((one) => one.partition === partition)
    if (found && Number(found.offset) >= Number(offset)) return
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

const transact = async (producer, admin, partition, orders) => {
  const ids = orders.map(({ key }) => Number(key))
  const transaction = await producer.transaction()
  const messages = orders.map(({ key, value }) => {
    return { partition, key, value: Buffer.concat([Buffer.from('bill of '), value]) }
  })
  await transaction.send({ topic: output, messages })
  say('sent', { ids })
  await new Promise((resolve) => setTimeout(resolve, number('pause.ms')))
  const offset = String(Number(orders[orders.length - 1].offset) + 1)
  const topics = [{ topic: input, partitions: [{ partition, offset }] }]
  await transaction.sendOffsets({ consumerGroupId: settings['group.id'], topics })
  await transaction.commit()
  await isThere(admin, partition, offset)
  say('committed', { ids })
}

const main = async () => {
  const kafka = new Kafka({
    clientId: name,
    brokers: bootstrap.split(','),
    logLevel: logLevel.ERROR,
    retry: { retries: 20, initialRetryTime: 100, maxRetryTime: 1000 },
  })
  const producer = kafka.producer({
    transactionalId: settings['transactional.id'],
    transactionTimeout: number('transaction.timeout.ms'),
    maxInFlightRequests: 1,
    idempotent: true,
  })
  const consumer = kafka.consumer({
    groupId: settings['group.id'],
    sessionTimeout: number('session.timeout.ms'),
    heartbeatInterval: number('heartbeat.interval.ms'),
    partitionAssigners: [PartitionAssigners.roundRobin],
    maxWaitTimeInMs: 200,
    allowAutoTopicCreation: false,
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    say('assigned', { p: payload.memberAssignment[input] || [] })
  })
  const admin = kafka.admin()
  process.on('SIGTERM', async () => {
    leaving = true
    await working
    await consumer.disconnect()
    await producer.disconnect()
    await admin.disconnect()
    say('closed', {})
    process.exit(0)
  })
  say('started', {})
  await producer.connect()
  await admin.connect()
  // Who had this id before is at its end before the group's offsets are asked for: this client
  // does not wait for those that are pending.
  const first = await producer.transaction()
  await first.abort()
  await consumer.connect()
  await consumer.subscribe({ topics: [input], fromBeginning: true })
  const eachBatch = async ({ batch, resolveOffset, isStale }) => {
    if (leaving || isStale()) return
    const orders = batch.messages.slice(0, number('max.poll.records'))
    working = transact(producer, admin, batch.partition, orders).catch(end)
    await working
    resolveOffset(orders[orders.length - 1].offset)
  }
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
}

main().catch(end)
