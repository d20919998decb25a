// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"
)

// A service that is told to end lets what it does beside its looks end, for a while.
func TestLeave(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		var said bytes.Buffer
		a := &app{err: &said, beside: new(sync.WaitGroup)}
		ctx, cancel := context.WithCancel(t.Context())
		goOn := make(chan struct{})
		undone := false
		a.beside.Go(func() {
			<-ctx.Done()
			if hangs {
				<-goOn
				return
			}
			time.Sleep(50 * time.Millisecond)
			undone = true
		})
		cancel()
		if hangs {
			a.leave(10 * time.Millisecond)
			close(goOn)
			if !strings.Contains(said.String(), "has not ended within 10ms: the next start goes on with it") {
				t.Errorf("said %q", said.String())
			}
			continue
		}
		if a.leave(time.Minute); !undone || said.Len() > 0 {
			t.Errorf("undone: %v, said %q", undone, said.String())
		}
	}
}
