// Command delayed has sarama send records to partition 0, each with its delay as a header; none for
// an empty one.
// Usage: delayed BOOTSTRAP TOPIC VALUE=DELAY ...
package main

import (
	"os"
	"strings"

	"github.com/IBM/sarama"
)

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer([]string{os.Args[1]}, config)
	if err != nil {
		panic(err)
	}
	for _, argument := range os.Args[3:] {
		value, delay, _ := strings.Cut(argument, "=")
		message := &sarama.ProducerMessage{Topic: os.Args[2], Value: sarama.StringEncoder(value)}
		if delay != "" {
			message.Headers = []sarama.RecordHeader{{Key: []byte("tw-delay"), Value: []byte(delay)}}
		}
		if _, _, err := producer.SendMessage(message); err != nil {
			panic(err)
		}
	}
	if err := producer.Close(); err != nil {
		panic(err)
	}
}
