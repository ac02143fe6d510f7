// Command follow is franz-go while a cell changes under it: an idempotent producer and a group of
// one consumer. Usage and output are those of Follow.java beside it.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const messagesPerSecond = 100

var (
	partitions    atomic.Int64
	done          atomic.Bool
	stopConsuming atomic.Bool
	output        sync.Mutex
)

func say(format string, arguments ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", arguments...)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func common(bootstrap string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
}

func produce(bootstrap, topic string, writer uint32) {
	client, err := kgo.NewClient(append(common(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	fail(err)
	defer client.Close()
	next := map[int64]uint32{}
	began := time.Now()
	for sent := int64(0); !done.Load(); sent++ {
		partition := sent % partitions.Load()
		number := next[partition]
		next[partition]++
		value := make([]byte, 88)
		binary.BigEndian.PutUint32(value, writer)
		binary.BigEndian.PutUint32(value[4:], number)
		record := &kgo.Record{Topic: topic, Partition: int32(partition), Value: value}
		client.Produce(context.Background(), record, func(r *kgo.Record, err error) {
			if err != nil {
				say("F %d %d %v", partition, number, err)
			} else {
				say("K %d %d %d", partition, number, r.Offset)
			}
		})
		time.Sleep(time.Until(began.Add(time.Duration(sent+1) * time.Second / messagesPerSecond)))
	}
	fail(client.Flush(context.Background()))
	for partition, count := range next {
		say("S %d %d", partition, count)
	}
}

func consume(bootstrap, topic string) {
	client, err := kgo.NewClient(append(common(bootstrap),
		kgo.ConsumerGroup(topic+"-go"),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
			var numbers []string
			for _, partition := range assigned[topic] {
				numbers = append(numbers, strconv.Itoa(int(partition)))
			}
			say("A %s", strings.Join(numbers, ","))
		}))...)
	fail(err)
	defer client.Close()
	commitAt := time.Now()
	for !stopConsuming.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetches := client.PollFetches(ctx)
		cancel()
		fetches.EachRecord(func(r *kgo.Record) {
			writer := binary.BigEndian.Uint32(r.Value)
			say("D %d %d %d %d", r.Partition, r.Offset, writer, binary.BigEndian.Uint32(r.Value[4:]))
		})
		if time.Now().After(commitAt) {
			commit(client, topic)
			commitAt = time.Now().Add(200 * time.Millisecond)
		}
	}
	commit(client, topic)
}

func commit(client *kgo.Client, topic string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	offsets := client.UncommittedOffsets()[topic]
	if len(offsets) == 0 {
		return
	}
	// Not acknowledged: committed with what comes next.
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		return
	}
	committed := client.CommittedOffsets()[topic]
	for partition, offset := range offsets {
		if committed[partition].Offset >= offset.Offset {
			say("C %d %d", partition, offset.Offset)
		}
	}
}

func main() {
	count, err := strconv.Atoi(os.Args[3])
	fail(err)
	writer, err := strconv.Atoi(os.Args[4])
	fail(err)
	partitions.Store(int64(count))
	var producing, consuming sync.WaitGroup
	producing.Add(1)
	consuming.Add(1)
	go func() { defer producing.Done(); produce(os.Args[1], os.Args[2], uint32(writer)) }()
	go func() { defer consuming.Done(); consume(os.Args[1], os.Args[2]) }()
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		if grown, found := strings.CutPrefix(input.Text(), "grow "); found {
			count, err := strconv.Atoi(grown)
			fail(err)
			partitions.Store(int64(count))
		} else if input.Text() == "stop producing" {
			done.Store(true)
			producing.Wait()
		}
	}
	done.Store(true)
	producing.Wait()
	stopConsuming.Store(true)
	consuming.Wait()
}
