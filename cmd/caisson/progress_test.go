// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder"
)

// Off a terminal a long step says what it is doing every two seconds, and nothing
// is said between steps.
func TestProgressOffATerminal(t *testing.T) {
	var said bytes.Buffer
	p := newApp(&bytes.Buffer{}, &said).progress()
	p.stop() // the test is the clock
	start := time.Now()
	lines := func() int { return strings.Count(said.String(), "\n") }
	for _, c := range []struct {
		event builder.Event
		after time.Duration
		want  int // lines by then
	}{
		{builder.Event{Variant: "default", Step: "base", State: "start"}, time.Second, 0},
		{builder.Event{Variant: "default", Step: "base", State: "install", N: 3, Of: 9, Text: "libc6"}, 3 * time.Second, 1},
		{builder.Event{Variant: "default", Step: "base", State: "compress"}, 4 * time.Second, 1},
		{builder.Event{Variant: "default", Step: "base", State: "compress"}, 6 * time.Second, 2},
		{builder.Event{Variant: "default", Step: "base", State: "done", Bytes: 1e6}, 60 * time.Second, 3},
	} {
		p.event(c.event)
		p.still(start.Add(c.after))
		if lines() != c.want {
			t.Errorf("after %v and %s: %d lines, want %d:\n%s", c.after, c.event.State, lines(), c.want, &said)
		}
	}
	if got := said.String(); !strings.Contains(got, "base: install 3/9 libc6 (3 s)") || !strings.Contains(got, "base: compress (6 s)") {
		t.Errorf("said %s", got)
	}
	p.close()
}
