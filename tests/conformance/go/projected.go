package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Reads COUNT records as a group that commits by itself, then SEEK_COUNT of partition 0 from
// SEEK_OFFSET. tests/conformance/test_projections.py says what it prints. A TOPIC that begins with ^
// is a pattern.
// Usage: conformance projected BOOTSTRAP TOPIC GROUP COUNT SEEK_OFFSET SEEK_COUNT ISOLATION
func projectedMain(arguments []string) {
	bootstrap = arguments[0]
	topic, group := arguments[1], arguments[2]
	count, _ := strconv.Atoi(arguments[3])
	seekOffset, _ := strconv.ParseInt(arguments[4], 10, 64)
	seekCount, _ := strconv.Atoi(arguments[5])
	isolation := kgo.ReadUncommitted()
	if arguments[6] == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	ctx := context.Background()
	base := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.FetchIsolationLevel(isolation),
	}
	show := func(word string, fetches kgo.Fetches) int {
		for _, e := range fetches.Errors() {
			if e.Err != context.DeadlineExceeded {
				fmt.Fprintln(os.Stderr, e.Topic, e.Partition, e.Err)
				os.Exit(1)
			}
		}
		for _, r := range fetches.Records() {
			fmt.Printf("%s %d %d %s\n", word, r.Partition, r.Offset, r.Value)
		}
		return fetches.NumRecords()
	}
	if strings.HasPrefix(topic, "^") {
		base = append(base, kgo.ConsumeRegex())
	}
	consumer, err := kgo.NewClient(append(base,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitInterval(100*time.Millisecond),
	)...)
	if err != nil {
		panic(err)
	}
	for got := 0; got < count; {
		got += show("got", consumer.PollFetches(ctx))
	}
	for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); {
		limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		show("got", consumer.PollFetches(limited))
		cancel()
	}
	if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
		panic(err)
	}
	consumer.Close()
	seeker, err := kgo.NewClient(append(base, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {0: kgo.NewOffset().At(seekOffset)},
	}))...)
	if err != nil {
		panic(err)
	}
	for got := 0; got < seekCount; {
		got += show("again", seeker.PollFetches(ctx))
	}
	seeker.Close()
}
