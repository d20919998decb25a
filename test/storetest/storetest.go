// SPDX-License-Identifier: Apache-2.0

// Package storetest gives tests the databases that a fleet's service may have: a file of
// SQLite, and a real PostgreSQL. It knows no tables. Only tests import it.
package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/require"
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

// postgres is a server that lasts as long as the test.
func postgres(t testing.TB) string {
	t.Helper()
	return StartPostgres(t).Name
}

// Postgres is a server of Debian's package in a directory of its own, reached by a socket
// there, or by TCP.
type Postgres struct {
	Name string // for store.Open
	TCP  string // the same
	addr string // of this machine alone: no test has another one's
	t    testing.TB
	bin  string
	dir  string
	stop func()
}

// StartPostgres makes a server and starts it.
func StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		require.Tool(t, "initdb")
	}
	dir, err := os.MkdirTemp("", "pg") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the test is over
	addr := fmt.Sprintf("127.%d.%d.%d", 1+rand.N(200), rand.N(256), 1+rand.N(250))
	p := &Postgres{Name: "postgres://caisson@/postgres?host=" + dir, TCP: "postgres://caisson@" + addr + "/postgres?sslmode=disable", addr: addr, t: t, bin: found[len(found)-1], dir: dir}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := p.command("initdb", "-D", dir+"/data", "-U", "caisson", "-A", "trust", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { p.Stop() })
	p.Start()
	return p
}

func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(p.bin, name), args...)
	c.Dir, c.Env = p.dir, append(os.Environ(), "LC_ALL=C")
	if os.Geteuid() == 0 { // which it refuses to run as
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return c
}

// Start starts the server, with what it had, and returns when it answers.
func (p *Postgres) Start() {
	p.t.Helper()
	server := p.command("postgres", "-D", p.dir+"/data", "-k", p.dir, "-c", "listen_addresses="+p.addr, "-c", "fsync=off")
	var said bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = server.Wait() // however it ends
		close(ended)
	}()
	p.stop = sync.OnceFunc(func() {
		_ = server.Process.Signal(syscall.SIGINT) // a fast shutdown
		<-ended
	})
	for late := time.After(5 * time.Minute); ; {
		if p.command("pg_isready", "-q", "-h", p.dir).Run() == nil {
			return
		}
		select {
		case <-ended:
			p.t.Fatalf("postgres has ended: %s", &said)
		case <-late:
			p.t.Fatal("postgres does not answer")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop ends all connections and the server.
func (p *Postgres) Stop() {
	if p.stop != nil {
		p.stop()
	}
}

const nobody = 65534
