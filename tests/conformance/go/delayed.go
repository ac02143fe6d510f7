package main

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Sends records to partition 0, each with its delay as a header; none for an empty one.
// Usage: conformance delayed BOOTSTRAP TOPIC VALUE=DELAY ...
func delayedMain(arguments []string) {
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(arguments[0]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		panic(err)
	}
	defer producer.Close()
	for _, argument := range arguments[2:] {
		value, delay, _ := strings.Cut(argument, "=")
		record := &kgo.Record{Topic: arguments[1], Value: []byte(value)}
		if delay != "" {
			record.Headers = []kgo.RecordHeader{{Key: "tw-delay", Value: []byte(delay)}}
		}
		if err := producer.ProduceSync(context.Background(), record).FirstErr(); err != nil {
			panic(err)
		}
	}
}
