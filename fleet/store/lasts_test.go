// SPDX-License-Identifier: Apache-2.0

package store

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/storetest"
)

// TestLasts tells what somebody has to put right from what ends by itself.
func TestLasts(t *testing.T) {
	require.Slow(t)
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	server := storetest.StartPostgres(t)
	s := open(t, server.Name, true)
	if _, err := s.writer.ExecContext(t.Context(), "CREATE USER guest"); err != nil {
		t.Fatal(err)
	}
	lite := open(t, "sqlite:"+filepath.Join(dir, "fleet.db"), true)
	if _, err := lite.writer.ExecContext(t.Context(), "PRAGMA query_only = ON"); err != nil { // as on a file system that is mounted so
		t.Fatal(err)
	}
	tries := func(name string) error {
		s, err := Open(t.Context(), name)
		if err != nil {
			return err
		}
		defer s.Close() // the error of Write is what counts
		return s.Write(t.Context())
	}
	s.Release() // its lock is in nobody's way
	for what, err := range map[string]error{
		"a file that is not a database": tries("sqlite:" + garbage),
		"a file that is only read":      lite.Apply(t.Context(), Change{Nodes: []Node{node("a", 1)}}),
		"a database there is not":       tries(strings.Replace(server.Name, "/postgres?", "/other?", 1)),
		"a user there is not":           tries(strings.Replace(server.Name, "caisson@", "nobody@", 1)),
		"a user without rights":         tries(strings.Replace(server.Name, "caisson@", "guest@", 1)),
	} {
		if !Lasts(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for late := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) { // the server has yet to see that guest is gone
		err := s.Write(t.Context())
		if err == nil {
			break
		}
		if !errors.Is(err, ErrTaken) || time.Now().After(late) {
			t.Fatal(err)
		}
	}
	server.Stop()
	if err := tries(server.Name); err == nil || Lasts(err) {
		t.Errorf("a server that is stopped: %v", err)
	}
	if err := s.Holds(t.Context()); err == nil || Lasts(err) {
		t.Errorf("a connection that was cut: %v", err)
	}
	locked := open(t, "sqlite:"+filepath.Join(dir, "locked.db"), true)
	other, err := sql.Open("sqlite", filepath.Join(dir, "locked.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() // the test is over
	c, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	if err := locked.Apply(t.Context(), Change{Nodes: []Node{node("a", 1)}}); err == nil || Lasts(err) {
		t.Errorf("a file that is locked: %v", err)
	}
}
