// franz-go as the tests run it.
//
//	franz produce BOOTSTRAP TOPIC CODEC COUNT   default settings; partition, offset, value of every acknowledgement
//	franz read BOOTSTRAP TOPIC                  partition, offset, timestamp, key, value of every record, tab-separated
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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
		err = read(ctx, out, bootstrap, topic)
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

func produce(ctx context.Context, out *bufio.Writer, bootstrap, topic string, codec kgo.CompressionCodec, count string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codec))
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

func read(ctx context.Context, out *bufio.Writer, bootstrap, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
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
			fmt.Fprintf(out, "%d\t%d\t%d\t%s\t%s\n", r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value)
		})
	}
	return nil
}
