// Command retried has sarama read COUNT messages as a group that commits by itself, and what else
// comes within 1.5 s. With MODE handle it says of some that they have failed, as
// tests/conformance/test_retried_clients.py says.
// Usage: retried BOOTSTRAP TOPIC GROUP COUNT MODE
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

type handler struct {
	producer sarama.SyncProducer
	handles  bool
	got      atomic.Int64
	want     int64
	done     context.CancelFunc
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		attempt, reason := "1", "-"
		for _, header := range message.Headers {
			switch string(header.Key) {
			case "tw-attempt":
				attempt = string(header.Value)
			case "tw-reason":
				reason = string(header.Value)
			}
		}
		fmt.Printf("got %d %d %s %s %s\n", message.Partition, message.Offset, attempt, reason, message.Value)
		if name := outcome(string(message.Value), attempt); h.handles && name != "" {
			position := fmt.Sprintf("%d:%d", message.Partition, message.Offset)
			_, _, err := h.producer.SendMessage(&sarama.ProducerMessage{
				Topic:     message.Topic,
				Partition: message.Partition | 1,
				Headers: []sarama.RecordHeader{
					{Key: []byte(name), Value: []byte(position)},
					{Key: []byte("tw-reason"), Value: []byte("failed-" + attempt)},
				},
			})
			check(err)
		}
		session.MarkMessage(message, "")
		if h.got.Add(1) == h.want {
			time.AfterFunc(1500*time.Millisecond, h.done)
		}
	}
	return nil
}

// The header that says what became of a message; none for one that is done.
func outcome(value string, attempt string) string {
	kind, _, _ := strings.Cut(value, ":")
	switch {
	case kind == "fail", kind == "once" && attempt == "1":
		return "tw-nack"
	case kind == "dead":
		return "tw-dead-letter"
	}
	return ""
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	brokers, topic, group := []string{os.Args[1]}, os.Args[2], os.Args[3]
	count, err := strconv.ParseInt(os.Args[4], 10, 64)
	check(err)
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer(brokers, config)
	check(err)
	members, err := sarama.NewConsumerGroup(brokers, group, config)
	check(err)
	ctx, done := context.WithCancel(context.Background())
	h := &handler{producer: producer, handles: os.Args[5] == "handle", want: count, done: done}
	for ctx.Err() == nil {
		check(members.Consume(ctx, []string{topic}, h))
	}
	check(members.Close())
	check(producer.Close())
}
