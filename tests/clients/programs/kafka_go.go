// kafka-go, driven by JSON lines in the form of records.py.
//
// Owns: BOOTSTRAP before one command. `produce TOPIC FILE CODEC` sends the records of a file;
// `consume TOPIC PARTITIONS` prints all records up to the ends of the start; `group TOPIC GROUP`
// is a member until SIGTERM, that prints `read` and `committed` with a partition and an offset.
// Must never: print `committed` before the broker has answered.
package main

import (
	"bufio"
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

	"github.com/segmentio/kafka-go"
)

// A record; bytes are base64 in JSON, and null stays null.
type record struct {
	Partition int     `json:"p"`
	Offset    *int64  `json:"o"`
	Timestamp int64   `json:"t"`
	Key       []byte  `json:"k"`
	Value     []byte  `json:"v"`
	Headers   [][]any `json:"h"`
}

type line struct {
	Event     string `json:"event"`
	Partition int    `json:"p"`
	Offset    int64  `json:"o"`
	Code      string `json:"code,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	brokers := strings.Split(os.Args[1], ",")
	words := os.Args[3:]
	var err error
	switch os.Args[2] {
	case "produce":
		err = produce(ctx, brokers, words[0], words[1], words[2])
	case "consume":
		err = consume(ctx, brokers, words[0], words[1])
	case "group":
		err = group(ctx, brokers, words[0], words[1])
	default:
		err = errors.New("unknown command " + os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func produce(ctx context.Context, brokers []string, topic, path, codec string) error {
	codecs := map[string]kafka.Compression{
		"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
	writer := &kafka.Writer{
		Addr: kafka.TCP(brokers...), Topic: topic, Compression: codecs[codec],
		RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond,
		// A record says where it belongs.
		Balancer: kafka.BalancerFunc(func(sent kafka.Message, _ ...int) int {
			return sent.WriterData.(int)
		}),
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var messages []kafka.Message
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var one record
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return err
		}
		headers, err := headersOf(one)
		if err != nil {
			return err
		}
		messages = append(messages, kafka.Message{
			Key: one.Key, Value: one.Value, Headers: headers, WriterData: one.Partition,
			Time: time.UnixMilli(one.Timestamp),
		})
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.Join(writer.WriteMessages(ctx, messages...), writer.Close())
}

func headersOf(one record) ([]kafka.Header, error) {
	var headers []kafka.Header
	for _, pair := range one.Headers {
		// Not through the type's own tags: a pair is an array of two.
		text, err := json.Marshal(pair[1])
		if err != nil {
			return nil, err
		}
		var value []byte
		if err := json.Unmarshal(text, &value); err != nil {
			return nil, err
		}
		headers = append(headers, kafka.Header{Key: pair[0].(string), Value: value})
	}
	return headers, nil
}

func consume(ctx context.Context, brokers []string, topic, partitions string) error {
	count, err := strconv.Atoi(partitions)
	if err != nil {
		return err
	}
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	for partition := range count {
		leader, err := kafka.DialLeader(ctx, "tcp", brokers[0], topic, partition)
		if err != nil {
			return err
		}
		end, err := leader.ReadLastOffset()
		if err = errors.Join(err, leader.Close()); err != nil {
			return err
		}
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: brokers, Topic: topic, Partition: partition, MaxBytes: 10e6,
			IsolationLevel: kafka.ReadCommitted, MaxWait: 200 * time.Millisecond,
		})
		for next := int64(0); next < end; {
			found, err := reader.ReadMessage(ctx)
			if err != nil {
				return err
			}
			next = found.Offset + 1
			headers := [][]any{}
			for _, header := range found.Headers {
				headers = append(headers, []any{header.Key, header.Value})
			}
			text, err := json.Marshal(record{partition, &found.Offset, found.Time.UnixMilli(),
				found.Key, found.Value, headers})
			if err != nil {
				return err
			}
			fmt.Fprintln(output, string(text))
		}
		if err := reader.Close(); err != nil {
			return err
		}
	}
	return nil
}

func group(ctx context.Context, brokers []string, topic, name string) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: brokers, Topic: topic, GroupID: name, MaxBytes: 10e6,
		StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond,
		SessionTimeout: 3 * time.Second, HeartbeatInterval: 300 * time.Millisecond,
		RebalanceTimeout: 5 * time.Second, MaxAttempts: 100,
	})
	say(line{Event: "started"})
	for ctx.Err() == nil {
		found, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			say(line{Event: "error", Code: err.Error()})
			continue
		}
		time.Sleep(2 * time.Millisecond)
		say(line{Event: "read", Partition: found.Partition, Offset: found.Offset})
		if err := reader.CommitMessages(context.Background(), found); err != nil {
			say(line{Event: "error", Code: err.Error()})
			continue
		}
		say(line{Event: "committed", Partition: found.Partition, Offset: found.Offset})
	}
	if err := reader.Close(); err != nil {
		return err
	}
	say(line{Event: "closed"})
	return nil
}

// One line in one write.
func say(said line) {
	text, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(text, '\n'))
}
