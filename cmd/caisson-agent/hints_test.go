// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/watch"
	"github.com/caisson-os/caisson/spec"
)

// Every kind has its row in the table of what tells of it, but for the kinds that
// nothing could tell of.
func TestEveryKindIsWatched(t *testing.T) {
	for _, i := range items.Table(spec.Items{}, items.Options{}) {
		if silent := i.Name() == "exec"; silent != (watch.Sources(i.Name()) == nil) {
			t.Errorf("%s: hints from %v", i.Name(), watch.Sources(i.Name()))
		}
	}
}

// What a look waits for is not held against the next one: only what it computes is.
func TestWaitingIsNoEffort(t *testing.T) {
	began := begin()
	time.Sleep(100 * time.Millisecond)
	if rest := began.rest(); rest >= idle*50*time.Millisecond {
		t.Errorf("after a look that waited for 100 ms, the next one waits %s", rest)
	}
	for began = begin(); used()-began.used < 20*time.Millisecond; {
	}
	if rest := began.rest(); rest < idle*10*time.Millisecond {
		t.Errorf("after a look that took 20 ms of a processor, the next one waits %s", rest)
	}
}
