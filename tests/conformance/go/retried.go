package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Reads COUNT messages as a group that commits by itself, and what else comes within 1.5 s. With
// MODE handle it says of some that they have failed, as tests/conformance/test_retried_clients.py
// says.
// Usage: conformance retried BOOTSTRAP TOPIC GROUP COUNT MODE
func retriedMain(arguments []string) {
	bootstrap, topic, group, mode := arguments[0], arguments[1], arguments[2], arguments[4]
	var count int
	fmt.Sscan(arguments[3], &count)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	var until time.Time
	for got := 0; got < count || time.Now().Before(until); {
		limited, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := client.PollFetches(limited)
		cancel()
		for _, r := range fetches.Records() {
			attempt, reason := "1", "-"
			for _, header := range r.Headers {
				switch header.Key {
				case "tw-attempt":
					attempt = string(header.Value)
				case "tw-reason":
					reason = string(header.Value)
				}
			}
			fmt.Printf("got %d %d %s %s %s\n", r.Partition, r.Offset, attempt, reason, r.Value)
			if name := outcome(string(r.Value), attempt); mode == "handle" && name != "" {
				position := fmt.Sprintf("%d:%d", r.Partition, r.Offset)
				nack := &kgo.Record{Topic: topic, Partition: r.Partition | 1, Headers: []kgo.RecordHeader{
					{Key: name, Value: []byte(position)},
					{Key: "tw-reason", Value: []byte("failed-" + attempt)},
				}}
				if err := client.ProduceSync(context.Background(), nack).FirstErr(); err != nil {
					panic(err)
				}
			}
			if got++; got == count {
				until = time.Now().Add(1500 * time.Millisecond)
			}
		}
	}
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		panic(err)
	}
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
