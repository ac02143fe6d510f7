// Command projected has sarama read COUNT records as a group that commits by itself, then SEEK_COUNT
// of partition 0 from SEEK_OFFSET. tests/conformance/test_projections.py says what it prints.
// Usage: projected BOOTSTRAP TOPIC GROUP COUNT SEEK_OFFSET SEEK_COUNT ISOLATION
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

type handler struct {
	got  atomic.Int64
	want int64
	done context.CancelFunc
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		show("got", message)
		session.MarkMessage(message, "")
		if h.got.Add(1) == h.want {
			time.AfterFunc(1500*time.Millisecond, h.done)
		}
	}
	return nil
}

func show(word string, message *sarama.ConsumerMessage) {
	fmt.Printf("%s %d %d %s\n", word, message.Partition, message.Offset, message.Value)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	brokers, topic, group := []string{os.Args[1]}, os.Args[2], os.Args[3]
	count, _ := strconv.ParseInt(os.Args[4], 10, 64)
	seekOffset, _ := strconv.ParseInt(os.Args[5], 10, 64)
	seekCount, _ := strconv.Atoi(os.Args[6])
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	if os.Args[7] == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	members, err := sarama.NewConsumerGroup(brokers, group, config)
	check(err)
	ctx, done := context.WithCancel(context.Background())
	h := &handler{want: count, done: done}
	for ctx.Err() == nil {
		check(members.Consume(ctx, []string{topic}, h))
	}
	check(members.Close())
	consumer, err := sarama.NewConsumer(brokers, config)
	check(err)
	partition, err := consumer.ConsumePartition(topic, 0, seekOffset)
	check(err)
	for i := 0; i < seekCount; i++ {
		show("again", <-partition.Messages())
	}
	check(partition.Close())
	check(consumer.Close())
}
