// Command features has sarama's admin client update features, as sarama's own test against Apache
// Kafka does. Prints "ok CASE" or "FAILED CASE: why" for every case. Usage:
// features BOOTSTRAP LEVEL, the metadata.version of the broker, which it has again afterwards.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/IBM/sarama"
)

const metadataVersion = "metadata.version"

func update(admin sarama.ClusterAdmin, name string, level int16, downgrade bool) error {
	results, err := admin.UpdateFeatures([]sarama.FeatureUpdate{{
		Feature: name, MaxVersionLevel: level, AllowDowngrade: downgrade,
	}})
	if err != nil {
		return err
	}
	if len(results) != 1 || results[0].Feature != name || results[0].ErrorCode != sarama.ErrNoError {
		return fmt.Errorf("results: %+v", results)
	}
	return nil
}

func refused(err error) error {
	if !errors.Is(err, sarama.ErrInvalidUpdateVersion) {
		return fmt.Errorf("wanted INVALID_UPDATE_VERSION, got %v", err)
	}
	return nil
}

func main() {
	newest, err := strconv.ParseInt(os.Args[2], 10, 16)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	config := sarama.NewConfig()
	config.Version = sarama.V4_1_0_0
	admin, err := sarama.NewClusterAdmin([]string{os.Args[1]}, config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer admin.Close()
	failed := false
	cases := []struct {
		name string
		run  func() error
	}{
		{"unsupported_feature", func() error {
			return refused(update(admin, "sarama.unsupported.feature", 1, false))
		}},
		{"too_high", func() error { return refused(update(admin, metadataVersion, 99, false)) }},
		{"not_down", func() error { return refused(update(admin, metadataVersion, 1, false)) }},
		{"down", func() error { return update(admin, metadataVersion, 1, true) }},
		{"up", func() error { return update(admin, metadataVersion, int16(newest), false) }},
	}
	for _, one := range cases {
		if err := one.run(); err != nil {
			failed = true
			fmt.Printf("FAILED %s: %v\n", one.name, err)
		} else {
			fmt.Printf("ok %s\n", one.name)
		}
	}
	if failed {
		os.Exit(1)
	}
}
