// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Console holds the output of a machine on its serial line. It may be used by several
// goroutines.
type Console struct {
	mu    sync.Mutex
	text  bytes.Buffer // without carriage returns
	log   io.Writer    // nil is none
	ended bool
	more  chan struct{} // closed and replaced at each change
}

func newConsole(log io.Writer) *Console { return &Console{log: log, more: make(chan struct{})} }

// Write implements io.Writer for the machine's output.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(bytes.ReplaceAll(p, []byte("\r"), nil))
	c.changed()
	if c.log != nil {
		_, _ = c.log.Write(p) // a copy: who waits goes by the text
	}
	return len(p), nil
}

func (c *Console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.changed()
}

// changed wakes who waits. The lock is held.
func (c *Console) changed() {
	close(c.more)
	c.more = make(chan struct{})
}

// String is everything printed so far, without carriage returns.
func (c *Console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// Len is how much has been printed; a later Wait can start there.
func (c *Console) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Len()
}

// Tail is the last lines, for messages.
func (c *Console) Tail(lines int) string {
	all := strings.Split(strings.TrimRight(c.String(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Wait waits until one of the markers stands on the console at or after from, and returns
// that marker: the first of the list, where several do. It ends with ErrEnded when the
// machine goes off without one.
func (c *Console) Wait(ctx context.Context, from int, markers ...string) (string, error) {
	for {
		c.mu.Lock()
		ended, more := c.ended, c.more
		text := c.text.Bytes()[min(from, c.text.Len()):]
		for _, marker := range markers {
			if bytes.Contains(text, []byte(marker)) {
				c.mu.Unlock()
				return marker, nil
			}
		}
		c.mu.Unlock()
		if ended {
			return "", fmt.Errorf("wait for %q: %w", markers, ErrEnded)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return "", fmt.Errorf("wait for %q: %w", markers, context.Cause(ctx))
		}
	}
}

// Silent returns when nothing has been printed for so long, or when ctx ends.
func (c *Console) Silent(ctx context.Context, long time.Duration) {
	for {
		c.mu.Lock()
		more := c.more
		c.mu.Unlock()
		select {
		case <-more:
		case <-time.After(long):
			return
		case <-ctx.Done():
			return
		}
	}
}
