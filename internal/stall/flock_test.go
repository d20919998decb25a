// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWait(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	take := func(within time.Duration, shared bool) (*os.File, error) {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() }) // a test may have closed it
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return f, Lock(ctx, f, shared)
	}
	a, err := take(time.Minute, true)
	if err != nil {
		t.Fatal(err)
	}
	b, err := take(time.Minute, true)
	if err != nil {
		t.Fatal("two that share it: ", err)
	}
	if _, err := take(3*poll, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Error("alone, beside two others: ", err)
	}
	release := func(f *os.File) {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	release(a)
	time.AfterFunc(2*poll, func() { release(b) })
	if _, err := take(time.Minute, false); err != nil {
		t.Error("after they are gone: ", err)
	}
	if err := Lock(t.Context(), a, false); err == nil {
		t.Error("a closed file was locked")
	}
}
