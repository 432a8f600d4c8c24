// A processor of orders over franz-go's GroupTransactSession, in the lines of orders.py.
//
// Owns: BOOTSTRAP NAME INPUT OUTPUT SETTING... until SIGTERM, then it leaves. A session aborts by
// itself what a rebalance has overtaken.
// Must never: print `committed` before the session says so, or go on when it is fenced.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type processor struct {
	session *kgo.GroupTransactSession
	output  string
	batch   int
	pause   time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	say(line{Event: "started"})
	err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4], settings(os.Args[5:]))
	if isFenced(err) {
		say(line{Event: "fenced", Code: err.Error()})
		os.Exit(3)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bootstrap, name, input, output string, set map[string]string) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ClientID(name),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelDebug, nil)),
		kgo.TransactionalID(set["transactional.id"]),
		kgo.TransactionTimeout(milliseconds(set["transaction.timeout.ms"])),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeTopics(input),
		kgo.ConsumerGroup(set["group.id"]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(500 * time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.OnPartitionsAssigned(tell("assigned")),
		kgo.OnPartitionsRevoked(tell("revoked")), kgo.OnPartitionsLost(tell("revoked")),
	}
	if set["group.protocol"] == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	} else {
		options = append(options, kgo.SessionTimeout(milliseconds(set["session.timeout.ms"])),
			kgo.HeartbeatInterval(milliseconds(set["heartbeat.interval.ms"])))
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return err
	}
	batch, err := strconv.Atoi(set["max.poll.records"])
	if err != nil {
		return err
	}
	one := &processor{session, output, batch, milliseconds(set["pause.ms"])}
	for ctx.Err() == nil {
		if err := one.turn(ctx); err != nil {
			return err
		}
	}
	session.Close()
	say(line{Event: "closed"})
	return nil
}

// Some orders, and their bills.
func (one *processor) turn(ctx context.Context) error {
	fetches := one.session.PollRecords(ctx, one.batch)
	if ctx.Err() != nil {
		return nil
	}
	fetches.EachError(func(_ string, _ int32, err error) {
		say(line{Event: "error", Code: err.Error()})
	})
	if fetches.NumRecords() == 0 {
		return nil
	}
	if err := one.session.Begin(); err != nil {
		return err
	}
	var ids []int64
	// What has begun is ended: a session is of no use after an end that was cut short.
	working := context.Background()
	promise := kgo.AbortingFirstErrPromise(one.session.Client())
	fetches.EachRecord(func(order *kgo.Record) {
		id, err := strconv.ParseInt(string(order.Key), 10, 64)
		if err != nil {
			panic(err)
		}
		ids = append(ids, id)
		bill := append([]byte("bill of "), order.Value...)
		one.session.Produce(working, &kgo.Record{
			Topic: one.output, Partition: order.Partition, Key: order.Key, Value: bill,
		}, promise.Promise())
	})
	failed := promise.Err()
	say(line{Event: "sent", Ids: ids})
	time.Sleep(one.pause)
	committed, err := one.session.End(working, failed == nil)
	switch {
	case committed && err == nil:
		say(line{Event: "committed", Ids: ids})
	case err == nil:
		say(line{Event: "aborted", Ids: ids, Code: fmt.Sprint(failed)})
	default:
		return errors.Join(err, failed)
	}
	return nil
}

func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

func tell(event string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
		for _, some := range places {
			say(line{Event: event, Places: some})
		}
	}
}
