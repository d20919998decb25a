// SPDX-License-Identifier: Apache-2.0

package uptime

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What scripts take does not count, for as long as they may take; what they could take does
// not either.
func TestScriptsThatHaveEndedDoNotCount(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "deadline"), time.Minute
	up := func() time.Duration { return now }
	const within = 15 * time.Minute
	over := func(what string, want bool) {
		t.Helper()
		if got, err := DeadlineOver(path, now, within); err != nil || got != want {
			t.Errorf("%s, at %s: over %v, %v", what, now, got, err)
		}
	}
	script := func(limit time.Duration) func() {
		t.Helper()
		ended, err := BeginScript(path, up, limit)
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			t.Helper()
			if err := ended(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := BeginDeadline(path, now); err != nil {
		t.Fatal(err)
	}
	over("begun", false)
	ended := script(30 * time.Minute)
	now += 20 * time.Minute
	over("a script runs", false)
	ended()
	over("it took 20 minutes", false)
	now += within
	over("nothing ran since", true)
	ended = script(time.Minute)
	over("another one changes nothing about that", true)
	ended()

	if err := BeginDeadline(path, now); err != nil {
		t.Fatal(err)
	}
	script(time.Minute) // of an agent that is killed
	now += within
	over("its minute does not count", false)
	ended = script(time.Minute)
	now += 2 * time.Minute
	over("a script that hangs counts from its timeout on", true)
	ended()
	over("and when it was killed", true)
}

// A look renews the time that there is, and takes none from a script that runs.
func TestEachLookRenewsIt(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "judged"), time.Minute
	up := func() time.Duration { return now }
	const within = 20 * time.Minute
	renew := func(want bool) {
		t.Helper()
		if first, err := RenewDeadline(path, now, within); err != nil || first != want {
			t.Errorf("at %s: first %v, %v", now, first, err)
		}
	}
	over := func(want bool) {
		t.Helper()
		if got, err := DeadlineOver(path, now, 0); err != nil || got != want {
			t.Errorf("at %s: over %v, %v", now, got, err)
		}
	}
	renew(true)
	now += within - 1
	over(false)
	renew(false)
	now += within - 1
	over(false)
	now++
	over(true)
	renew(false)
	ended, err := BeginScript(path, up, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	now += 50 * time.Minute
	renew(false) // beside it
	now += 25 * time.Minute
	over(false) // ten minutes more were the script's
	now += 5 * time.Minute
	over(true)
	if err := ended(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := DeadlineOver(path, now, 0); err == nil {
		t.Error("what is damaged says nothing")
	}
	renew(false)
	over(false)
}

// systemd asks by its own clock, maybe just as a script begins or ends: who has opened the file
// reads all of one writing, for a part of one, or nothing, reads as a deadline that is over.
func TestWhoAsksWhileItIsWritten(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "deadline"), time.Hour
	if err := BeginDeadline(path, now); err != nil {
		t.Fatal(err)
	}
	var ended func() error
	for what, act := range []func() error{
		func() (err error) {
			ended, err = BeginScript(path, func() time.Duration { return now }, time.Minute)
			return err
		},
		func() error { return ended() },
	} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() // only read
		before, err := os.ReadFile(path)
		if now += time.Second; err != nil {
			t.Fatal(err)
		}
		if err := act(); err != nil {
			t.Fatal(err)
		}
		read, err := io.ReadAll(f)
		if after, failed := os.ReadFile(path); err != nil || failed != nil || string(read) != string(before) || string(after) == string(before) {
			t.Errorf("%d: %s became %s, %v; who had opened it reads %q, %v", what, before, after, failed, read, err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// Somebody who examines the machine removes the file; it does not come back.
func TestSomebodyRemovesIt(t *testing.T) {
	path, up := filepath.Join(t.TempDir(), "deadline"), func() time.Duration { return time.Hour }
	if err := BeginDeadline(path, 0); err != nil {
		t.Fatal(err)
	}
	ended, err := BeginScript(path, up, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := EndDeadline(path); err != nil {
		t.Fatal(err)
	}
	if err := ended(); err != nil {
		t.Error(err)
	}
	if _, err := BeginScript(path, up, time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it came back")
	}
	if err := EndDeadline(path); err != nil {
		t.Error(err)
	}
}

// What cannot be read does not keep a machine up.
func TestADamagedDeadline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deadline")
	for text, want := range map[string]bool{"": true, "{": false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if over, err := DeadlineOver(path, time.Hour, time.Minute); over != want || (err == nil) != want {
			t.Errorf("%q: %v, %v", text, over, err)
		}
	}
}
