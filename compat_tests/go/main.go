// franz-go as the tests run it.
//
//	franz produce BOOTSTRAP TOPIC CODEC COUNT   default settings; partition, offset, value of every acknowledgement
//	franz read BOOTSTRAP TOPIC                  partition, offset, timestamp, key, value of every record, tab-separated
//
// The environment says how it is protected: FRANZ_SASL=MECHANISM:USER:PASSWORD, FRANZ_CA=FILE, FRANZ_KEY=FILE.
// FRANZ_TOKEN=1: user and password are a delegation token's. FRANZ_SASL=OAUTHBEARER::TOKEN has no user.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	out := bufio.NewWriter(os.Stdout)
	var err error
	switch verb, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]; verb {
	case "produce":
		err = produce(ctx, out, bootstrap, topic, codecs[os.Args[4]], os.Args[5])
	case "read":
		err = read(ctx, out, bootstrap, topic, "%p\t%o\t%d\t%k\t%v\n")
	case "format": // as rpk topic consume -f prints them
		err = read(ctx, out, bootstrap, topic, os.Args[4])
	default:
		err = fmt.Errorf("no such verb: %s", verb)
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		log.Fatal(err)
	}
}

func security() (options []kgo.Opt) {
	if parts := strings.SplitN(os.Getenv("FRANZ_SASL"), ":", 3); len(parts) == 3 {
		auth := scram.Auth{User: parts[1], Pass: parts[2], IsToken: os.Getenv("FRANZ_TOKEN") != ""}
		switch parts[0] {
		case "PLAIN":
			options = append(options, kgo.SASL(plain.Auth{User: parts[1], Pass: parts[2]}.AsMechanism()))
		case "OAUTHBEARER":
			options = append(options, kgo.SASL(oauth.Auth{Token: parts[2]}.AsMechanism()))
		case "SCRAM-SHA-256":
			options = append(options, kgo.SASL(auth.AsSha256Mechanism()))
		case "SCRAM-SHA-512":
			options = append(options, kgo.SASL(auth.AsSha512Mechanism()))
		}
	}
	if file := os.Getenv("FRANZ_CA"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			log.Fatal(err)
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(text)
		if key := os.Getenv("FRANZ_KEY"); key != "" {
			pair, err := tls.LoadX509KeyPair(key, key)
			if err != nil {
				log.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	return options
}

func produce(ctx context.Context, out *bufio.Writer, bootstrap, topic string, codec kgo.CompressionCodec, count string) error {
	client, err := kgo.NewClient(append(security(), kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ProducerBatchCompression(codec))...)
	if err != nil {
		return err
	}
	defer client.Close()
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "value-%d", i)}
	}
	for _, result := range client.ProduceSync(ctx, records...) {
		if result.Err != nil {
			return result.Err
		}
		fmt.Fprintf(out, "%d\t%d\t%s\n", result.Record.Partition, result.Record.Offset, result.Record.Value)
	}
	return nil
}

func read(ctx context.Context, out *bufio.Writer, bootstrap, topic, layout string) error {
	format, err := kgo.NewRecordFormatter(layout)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(security(), kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	left := int64(0)
	ends.Each(func(end kadm.ListedOffset) { left += end.Offset })
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			out.Write(format.AppendRecord(nil, r))
		})
	}
	return nil
}
