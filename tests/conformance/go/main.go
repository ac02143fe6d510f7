// Command conformance drives franz-go against a running broker and prints one line a case:
// "ok NAME" or "FAILED NAME: why". Usage: conformance BOOTSTRAP, or as cell.go,
// projected.go, delayed.go, retried.go or secure.go says.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap string
	run       = fmt.Sprintf("%08x", rand.Uint32())
)

const caseTimeout = 60 * time.Second

func client(ctx context.Context, options ...kgo.Opt) (*kgo.Client, error) {
	common := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(500 * time.Millisecond),
	}
	return kgo.NewClient(append(common, options...)...)
}

func topic(ctx context.Context, name string, partitions int32, configs map[string]*string) (string, error) {
	topic := "go-" + name + "-" + run
	c, err := client(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	response, err := kadm.NewClient(c).CreateTopic(ctx, partitions, 1, configs, topic)
	if err == nil {
		err = response.Err
	}
	return topic, err
}

func send(ctx context.Context, topic string, partition int32, count int, options ...kgo.Opt) error {
	c, err := client(ctx, options...)
	if err != nil {
		return err
	}
	defer c.Close()
	var records []*kgo.Record
	for i := 0; i < count; i++ {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Key: []byte(fmt.Sprint("k", i)), Value: []byte(fmt.Sprint("v", i))})
	}
	return c.ProduceSync(ctx, records...).FirstErr()
}

func read(ctx context.Context, c *kgo.Client, count int) ([]*kgo.Record, error) {
	var got []*kgo.Record
	for len(got) < count {
		fetches := c.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return got, fmt.Errorf("%d of %d records: %w", len(got), count, err)
		}
		for _, e := range fetches.Errors() {
			return got, fmt.Errorf("%s[%d]: %w", e.Topic, e.Partition, e.Err)
		}
		got = append(got, fetches.Records()...)
	}
	if len(got) != count {
		return got, fmt.Errorf("wanted %d records, got %d", count, len(got))
	}
	return got, nil
}

func readAll(ctx context.Context, topic string, count int, options ...kgo.Opt) ([]*kgo.Record, error) {
	options = append(options, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	c, err := client(ctx, options...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return read(ctx, c, count)
}

func roundTrip(codec kgo.CompressionCodec, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		topic, err := topic(ctx, "codec-"+name, 1, nil)
		if err != nil {
			return err
		}
		c, err := client(ctx, kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(50*time.Millisecond))
		if err != nil {
			return err
		}
		defer c.Close()
		var sent []*kgo.Record
		for i := 0; i < 2000; i++ {
			r := &kgo.Record{Topic: topic, Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i))}
			if i%7 != 0 {
				r.Key = []byte(fmt.Sprint("key-", i))
			}
			if i%11 != 0 {
				r.Value = []byte(fmt.Sprint("value-", i, strings.Repeat("x", i%300)))
			}
			r.Headers = []kgo.RecordHeader{{Key: "index", Value: []byte(fmt.Sprint(i))}, {Key: "nothing"}}
			sent = append(sent, r)
		}
		if err := c.ProduceSync(ctx, sent...).FirstErr(); err != nil {
			return err
		}
		got, err := readAll(ctx, topic, len(sent))
		if err != nil {
			return err
		}
		for i, r := range got {
			s := sent[i]
			same := r.Offset == int64(i) && bytes.Equal(r.Key, s.Key) && (r.Key == nil) == (s.Key == nil) &&
				bytes.Equal(r.Value, s.Value) && (r.Value == nil) == (s.Value == nil) &&
				r.Timestamp.Equal(s.Timestamp) && len(r.Headers) == 2 &&
				string(r.Headers[0].Value) == fmt.Sprint(i) && r.Headers[1].Value == nil
			if !same {
				return fmt.Errorf("record %d came back different: %+v", i, r)
			}
		}
		return nil
	}
}

func acks(acks kgo.Acks, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		topic, err := topic(ctx, "acks-"+name, 1, nil)
		if err != nil {
			return err
		}
		if err := send(ctx, topic, 0, 500, kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite()); err != nil {
			return err
		}
		_, err = readAll(ctx, topic, 500)
		return err
	}
}

func idempotentInOrder(ctx context.Context) error {
	topic, err := topic(ctx, "idempotent", 3, nil)
	if err != nil {
		return err
	}
	c, err := client(ctx, kgo.ProducerBatchMaxBytes(512))
	if err != nil {
		return err
	}
	defer c.Close()
	for i := 0; i < 6000; i++ {
		c.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(i % 3), Value: []byte(fmt.Sprint(i))}, nil)
	}
	if err := c.Flush(ctx); err != nil {
		return err
	}
	got, err := readAll(ctx, topic, 6000)
	if err != nil {
		return err
	}
	next := []int{0, 1, 2}
	for _, r := range got {
		if string(r.Value) != fmt.Sprint(next[r.Partition]) {
			return fmt.Errorf("partition %d: wanted %d, got %s", r.Partition, next[r.Partition], r.Value)
		}
		next[r.Partition] += 3
	}
	return nil
}

// member is one group consumer whose assignment can be watched.
type member struct {
	*kgo.Client
	mu       sync.Mutex
	assigned map[int32]bool
}

func newMember(ctx context.Context, group, topic string, options ...kgo.Opt) (*member, error) {
	m := &member{assigned: map[int32]bool{}}
	gain := func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range added[topic] {
			m.assigned[p] = true
		}
	}
	lose := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range lost[topic] {
			delete(m.assigned, p)
		}
	}
	options = append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(gain), kgo.OnPartitionsRevoked(lose), kgo.OnPartitionsLost(lose))
	c, err := client(ctx, options...)
	m.Client = c
	return m, err
}

func (m *member) waitFor(ctx context.Context, partitions int) error {
	for {
		m.mu.Lock()
		n := len(m.assigned)
		m.mu.Unlock()
		if n == partitions {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("has %d partitions, waits for %d", n, partitions)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func groupRebalance(balancer kgo.GroupBalancer) func(context.Context) error {
	return func(ctx context.Context) error {
		name := strings.ReplaceAll(balancer.ProtocolName(), "_", "-")
		topic, err := topic(ctx, "group-"+name, 4, nil)
		if err != nil {
			return err
		}
		group := "go-group-" + name + "-" + run
		for p := int32(0); p < 4; p++ {
			if err := send(ctx, topic, p, 50); err != nil {
				return err
			}
		}
		first, err := newMember(ctx, group, topic, kgo.Balancers(balancer))
		if err != nil {
			return err
		}
		defer first.Close()
		got, err := read(ctx, first.Client, 200)
		if err != nil {
			return err
		}
		if err := first.CommitRecords(ctx, got...); err != nil {
			return err
		}
		second, err := newMember(ctx, group, topic, kgo.Balancers(balancer))
		if err != nil {
			return err
		}
		for _, m := range []*member{first, second} {
			if err := m.waitFor(ctx, 2); err != nil {
				return err
			}
		}
		second.Close()
		return first.waitFor(ctx, 4)
	}
}

func staticMember(ctx context.Context) error {
	topic, err := topic(ctx, "static", 2, nil)
	if err != nil {
		return err
	}
	group := "go-static-" + run
	first, err := newMember(ctx, group, topic, kgo.InstanceID("instance-a"))
	if err != nil {
		return err
	}
	if err := first.waitFor(ctx, 2); err != nil {
		return err
	}
	_, generation := first.GroupMetadata()
	first.Close() // a static member does not leave its group
	second, err := newMember(ctx, group, topic, kgo.InstanceID("instance-a"))
	if err != nil {
		return err
	}
	defer second.Close()
	if err := second.waitFor(ctx, 2); err != nil {
		return err
	}
	if _, again := second.GroupMetadata(); again != generation {
		return fmt.Errorf("generation %d became %d though a static member came back", generation, again)
	}
	return nil
}

func seekByTime(ctx context.Context) error {
	topic, err := topic(ctx, "time", 1, nil)
	if err != nil {
		return err
	}
	c, err := client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var records []*kgo.Record
	for i := 0; i < 1000; i++ {
		records = append(records, &kgo.Record{Topic: topic, Value: []byte{1}, Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i)*1000)})
	}
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	listed, err := kadm.NewClient(c).ListOffsetsAfterMilli(ctx, 1_700_000_499_500, topic)
	if err != nil {
		return err
	}
	if o, _ := listed.Lookup(topic, 0); o.Offset != 500 {
		return fmt.Errorf("wanted offset 500 for the time, got %d (%v)", o.Offset, o.Err)
	}
	return nil
}

func largeAndOversize(ctx context.Context) error {
	limit := "2000000"
	topic, err := topic(ctx, "large", 1, map[string]*string{"max.message.bytes": &limit})
	if err != nil {
		return err
	}
	c, err := client(ctx, kgo.ProducerBatchMaxBytes(4_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer c.Close()
	value := make([]byte, 1<<20)
	rand.New(rand.NewSource(1)).Read(value)
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: value}).FirstErr(); err != nil {
		return err
	}
	err = c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: make([]byte, 3_000_000)}).FirstErr()
	if !errors.Is(err, kerr.MessageTooLarge) {
		return fmt.Errorf("wanted MESSAGE_TOO_LARGE, got %v", err)
	}
	got, err := readAll(ctx, topic, 1)
	if err == nil && !bytes.Equal(got[0].Value, value) {
		return errors.New("1 MiB came back different")
	}
	return err
}

func admin(ctx context.Context) error {
	topic, err := topic(ctx, "admin", 2, nil)
	if err != nil {
		return err
	}
	c, err := client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	a := kadm.NewClient(c)
	again, err := a.CreateTopic(ctx, 1, 1, nil, topic)
	if err == nil {
		err = again.Err
	}
	if !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("creating it twice: %v", err)
	}
	if _, err := a.CreatePartitions(ctx, 3, topic); err != nil {
		return err
	}
	details, err := a.ListTopics(ctx, topic)
	for err == nil && len(details[topic].Partitions) == 2 && ctx.Err() == nil {
		// In a cell another broker may hear of it a moment later.
		details, err = a.ListTopics(ctx, topic)
	}
	if err != nil || len(details[topic].Partitions) != 5 {
		return fmt.Errorf("wanted 5 partitions: %v %v", details[topic], err)
	}
	retention := "60000"
	altered, err := a.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &retention}}, topic)
	if err != nil || altered[0].Err != nil {
		return fmt.Errorf("altering: %v %v", err, altered)
	}
	// Apache Kafka answers before the change has reached the broker's own image: ask until it has.
	for value := ""; value != retention; {
		described, err := a.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return fmt.Errorf("retention.ms stays %q: %w", value, err)
		}
		for _, config := range described[0].Configs {
			if config.Key == "retention.ms" {
				value = config.MaybeValue()
			}
		}
	}
	if err := send(ctx, topic, 0, 100); err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 60, -1)
	deleted, err := a.DeleteRecords(ctx, offsets)
	if err != nil || deleted.Error() != nil {
		return fmt.Errorf("deleting records: %v %v", err, deleted.Error())
	}
	starts, err := a.ListStartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	if o, _ := starts.Lookup(topic, 0); o.Offset != 60 {
		return fmt.Errorf("start offset %d", o.Offset)
	}
	group := "go-admin-" + run
	if err := a.CommitAllOffsets(ctx, group, offsets); err != nil {
		return err
	}
	lags, err := a.Lag(ctx, group)
	if err != nil {
		return err
	}
	if lag := lags[group].Lag.Total(); lag != 40 {
		return fmt.Errorf("lag %d", lag)
	}
	if _, err := a.DeleteGroup(ctx, group); err != nil {
		return err
	}
	gone, err := a.DeleteTopic(ctx, topic)
	if err == nil {
		err = gone.Err
	}
	return err
}

func thousandPartitions(ctx context.Context) error {
	topic, err := topic(ctx, "thousand", 1000, nil)
	if err != nil {
		return err
	}
	c, err := client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var records []*kgo.Record
	for p := int32(0); p < 1000; p++ {
		records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: []byte{1}})
	}
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	_, err = readAll(ctx, topic, 1000)
	return err
}

func main() {
	if os.Args[1] == "cell" {
		rate, _ := strconv.Atoi(os.Args[4])
		bootstrap = os.Args[2]
		cellMain(os.Args[3], rate)
		return
	}
	if os.Args[1] == "projected" {
		projectedMain(os.Args[2:])
		return
	}
	if os.Args[1] == "delayed" {
		delayedMain(os.Args[2:])
		return
	}
	if os.Args[1] == "retried" {
		retriedMain(os.Args[2:])
		return
	}
	if os.Args[1] == "secure" {
		secureMain(os.Args[2:])
		return
	}
	bootstrap = os.Args[1]
	cases := []struct {
		name string
		run  func(context.Context) error
	}{
		{"round_trip_none", roundTrip(kgo.NoCompression(), "none")},
		{"round_trip_gzip", roundTrip(kgo.GzipCompression(), "gzip")},
		{"round_trip_snappy", roundTrip(kgo.SnappyCompression(), "snappy")},
		{"round_trip_lz4", roundTrip(kgo.Lz4Compression(), "lz4")},
		{"round_trip_zstd", roundTrip(kgo.ZstdCompression(), "zstd")},
		{"acks_0", acks(kgo.NoAck(), "0")},
		{"acks_1", acks(kgo.LeaderAck(), "1")},
		{"acks_all", acks(kgo.AllISRAcks(), "all")},
		{"idempotent_in_order", idempotentInOrder},
		{"group_range", groupRebalance(kgo.RangeBalancer())},
		{"group_cooperative", groupRebalance(kgo.CooperativeStickyBalancer())},
		{"static_member", staticMember},
		{"seek_by_time", seekByTime},
		{"large_and_oversize", largeAndOversize},
		{"admin", admin},
		{"thousand_partitions", thousandPartitions},
	}
	failed := false
	for _, c := range cases {
		ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
		if err := c.run(ctx); err != nil {
			failed = true
			fmt.Printf("FAILED %s: %v\n", c.name, err)
		} else {
			fmt.Printf("ok %s\n", c.name)
		}
		cancel()
	}
	if failed {
		os.Exit(1)
	}
}
