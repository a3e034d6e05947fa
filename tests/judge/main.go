// Answers what Kubernetes answers: one JSON answer per line of a case on standard input.
//
// Cases and answers have the formats of tests/vectors/allocator/README.md, so that generated cases are judged like the
// recorded ones.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// judgement answers one case. Its context ends at the deadline of the case.
type judgement func(ctx context.Context, line []byte) (any, error)

var kinds = map[string]judgement{
	"allocate": allocate,
	"cel":      evaluate,
	"quantity": measure,
}

func main() {
	deadline := flag.Duration("deadline", 2*time.Second, "time for one case")
	flag.Parse()
	judge, known := kinds[flag.Arg(0)]
	if !known {
		fmt.Fprintf(os.Stderr, "usage: judge [-deadline 2s] allocate|cel|quantity <cases >answers; not %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := serve(judge, *deadline, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}

// serve flushes when no further case is waiting, so that one case at a time and many at once both work.
func serve(judge judgement, deadline time.Duration, in io.Reader, out io.Writer) error {
	reader, writer := bufio.NewReaderSize(in, 1<<20), bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			if err := encoder.Encode(answer(judge, deadline, line)); err != nil {
				return err
			}
		}
		if reader.Buffered() == 0 || err != nil {
			if err := writer.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// answer gives up a judgement that outlives its deadline by a second: not everything looks at its context.
func answer(judge judgement, deadline time.Duration, line []byte) any {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	answered := make(chan any, 1)
	go func() {
		defer func() {
			if panicked := recover(); panicked != nil {
				answered <- map[string]any{"panic": fmt.Sprint(panicked)}
			}
		}()
		given, err := judge(ctx, line)
		if err != nil {
			given = map[string]any{"input_error": err.Error()}
		}
		answered <- given
	}()
	select {
	case given := <-answered:
		return given
	case <-time.After(deadline + time.Second):
		return map[string]any{"timeout": true}
	}
}
