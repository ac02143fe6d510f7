package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A load on one topic while a cell is being maltreated: one idempotent producer, two members of a
// group. Prints what happens, a line an event; tests/conformance/cell_load.py says which.
// Usage: conformance cell BOOTSTRAP TOPIC MESSAGES_PER_S

var printLock sync.Mutex

func event(format string, values ...any) {
	printLock.Lock()
	defer printLock.Unlock()
	fmt.Println(strings.ReplaceAll(fmt.Sprintf(format, values...), "\n", " "))
}

// What a user need not care for: a broker that died, a coordinator that moved, a rebalance.
func isPassing(err error) bool {
	var network *net.OpError
	return kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err) || errors.As(err, &network) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kerr.IllegalGeneration) ||
		errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.RebalanceInProgress)
}

func cellClient(options ...kgo.Opt) (*kgo.Client, error) {
	common := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
	return kgo.NewClient(append(common, options...)...)
}

func cellWriter(topic string, rate int, done *atomic.Bool) {
	var partitions atomic.Int32
	partitions.Store(1)
	follow := kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
		return func(r *kgo.Record, n int) int {
			partitions.Store(int32(n))
			return int(r.Partition)
		}
	})
	c, err := cellClient(kgo.RecordPartitioner(follow), kgo.ProducerLinger(2*time.Millisecond))
	if err != nil {
		event("error writer %v", err)
		return
	}
	defer c.Close()
	numbers := map[int32]uint32{}
	began := time.Now()
	for sent := 0; !done.Load(); sent++ {
		partition := int32(sent) % partitions.Load()
		number := numbers[partition]
		numbers[partition]++
		value := make([]byte, 88)
		binary.BigEndian.PutUint32(value[4:], number)
		event("sent %d %d", partition, number)
		record := &kgo.Record{Topic: topic, Partition: partition, Value: value}
		c.Produce(context.Background(), record, func(r *kgo.Record, err error) {
			if err != nil {
				event("failed %d %d %v", partition, number, err)
			} else {
				event("acknowledged %d %d %d", partition, number, r.Offset)
			}
		})
		time.Sleep(time.Until(began.Add(time.Duration(sent+1) * time.Second / time.Duration(rate))))
	}
	if err := c.Flush(context.Background()); err != nil {
		event("error writer %v", err)
	}
	event("written")
}

func cellReader(topic, name string, done *atomic.Bool) {
	uncommitted := map[int32]int64{}
	commit := func(c *kgo.Client) {
		if len(uncommitted) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var records []*kgo.Record
		for partition, offset := range uncommitted {
			records = append(records, &kgo.Record{Topic: topic, Partition: partition, Offset: offset - 1, LeaderEpoch: -1})
		}
		err := c.CommitRecords(ctx, records...)
		if err == nil {
			for partition, offset := range uncommitted {
				event("committed %s %d %d", name, partition, offset)
			}
			clear(uncommitted)
		} else if isPassing(err) {
			// Not acknowledged; what is read next is committed with the next attempt.
			event("retried %s %v", name, err)
		} else {
			event("error %s %v", name, err)
		}
	}
	forget := func(partitions []int32) {
		for _, partition := range partitions {
			delete(uncommitted, partition)
		}
	}
	c, err := cellClient(
		kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic+"-readers"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(time.Second),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			for _, partition := range got[topic] {
				event("assigned %s %d", name, partition)
			}
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, c *kgo.Client, lost map[string][]int32) {
			commit(c)
			forget(lost[topic])
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { forget(lost[topic]) }),
	)
	if err != nil {
		event("error %s %v", name, err)
		return
	}
	commitAt := time.Now()
	for !done.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		fetches := c.PollFetches(ctx)
		cancel()
		for _, e := range fetches.Errors() {
			// It tells of a lost group session and goes on by itself.
			var session *kgo.ErrGroupSession
			if errors.As(e.Err, &session) && isPassing(session.Err) {
				event("retried %s %v", name, session)
			} else if !errors.Is(e.Err, context.DeadlineExceeded) {
				event("error %s %s[%d] %v", name, e.Topic, e.Partition, e.Err)
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			writer, number := binary.BigEndian.Uint32(r.Value), binary.BigEndian.Uint32(r.Value[4:])
			event("read %s %d %d %d %d", name, r.Partition, r.Offset, writer, number)
			uncommitted[r.Partition] = r.Offset + 1
		})
		if time.Now().After(commitAt) {
			commit(c)
			commitAt = time.Now().Add(200 * time.Millisecond)
		}
		c.AllowRebalance()
	}
	commit(c)
	c.CloseAllowingRebalance()
}

func cellMain(topic string, rate int) {
	var stopWriting, stopReading atomic.Bool
	var all sync.WaitGroup
	run := func(f func()) {
		all.Add(1)
		go func() {
			defer all.Done()
			f()
		}()
	}
	run(func() { cellWriter(topic, rate, &stopWriting) })
	for _, name := range []string{"reader-0", "reader-1"} {
		run(func() { cellReader(topic, name, &stopReading) })
	}
	commands := bufio.NewScanner(os.Stdin)
	// Two lines: stop writing, stop reading.
	commands.Scan()
	stopWriting.Store(true)
	commands.Scan()
	stopReading.Store(true)
	all.Wait()
}
