// SPDX-License-Identifier: Apache-2.0

// Package storetest gives tests the databases that a fleet's service may have: a file of
// SQLite, and a real PostgreSQL. It knows no tables. Only tests import it.
package storetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/require"
)

// Each runs a test with a new database of each kind, by its name for store.Open.
func Each(t *testing.T, f func(t *testing.T, name string)) {
	for kind, make := range kinds {
		t.Run(kind, func(t *testing.T) { f(t, make(t)) })
	}
}

// kinds make a new database each.
var kinds = map[string]func(testing.TB) string{
	"sqlite":   func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "fleet.db") },
	"postgres": postgres,
}

// postgres starts a server of Debian's package in a directory of its own, reached by
// a socket there.
func postgres(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		require.Tool(t, "initdb")
	}
	bin := found[len(found)-1]
	dir, err := os.MkdirTemp("", "pg") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the test is over
	run := func(name string, args ...string) *exec.Cmd {
		c := exec.Command(filepath.Join(bin, name), args...)
		c.Dir, c.Env = dir, append(os.Environ(), "LC_ALL=C")
		if os.Geteuid() == 0 { // which it refuses to run as
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		return c
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := run("initdb", "-D", dir+"/data", "-U", "caisson", "-A", "trust", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := run("postgres", "-D", dir+"/data", "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	var said bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = server.Wait() // however it ends
		close(ended)
	}()
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // a fast shutdown
		<-ended
	})
	for late := time.After(5 * time.Minute); ; {
		if run("pg_isready", "-q", "-h", dir).Run() == nil {
			return "postgres://caisson@/postgres?host=" + dir
		}
		select {
		case <-ended:
			t.Fatalf("postgres has ended: %s", &said)
		case <-late:
			t.Fatal("postgres does not answer")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

const nobody = 65534
