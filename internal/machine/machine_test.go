// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// emulator puts a script in the place of QEMU.
func emulator(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "qemu-system-x86_64"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestMachine(t *testing.T) {
	emulator(t, `printf 'booting\r\nlogin: '; exec sleep 1000`)
	var log bytes.Buffer
	m, err := Start(t.Context(), Options{Name: "n1", Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.Console.Wait(t.Context(), 0, "panic", "login:"); got != "login:" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := m.Used(); err != nil {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := m.WaitOff(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a machine that is on: %v", err)
	}
	m.PowerCut()
	m.PowerCut()
	if err := m.WaitOff(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := m.Used(); err != nil {
		t.Error(err)
	}
	if got := m.Console.String(); got != "booting\nlogin: " || log.String() != "booting\r\nlogin: " {
		t.Errorf("console %q, log %q", got, &log)
	}
	if _, err := m.Console.Wait(t.Context(), 0, "panic"); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

// A machine that goes off keeps nobody waiting, and one whose context ends is off.
func TestEnds(t *testing.T) {
	emulator(t, "exit 0")
	m, err := Start(t.Context(), Options{Name: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Login(t.Context(), "admin", signer(t)); !errors.Is(err, ErrEnded) {
		t.Errorf("log in: %v", err)
	}
	emulator(t, "exec sleep 1000")
	ctx, end := context.WithCancel(t.Context())
	if m, err = Start(ctx, Options{Name: "n1"}); err != nil {
		t.Fatal(err)
	}
	end()
	<-m.Done()
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(t.Context(), Options{Name: "n1"}); err == nil {
		t.Error("a machine starts without QEMU")
	}
}

func TestProcessorTime(t *testing.T) {
	const stat = "17 (qemu (x) ) S 1 17 17 0 -1 4194304 5 0 0 0 250 31 0 0 20 0 1 0 9 1 1"
	if d, err := processorTime(stat); d != 2810*time.Millisecond || err != nil {
		t.Errorf("%v, %v", d, err)
	}
	for _, bad := range []string{"", "17 (x) S 1", "17 (x) S 1 17 17 0 -1 4194304 5 0 0 0 a b 0"} {
		if _, err := processorTime(bad); err == nil {
			t.Errorf("%q has a processor time", bad)
		}
	}
}
