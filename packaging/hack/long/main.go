// SPDX-License-Identifier: Apache-2.0

// Command long runs the tests that take minutes by design: those that begin with
// require.Long, and each fuzz target for 30 seconds. It runs all of them, or one part of N,
// where each part takes at most [limit] by the times of times.txt. Which tests a part has
// follows from their names and times alone.
//
// What passed, failed or was skipped, when and for how long, is a line in a file that is
// named after the commit, so that parts of several runs and machines add up.
//
// "make test-long" and "make test-kube-long" run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	module := flag.String("module", ".", "directory of the module whose tests run")
	part := flag.String("part", "", "run part K of N only, such as 3/12")
	records := flag.String("records", "out/long", "directory with a file of results for each commit")
	list := flag.Bool("list", false, "print the parts, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := long(ctx, *module, *part, *records, *list); err != nil {
		fmt.Fprintln(os.Stderr, "long:", err)
		os.Exit(1)
	}
}

func long(ctx context.Context, module, part, records string, list bool) error {
	all, err := find(module)
	if err != nil {
		return err
	}
	n, err := least(all)
	if err != nil {
		return err
	}
	if list {
		for i, p := range parts(all, n) {
			fmt.Printf("part %d/%d, %s\n", i+1, n, total(p))
			for _, t := range p {
				fmt.Printf("  %5s %s\n", t.time(), t)
			}
		}
		return nil
	}
	chosen, err := choose(all, part, n)
	if err != nil {
		return err
	}
	r, err := open(ctx, records)
	if err != nil {
		return err
	}
	err = errors.Join(run(ctx, module, chosen, r), r.file.Close())
	left, errLeft := r.left(ctx, all)
	fmt.Printf("long: %d of %d passed at %s, or with only pages between; results are in %s\n", len(all)-len(left), len(all), r.commit, r.file.Name())
	for _, t := range left {
		fmt.Println("  left:", t)
	}
	return errors.Join(err, errLeft)
}
