// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

const (
	watchEvery = 2 * time.Second
	clear      = "\x1b[H\x1b[2J" // of a terminal, see console_codes(4)
)

// watch prints again and again until a signal, on a terminal from its top. Drift is no
// error then, and no other error is the end: what is watched may be about to mend.
func (a *app) watch(ctx context.Context, every time.Duration, look func() error) error {
	onTerminal := a.format != "json" && cli.IsTerminal(os.Stdout)
	for {
		if onTerminal {
			if _, err := io.WriteString(a.out, clear); err != nil {
				return err
			}
		}
		if err := look(); err != nil && !errors.Is(err, cli.ErrDrift) {
			if ctx.Err() != nil {
				return nil
			}
			a.report(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
		if !onTerminal && a.format != "json" {
			cli.Printf(a.out, "\n")
		}
	}
}

// printTrace prints the steps of the boot, of the first run and of the last one.
func (a *app) printTrace(ctx context.Context) error {
	return printRead(ctx, a, "status", (*node.Node).Trace, func(t *spec.Trace) {
		cli.Printf(a.out, "%-5s %10s %9s  %s\n", "", "start", "took", "step")
		for _, part := range []struct {
			name  string
			steps []spec.Step
		}{{"boot", t.Boot}, {"first", t.First}, {"last", t.Last}} {
			for _, s := range part.steps {
				result := ""
				if s.Bytes != nil {
					result = ": " + s.Bytes.String()
				}
				if s.Result != spec.StepOK {
					result = ": " + s.Result
				}
				cli.Printf(a.out, "%-5s %8.3f s %7.3f s  %s%s\n", part.name, s.Start/1000, s.Took/1000, s.Name, result)
			}
		}
	})
}
