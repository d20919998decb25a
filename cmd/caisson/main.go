// SPDX-License-Identifier: Apache-2.0

// Command caisson is the operator's side: it validates, explains, builds, signs
// and publishes. A file has a verb, or some of one subject; what they share is in app.go, load.go and
// access.go.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/sandbox/picture"
)

func main() {
	root.Enter()
	if picture.IsProgram() {
		os.Exit(picture.Run(os.Args[1:], os.Stdout))
	}
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := cli.NewOutput(os.Stdout)
	a := newApp(out, os.Stderr)
	root := a.root()
	root.SetArgs(os.Args[1:])
	err := out.Conclude(cli.Reached(root.ExecuteContext(ctx)))
	if err != nil && ctx.Err() != nil {
		err = cli.Interrupted(err)
	}
	if a.json() {
		return cli.ReportJSON(os.Stderr, err)
	}
	return cli.Report(os.Stderr, "caisson", err)
}
