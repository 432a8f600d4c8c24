// A member of a consumer group over kafkajs, in the lines that group_checker.py reads: node
// kafkajs_group.js BOOTSTRAP TOPIC NAME SETTING... until SIGTERM, then it leaves.
//
// kafkajs calls nobody before it gives its partitions up. Its log tells: it names each request at
// the moment it is written, and by then no handler runs any more. So `revoked` is printed as
// JoinGroup or LeaveGroup goes out, or a crash is told. A JoinGroup that got no answer, because
// the connection broke, is not tried again at once: the client first fetches by the assignment
// that it had. It is a member still, so that is told as what it is, an assignment, and has to keep
// the rules of one. What a handler has read is committed before it returns. Told that the group
// does not know it, the client throws away its member id: that is `lost`.
'use strict'
const fs = require('fs')
const { Kafka, PartitionAssigners, logLevel } = require('kafkajs')

const [bootstrap, topic, member, ...words] = process.argv.slice(2)
const settings = Object.fromEntries(words.map((word) => word.split(/=(.*)/)))
const UNKNOWN = /^The coordinator is not aware of this member/
const GIVES_UP = /^(Request (JoinGroup|LeaveGroup)\(|Crash: )/

let owned = []
let before = [] // What it fetches by when it starts to fetch and has not joined again.
let leaving = false
let working = Promise.resolve()

// One line in one write. The clock is the monotonic one of the machine, in nanoseconds.
const say = (event, fields) => {
  const line = JSON.stringify({ event, ...fields }).slice(1)
  fs.writeSync(1, `{"ns":${process.hrtime.bigint()},${line}\n`)
}

const giveUp = (event) => {
  if (owned.length > 0) say(event, { member, p: owned })
  owned = []
}

const own = (partitions) => {
  owned = before = partitions
  say('assigned', { member, p: owned })
}

const logCreator = () => ({ namespace, log }) => {
  if (UNKNOWN.test(log.message)) giveUp('lost')
  if (GIVES_UP.test(log.message)) giveUp('revoked')
  if (/^(Request Leave|Crash: )/.test(log.message)) before = []
  const fetches = namespace === 'FetchManager' && log.message === 'Starting...'
  if (fetches && owned.length < before.length && !leaving) own(before)
}

const commit = async (consumer, offsets) => {
  const asked = process.hrtime.bigint()
  const partitions = Object.entries(offsets).map(([partition, offset]) => {
    return { partition: Number(partition), offset: String(offset) }
  })
  try {
    await consumer({ topics: [{ topic, partitions }] })
  } catch (error) {
    say('commit_failed', { member, code: error.type || error.name })
    throw error
  }
  const ns = process.hrtime.bigint()
  // The time it asked is larger than a number of this language holds exactly.
  const rest = JSON.stringify({ event: 'commit', member, offsets }).slice(1)
  fs.writeSync(1, `{"ns":${ns},"asked":${asked},${rest}\n`)
}

const eachBatch = async ({ batch, resolveOffset, commitOffsetsIfNecessary }) => {
  if (leaving) return
  let done
  working = new Promise((resolve) => (done = resolve))
  try {
    let last
    for (const { offset } of batch.messages) {
      say('record', { member, p: batch.partition, o: Number(offset) })
      last = offset
    }
    await commit(commitOffsetsIfNecessary, { [batch.partition]: Number(last) + 1 })
    resolveOffset(last)
  } finally {
    done()
  }
}

// Before it runs, the client gives up soon when no broker is there.
const patiently = async (action) => {
  for (;;) {
    try {
      return await action()
    } catch (error) {
      if (!error.retriable && error.name !== 'KafkaJSNumberOfRetriesExceeded') throw error
      say('error', { member, code: error.name })
    }
  }
}

const main = async () => {
  const kafka = new Kafka({
    clientId: member,
    brokers: bootstrap.split(','),
    logLevel: logLevel.DEBUG,
    logCreator,
    retry: { retries: 20, initialRetryTime: 100, maxRetryTime: 1000 },
  })
  const consumer = kafka.consumer({
    groupId: settings['group.id'],
    sessionTimeout: Number(settings['session.timeout.ms']),
    heartbeatInterval: Number(settings['heartbeat.interval.ms']),
    partitionAssigners: [PartitionAssigners.roundRobin],
    minBytes: 100_000, // Not there: an answer, and so a commit, every 200 ms.
    maxWaitTimeInMs: 200,
    allowAutoTopicCreation: false,
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    if (leaving) return
    giveUp('lost')
    own(payload.memberAssignment[topic] || [])
  })
  process.on('SIGTERM', async () => {
    leaving = true
    await working
    giveUp('revoked')
    await consumer.disconnect()
    say('closed', { member })
    process.exit(0)
  })
  say('started', {})
  await patiently(() => consumer.connect())
  await patiently(() => consumer.subscribe({ topics: [topic], fromBeginning: true }))
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
