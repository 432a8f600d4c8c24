// A member of a consumer group over franz-go, in the lines that group_checker.py reads.
//
// Owns: BOOTSTRAP TOPIC NAME SETTING... until SIGTERM, then it leaves. A rebalance waits while
// records are in hand, and before anything is given up it is committed.
// Must never: print `revoked` before the work on these partitions is over, or `commit` before the
// broker has answered.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const commitEvery = 200 * time.Millisecond

type line struct {
	Event   string          `json:"event"`
	Ns      int64           `json:"ns"`
	Member  string          `json:"member,omitempty"`
	Places  []int32         `json:"p,omitempty"`
	Asked   int64           `json:"asked,omitempty"`
	Offsets map[int32]int64 `json:"offsets,omitempty"`
	Code    string          `json:"code,omitempty"`
}

// A record names one partition where other lines name several.
type recordLine struct {
	Event  string `json:"event"`
	Ns     int64  `json:"ns"`
	Member string `json:"member"`
	Place  int32  `json:"p"`
	Offset int64  `json:"o"`
}

type member struct {
	topic, name string
	// By partition: the offset to commit, when it is not committed yet. Never used by two at once:
	// no callback runs between a poll and AllowRebalance.
	next map[int32]int64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	say(&line{Event: "started"})
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bootstrap, topic, name string, words []string) error {
	one := &member{topic: topic, name: name, next: map[int32]int64{}}
	options, err := groupOptions(words)
	if err != nil {
		return err
	}
	options = append(options, kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ClientID(name), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(500*time.Millisecond), kgo.OnPartitionsAssigned(one.assigned),
		kgo.OnPartitionsRevoked(one.revoked), kgo.OnPartitionsLost(one.lost))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	committed := time.Now()
	for ctx.Err() == nil {
		one.poll(ctx, client)
		if time.Since(committed) > commitEvery {
			one.commit(client)
			committed = time.Now()
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	say(&line{Event: "closed", Member: name})
	return nil
}

func groupOptions(words []string) ([]kgo.Opt, error) {
	var options []kgo.Opt
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "group.id":
			options = append(options, kgo.ConsumerGroup(value))
		case "session.timeout.ms":
			options = append(options, kgo.SessionTimeout(milliseconds(value)))
		case "heartbeat.interval.ms":
			options = append(options, kgo.HeartbeatInterval(milliseconds(value)))
		case "partition.assignment.strategy":
			options = append(options, kgo.Balancers(map[string]kgo.GroupBalancer{
				"range": kgo.RangeBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
			}[value]))
		case "group.protocol":
			options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
		default:
			return nil, errors.New("unknown setting " + key)
		}
	}
	return options, nil
}

// Records of one moment, and what went wrong.
func (one *member) poll(ctx context.Context, client *kgo.Client) {
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	fetches := client.PollFetches(soon)
	fetches.EachError(func(_ string, _ int32, err error) {
		if soon.Err() == nil {
			say(&line{Event: "error", Member: one.name, Code: err.Error()})
		}
	})
	fetches.EachRecord(func(found *kgo.Record) {
		write(&recordLine{"record", now(), one.name, found.Partition, found.Offset})
		one.next[found.Partition] = found.Offset + 1
	})
}

func (one *member) assigned(_ context.Context, _ *kgo.Client, given map[string][]int32) {
	if len(given[one.topic]) > 0 {
		say(&line{Event: "assigned", Member: one.name, Places: given[one.topic]})
	}
}

func (one *member) revoked(_ context.Context, client *kgo.Client, taken map[string][]int32) {
	one.commit(client)
	one.giveUp("revoked", taken)
}

// Somebody else may have them already: nothing is committed.
func (one *member) lost(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
	one.giveUp("lost", taken)
}

func (one *member) giveUp(event string, taken map[string][]int32) {
	for _, place := range taken[one.topic] {
		delete(one.next, place)
	}
	if len(taken[one.topic]) > 0 {
		say(&line{Event: event, Member: one.name, Places: taken[one.topic]})
	}
}

// What has been read; asks and waits.
func (one *member) commit(client *kgo.Client) {
	if len(one.next) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	offsets := map[int32]kgo.EpochOffset{}
	for place, offset := range one.next {
		offsets[place] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	asked := now()
	all := map[string]map[int32]kgo.EpochOffset{one.topic: offsets}
	client.CommitOffsetsSync(ctx, all, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest,
		answer *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			say(&line{Event: "commit_failed", Member: one.name, Code: err.Error()})
			return
		}
		one.answered(asked, answer, offsets)
	})
}

// What the broker says about each partition.
func (one *member) answered(asked int64, answer *kmsg.OffsetCommitResponse,
	offsets map[int32]kgo.EpochOffset) {
	done := map[int32]int64{}
	for _, topic := range answer.Topics {
		for _, place := range topic.Partitions {
			if err := kerr.ErrorForCode(place.ErrorCode); err != nil {
				say(&line{Event: "commit_failed", Member: one.name, Code: err.Error()})
				continue
			}
			done[place.Partition] = offsets[place.Partition].Offset
			delete(one.next, place.Partition)
		}
	}
	if len(done) > 0 {
		say(&line{Event: "commit", Member: one.name, Asked: asked, Offsets: done})
	}
}

func milliseconds(text string) time.Duration {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return time.Duration(number) * time.Millisecond
}

func say(said *line) {
	said.Ns = now()
	write(said)
}

// One line in one write.
func write(said any) {
	text, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(text, '\n'))
}

// The machine's monotonic clock, which this language keeps to itself.
func now() int64 {
	var time syscall.Timespec
	const monotonic = 1
	_, _, code := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic,
		uintptr(unsafe.Pointer(&time)), 0)
	if code != 0 {
		panic(code)
	}
	return time.Nano()
}
