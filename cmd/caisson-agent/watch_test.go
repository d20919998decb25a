// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
)

// A watch goes on over drift and errors, and ends with a signal without one.
func TestWatch(t *testing.T) {
	var out, said bytes.Buffer
	a := &app{out: &out, err: &said}
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	err := a.watch(ctx, time.Millisecond, func() error {
		looks++
		switch looks {
		case 1:
			return cli.ErrDrift
		case 2:
			return errors.New("the disk is busy")
		case 4:
			cancel()
			return ctx.Err()
		}
		return nil
	})
	if err != nil || looks != 4 {
		t.Errorf("%v after %d looks", err, looks)
	}
	if got := said.String(); got != "caisson-agent: error: the disk is busy\n" {
		t.Errorf("%q", got)
	}
	if got := out.String(); got != "\n\n\n" { // no terminal: what is printed is set apart
		t.Errorf("%q", got)
	}
}
