// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
)

// A service that is told to end lets what it does beside its looks end, for a while.
func TestLeave(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		var said bytes.Buffer
		s := newService(Config{Node: session.Options{Say: func(format string, args ...any) { fmt.Fprintf(&said, format, args...) }}})
		ctx, cancel := context.WithCancel(t.Context())
		goOn := make(chan struct{})
		undone := false
		s.beside.Go(func() {
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
			s.leave(10 * time.Millisecond)
			close(goOn)
			if !strings.Contains(said.String(), "has not ended within 10ms: the next start goes on with it") {
				t.Errorf("said %q", said.String())
			}
			continue
		}
		if s.leave(time.Minute); !undone || said.Len() > 0 {
			t.Errorf("undone: %v, said %q", undone, said.String())
		}
	}
}

// What watches is closed once, whatever of it could be opened.
func TestWatchEnds(t *testing.T) {
	s := newService(Config{Node: session.Options{Root: t.TempDir(), Say: t.Logf}})
	s.watch()()
}
