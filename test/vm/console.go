// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Console is what a machine has printed on its serial line.
type Console struct {
	mu    sync.Mutex
	text  bytes.Buffer
	log   io.Writer
	ended bool
	more  chan struct{} // closed and replaced at each change
}

// ErrEnded is returned by waits when the machine went off first.
var ErrEnded = errors.New("the machine went off")

func newConsole(log io.Writer) *Console { return &Console{log: log, more: make(chan struct{})} }

// Write implements io.Writer for the machine's output.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(p)
	close(c.more)
	c.more = make(chan struct{})
	return c.log.Write(p)
}

func (c *Console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	close(c.more)
	c.more = make(chan struct{})
}

// String is everything printed so far.
func (c *Console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(c.text.String(), "\r", "")
}

// Len is how much has been printed; a later Wait can start there.
func (c *Console) Len() int { return len(c.String()) }

// Wait blocks until one of the markers stands on the console at or after from,
// and returns that marker.
func (c *Console) Wait(ctx context.Context, from int, markers ...string) (string, error) {
	for {
		c.mu.Lock()
		ended, more := c.ended, c.more
		c.mu.Unlock()
		text := c.String()
		for _, marker := range markers {
			if strings.Contains(text[min(from, len(text)):], marker) {
				return marker, nil
			}
		}
		if ended {
			return "", fmt.Errorf("wait for %q: %w", markers, ErrEnded)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return "", fmt.Errorf("wait for %q: %w", markers, ctx.Err())
		}
	}
}
