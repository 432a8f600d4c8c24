// A processor of orders over sarama, in the lines of orders.py.
//
// Owns: BOOTSTRAP NAME INPUT OUTPUT SETTING... until SIGTERM, then it leaves. The client runs a
// claim for each partition; they share one producer, and so take turns with whole transactions.
// Must never: print `committed` before the broker has answered, or go on when it is fenced.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

type processor struct {
	producer             sarama.SyncProducer
	turn                 sync.Mutex
	group, input, output string
	batch                int
	pause                time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	say(line{Event: "started"})
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5:]); err != nil {
		end(err)
	}
}

func run(ctx context.Context, bootstrap, name, input, output string, words []string) error {
	set := settings(words)
	brokers := strings.Split(bootstrap, ",")
	config := configuration(name, set)
	one := &processor{group: set["group.id"], input: input, output: output,
		batch: number(set["max.poll.records"]), pause: milliseconds(set["pause.ms"])}
	err := patiently(ctx, func() (err error) {
		one.producer, err = sarama.NewSyncProducer(brokers, config)
		return err
	})
	if err != nil {
		return err
	}
	var member sarama.ConsumerGroup
	err = patiently(ctx, func() (err error) {
		member, err = sarama.NewConsumerGroup(brokers, one.group, config)
		return err
	})
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := member.Consume(ctx, []string{input}, one); err != nil {
			say(line{Event: "error", Code: err.Error()})
			time.Sleep(100 * time.Millisecond)
		}
	}
	if err := errors.Join(member.Close(), one.producer.Close()); err != nil {
		return err
	}
	say(line{Event: "closed"})
	return nil
}

func configuration(name string, set map[string]string) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = name
	config.Version = sarama.MaxVersion
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Transaction.ID = set["transactional.id"]
	config.Producer.Transaction.Timeout = milliseconds(set["transaction.timeout.ms"])
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = milliseconds(set["session.timeout.ms"])
	config.Consumer.Group.Heartbeat.Interval = milliseconds(set["heartbeat.interval.ms"])
	return config
}

func (one *processor) Setup(session sarama.ConsumerGroupSession) error {
	say(line{Event: "assigned", Places: session.Claims()[one.input]})
	return nil
}

func (one *processor) Cleanup(session sarama.ConsumerGroupSession) error {
	say(line{Event: "revoked", Places: session.Claims()[one.input]})
	return nil
}

// The orders of one partition, until the session ends.
func (one *processor) ConsumeClaim(session sarama.ConsumerGroupSession,
	claim sarama.ConsumerGroupClaim) error {
	for {
		var found []*sarama.ConsumerMessage
		select {
		case <-session.Context().Done():
			return nil
		case order, open := <-claim.Messages():
			if !open {
				return nil
			}
			found = append(found, order)
		}
		for len(found) < one.batch && len(claim.Messages()) > 0 {
			if order, open := <-claim.Messages(); open {
				found = append(found, order)
			}
		}
		if !one.transact(session, found) {
			return nil
		}
	}
}

// Bills for some orders. False: they were aborted.
func (one *processor) transact(session sarama.ConsumerGroupSession,
	found []*sarama.ConsumerMessage) bool {
	one.turn.Lock()
	defer one.turn.Unlock()
	// The session may have ended while the others had their turn.
	if session.Context().Err() != nil {
		return false
	}
	var ids []int64
	var bills []*sarama.ProducerMessage
	for _, order := range found {
		id, err := strconv.ParseInt(string(order.Key), 10, 64)
		if err != nil {
			panic(err)
		}
		ids = append(ids, id)
		bills = append(bills, &sarama.ProducerMessage{
			Topic: one.output, Partition: order.Partition, Key: sarama.ByteEncoder(order.Key),
			Value: sarama.ByteEncoder(append([]byte("bill of "), order.Value...)),
		})
	}
	err := one.steps(session, bills, found[len(found)-1], ids)
	if err == nil {
		say(line{Event: "committed", Ids: ids})
		return true
	}
	if one.producer.TxnStatus()&sarama.ProducerTxnFlagAbortableError == 0 {
		end(err)
	}
	if err := one.producer.AbortTxn(); err != nil {
		end(err)
	}
	say(line{Event: "aborted", Ids: ids, Code: err.Error()})
	return false
}

func (one *processor) steps(session sarama.ConsumerGroupSession, bills []*sarama.ProducerMessage,
	last *sarama.ConsumerMessage, ids []int64) error {
	if err := one.producer.BeginTxn(); err != nil {
		return err
	}
	if err := one.producer.SendMessages(bills); err != nil {
		return err
	}
	say(line{Event: "sent", Ids: ids})
	time.Sleep(one.pause)
	metadata := sarama.NewConsumerGroupMetadataFromSession(session, one.group, nil)
	err := one.producer.AddMessageToTxnWithGroupMetadata(last, metadata, nil)
	if err != nil {
		return err
	}
	return one.producer.CommitTxn()
}

// The client gives up soon when no broker is there.
func patiently(ctx context.Context, action func() error) error {
	for {
		err := action()
		if err == nil || ctx.Err() != nil {
			return err
		}
		say(line{Event: "error", Code: err.Error()})
		time.Sleep(100 * time.Millisecond)
	}
}

// Nobody knows whether the transaction has ended: a successor will look.
func end(err error) {
	var undelivered sarama.ProducerErrors
	if errors.As(err, &undelivered) {
		for _, one := range undelivered {
			err = errors.Join(err, one.Err)
		}
	}
	for _, told := range []error{sarama.ErrProducerFenced, sarama.ErrInvalidProducerEpoch,
		sarama.ErrInvalidProducerIDMapping} {
		if errors.Is(err, told) || strings.Contains(err.Error(), told.Error()) {
			say(line{Event: "fenced", Code: err.Error()})
			os.Exit(3)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
