package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Sends and reads a message over TLS, with nobody asked who it is and as alice by each mechanism.
// Usage: conformance secure SSL_ADDRESS SASL_SSL_ADDRESS CA_FILE TOPIC
func secureMain(arguments []string) {
	pem, err := os.ReadFile(arguments[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	tlsConfig := &tls.Config{RootCAs: roots}
	password := scram.Auth{User: "alice", Pass: "secret"}
	ways := []struct {
		name    string
		address string
		options []kgo.Opt
	}{
		{"SSL", arguments[0], nil},
		{"PLAIN", arguments[1], []kgo.Opt{
			kgo.SASL(plain.Auth{User: "alice", Pass: "secret"}.AsMechanism()),
		}},
		{"SCRAM-SHA-256", arguments[1], []kgo.Opt{kgo.SASL(password.AsSha256Mechanism())}},
		{"SCRAM-SHA-512", arguments[1], []kgo.Opt{kgo.SASL(password.AsSha512Mechanism())}},
	}
	failed := false
	for _, way := range ways {
		bootstrap = way.address
		options := append([]kgo.Opt{kgo.DialTLSConfig(tlsConfig)}, way.options...)
		if err := secureTalk(arguments[3], way.name, options); err != nil {
			failed = true
			fmt.Printf("FAILED %s: %v\n", way.name, err)
		} else {
			fmt.Printf("ok %s\n", way.name)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func secureTalk(topic string, way string, options []kgo.Opt) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	group := []kgo.Opt{
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup("franz-" + way),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	c, err := client(ctx, append(group, options...)...)
	if err != nil {
		return err
	}
	defer c.Close()
	record := &kgo.Record{Topic: topic, Key: []byte("franz-go"), Value: []byte(way)}
	if err := c.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		isThere := false
		c.PollFetches(ctx).EachRecord(func(one *kgo.Record) {
			isThere = isThere || (string(one.Key) == "franz-go" && string(one.Value) == way)
		})
		if isThere {
			return nil
		}
	}
	return errors.New("it did not come back")
}
