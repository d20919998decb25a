// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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

// What QEMU is given begins each archive where a word begins.
func TestJoinInitrd(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for i, text := range []string{"12345", "6789", "a"} {
		name := filepath.Join(dir, string(rune('a'+i)))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	all := filepath.Join(dir, "all")
	if err := JoinInitrd(all, names...); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(all); string(got) != "12345\x00\x00\x006789a" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := JoinInitrd(all, filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an archive that is not there: %v", err)
	}
}

func TestCheckTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var missing *MissingTool
	if err := CheckTools("amd64"); !errors.As(err, &missing) || missing.Hint() != "on Debian: apt install qemu-system-x86" {
		t.Errorf("without QEMU: %v", err)
	}
	emulator(t, "exit 0")
	if err := CheckTools("amd64", "ssh"); !errors.As(err, &missing) {
		t.Errorf("without anything else: %v", err)
	}
}

// A guest that hangs, one that does not start and one that runs are told apart.
func TestProbe(t *testing.T) {
	for script, want := range map[string]string{
		"exec sleep 1000": "a guest of one sector: it hangs for 200ms",
		"exit 33":         "",
		"exit 0":          "a guest of one sector does not run",
		"echo 'failed to initialize kvm: Permission denied' >&2; exit 1": "a guest of one sector: exit status 1: failed to initialize kvm: Permission denied",
	} {
		emulator(t, script)
		bound := 200 * time.Millisecond // of the one that hangs; the others end by themselves
		if !strings.Contains(script, "sleep") {
			bound = time.Minute
		}
		err := probe(t.Context(), "probe.img", bound)
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
}

// A guest of one sector says little of a kernel: one that stops in its middle is told.
func TestProbeKernel(t *testing.T) {
	for script, want := range map[string]string{
		"exec sleep 1000": "the node's kernel: it hangs for 200ms",
		"exit 0":          "",
		"echo 'qemu: invalid kernel header' >&2; exit 1": "the node's kernel: exit status 1: qemu: invalid kernel header",
	} {
		emulator(t, script)
		bound := 200 * time.Millisecond // of the one that hangs; the others end by themselves
		if !strings.Contains(script, "sleep") {
			bound = time.Minute
		}
		err := probeKernel(t.Context(), boards["amd64"], kvm, "kernel", bound)
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
}

// endless is the output of a command that never stops.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestPrintedIsCapped as an SSH session copies it: what comes after that is taken, and not kept.
func TestPrintedIsCapped(t *testing.T) {
	var p printed
	if n, err := io.Copy(&p, io.LimitReader(endless{}, 2*maxOutput)); n != 2*maxOutput || err != nil || len(p.text) != maxOutput {
		t.Errorf("%d bytes of %d are kept: %v", len(p.text), n, err)
	}
}

func TestVersion(t *testing.T) {
	emulator(t, `echo 'QEMU emulator version 7.2.19 (Debian 1:7.2+dfsg-7+deb12u16)'; echo 'Copyright (c) 2003-2022'`)
	if got, err := Version(t.Context(), "amd64"); got != "7.2.19" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
