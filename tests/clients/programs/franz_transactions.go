// Transactions of franz-go driven by JSON lines (told in transactions.py).
//
// Owns: `transact FILE ID` runs the transactions of a file back to back and prints one line each;
// `consume TOPIC` prints all committed records in the form of records.py. On the command line
// BOOTSTRAP comes before them. The client's log goes to standard error.
// Must never: use a group, or go on after an error.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type transaction struct {
	Commit  bool     `json:"commit"`
	Records []record `json:"records"`
}

// A record; bytes are base64 in JSON, and null stays null.
type record struct {
	Topic     string  `json:"topic,omitempty"`
	Partition int32   `json:"p"`
	Offset    *int64  `json:"o"`
	Timestamp int64   `json:"t"`
	Key       []byte  `json:"k"`
	Value     []byte  `json:"v"`
	Headers   [][]any `json:"h"`
}

type answer struct {
	Offsets []int64 `json:"o"`
	EndMs   float64 `json:"end_ms"`
	Ms      float64 `json:"ms"`
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	words := os.Args
	seeds := kgo.SeedBrokers(strings.Split(words[1], ",")...)
	log := kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelDebug, nil))
	var err error
	switch words[2] {
	case "transact":
		err = transact(ctx, words[3], words[4], seeds, log)
	case "consume":
		err = consume(ctx, words[3], seeds)
	default:
		err = errors.New("unknown command " + words[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func transact(ctx context.Context, path, id string, options ...kgo.Opt) error {
	options = append(options, kgo.TransactionalID(id), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var one transaction
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return err
		}
		if err := run(ctx, client, one); err != nil {
			return err
		}
	}
	return lines.Err()
}

func run(ctx context.Context, client *kgo.Client, one transaction) error {
	started := time.Now()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	records := make([]*kgo.Record, 0, len(one.Records))
	for _, fields := range one.Records {
		headers := make([]kgo.RecordHeader, 0, len(fields.Headers))
		for _, pair := range fields.Headers {
			// Not through the type's own tags: a pair is an array of two.
			text, err := json.Marshal(pair[1])
			if err != nil {
				return err
			}
			var value []byte
			if err := json.Unmarshal(text, &value); err != nil {
				return err
			}
			headers = append(headers, kgo.RecordHeader{Key: pair[0].(string), Value: value})
		}
		records = append(records, &kgo.Record{
			Topic: fields.Topic, Partition: fields.Partition, Key: fields.Key, Value: fields.Value,
			Headers: headers, Timestamp: time.UnixMilli(fields.Timestamp),
		})
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	ending := time.Now()
	if err := client.EndTransaction(ctx, kgo.TransactionEndTry(one.Commit)); err != nil {
		return err
	}
	ended := time.Now()
	offsets := make([]int64, 0, len(records))
	for _, sent := range records {
		offsets = append(offsets, sent.Offset)
	}
	line, err := json.Marshal(answer{offsets, milliseconds(ended.Sub(ending)),
		milliseconds(ended.Sub(started))})
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return nil
}

// Reads up to the last stable offsets of the start. Markers are kept, so that an end is seen.
func consume(ctx context.Context, topic string, options ...kgo.Opt) error {
	admin, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer admin.Close()
	ends, err := stableEnds(ctx, admin, topic)
	if err != nil {
		return err
	}
	starts := map[int32]kgo.Offset{}
	for partition := range ends {
		starts[partition] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(append(options,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}))...)
	if err != nil {
		return err
	}
	defer client.Close()
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	for len(ends) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, found := range fetches.Records() {
			if found.Offset+1 >= ends[found.Partition] {
				delete(ends, found.Partition)
			}
			if found.Attrs.IsControl() {
				continue
			}
			headers := [][]any{}
			for _, header := range found.Headers {
				headers = append(headers, []any{header.Key, header.Value})
			}
			line, err := json.Marshal(record{
				Partition: found.Partition, Offset: &found.Offset, Key: found.Key,
				Timestamp: found.Timestamp.UnixMilli(), Value: found.Value, Headers: headers,
			})
			if err != nil {
				return err
			}
			fmt.Fprintln(output, string(line))
		}
	}
	return nil
}

// Last stable offsets of the partitions that have one above 0.
func stableEnds(ctx context.Context, client *kgo.Client, topic string) (map[int32]int64, error) {
	ask := kmsg.NewPtrMetadataRequest()
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = kmsg.StringPtr(topic)
	ask.Topics = append(ask.Topics, wanted)
	metadata, err := ask.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	list := kmsg.NewPtrListOffsetsRequest()
	list.ReplicaID = -1
	list.IsolationLevel = 1
	parts := kmsg.NewListOffsetsRequestTopic()
	parts.Topic = topic
	for _, partition := range metadata.Topics[0].Partitions {
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition = partition.Partition
		part.Timestamp = -1
		parts.Partitions = append(parts.Partitions, part)
	}
	list.Topics = append(list.Topics, parts)
	ends := map[int32]int64{}
	// One answer per broker that leads some of them.
	for _, shard := range client.RequestSharded(ctx, list) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, answered := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, partition := range answered.Partitions {
				if partition.ErrorCode != 0 {
					return nil, fmt.Errorf("ListOffsets: error %d", partition.ErrorCode)
				}
				if partition.Offset > 0 {
					ends[partition.Partition] = partition.Offset
				}
			}
		}
	}
	return ends, nil
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration.Microseconds()) / 1e3
}
