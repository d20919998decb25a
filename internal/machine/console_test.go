// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"
)

func signer(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// broken is a log that takes nothing.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, os.ErrClosed }

// TestSilent: what a machine prints has who waits for silence wait anew.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConsole(nil)
		go func() {
			time.Sleep(50 * time.Second)
			_, _ = c.Write([]byte("one")) // it takes all
		}()
		begun := time.Now()
		if c.Silent(t.Context(), time.Minute); time.Since(begun) != 110*time.Second {
			t.Errorf("it was silent after %v", time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		if c.Silent(ctx, time.Minute); time.Since(begun) != time.Second {
			t.Errorf("it goes on for %v after its context", time.Since(begun))
		}
	})
}

func TestConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConsole(broken{})
		go func() {
			for _, part := range []string{"one\r\nt", "wo\r\n", "three"} {
				time.Sleep(time.Second)
				if n, err := c.Write([]byte(part)); n != len(part) || err != nil {
					t.Errorf("write %q: %d, %v", part, n, err)
				}
			}
		}()
		begun := time.Now()
		if got, err := c.Wait(t.Context(), 0, "two"); got != "two" || err != nil || time.Since(begun) != 2*time.Second {
			t.Errorf("%q, %v after %v", got, err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Wait(ctx, c.Len(), "two"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a marker before the place: %v", err)
		}
		if got, err := c.Wait(ctx, 0, "three", "one"); got != "three" || err != nil {
			t.Errorf("of two that are there: %q, %v", got, err)
		}
		if got := c.Tail(2); got != "two\nthree" {
			t.Errorf("tail %q", got)
		}
	})
}

func TestPrinted(t *testing.T) {
	var p printed
	for range maxOutput/1000 + 1 {
		if n, err := p.Write(make([]byte, 1000)); n != 1000 || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(p.text) != maxOutput {
		t.Errorf("%d bytes are kept", len(p.text))
	}
}
