// Command secure sends and reads a message over TLS with sarama, with nobody asked who it is and as
// alice by each mechanism. Prints "ok WAY" or "FAILED WAY: why" for every way.
// Usage: secure SSL_ADDRESS SASL_SSL_ADDRESS CA_FILE TOPIC
package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// What sarama leaves to its users: the client's side of SCRAM.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (client *scramClient) Begin(user, password, authorizationID string) error {
	made, err := client.hash.NewClient(user, password, authorizationID)
	if err == nil {
		client.conversation = made.NewConversation()
	}
	return err
}

func (client *scramClient) Step(challenge string) (string, error) {
	return client.conversation.Step(challenge)
}

func (client *scramClient) Done() bool { return client.conversation.Done() }

func talk(address, topic, way string, roots *x509.CertPool) error {
	config := sarama.NewConfig()
	config.Version = sarama.V4_1_0_0
	config.Producer.Return.Successes = true
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: roots}
	if way != "SSL" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(way)
		config.Net.SASL.User, config.Net.SASL.Password = "alice", "secret"
		hash := scram.HashGeneratorFcn(sha256.New)
		if way == "SCRAM-SHA-512" {
			hash = sha512.New
		}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			return &scramClient{hash: hash}
		}
	}
	client, err := sarama.NewClient([]string{address}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	defer producer.Close()
	message := &sarama.ProducerMessage{
		Topic: topic, Key: sarama.StringEncoder("sarama"), Value: sarama.StringEncoder(way),
	}
	if _, _, err := producer.SendMessage(message); err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case one := <-partition.Messages():
			if string(one.Key) == "sarama" && string(one.Value) == way {
				return nil
			}
		case <-timeout:
			return errors.New("it did not come back")
		}
	}
}

func main() {
	pem, err := os.ReadFile(os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	failed := false
	for _, way := range []string{"SSL", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		address := os.Args[2]
		if way == "SSL" {
			address = os.Args[1]
		}
		if err := talk(address, os.Args[4], way, roots); err != nil {
			failed = true
			fmt.Printf("FAILED %s: %v\n", way, err)
		} else {
			fmt.Printf("ok %s\n", way)
		}
	}
	if failed {
		os.Exit(1)
	}
}
