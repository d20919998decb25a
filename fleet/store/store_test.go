// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/storetest"
)

func open(t *testing.T, name string, write bool) *Store {
	t.Helper()
	s, err := Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the test may have closed it
	if write {
		if err := s.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func node(name string, seq uint64) Node {
	at := time.Unix(1790000000, 0).UTC()
	return Node{Name: name, Key: "k", Grade: spec.KeyPinned, KeySince: at, Seq: seq, Boot: "b", Received: at.Add(5 * time.Millisecond), Report: `{"é":"<"}`, Offered: "", Place: "192.0.2.1", Accepted: "k9"}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	require.Slow(t)
	storetest.Each(t, func(t *testing.T, name string) {
		s := open(t, name, true)
		at := time.Unix(1790000000, 0).UTC()
		first := Change{Nodes: []Node{node("a", 1), node("b", spec.MaxSeq)}, Keys: []Key{{ID: "k", Node: "a", Seq: 7, Counted: time.Hour}, {ID: "k", Node: "b"}}, Taken: []Slot{{"g", "a", at, "k", "p", time.Time{}}, {"g", "b", at, "", "q", time.Time{}}},
			Proofs: []Proof{{"a", at}}, Events: []Event{{at, "a", "one"}, {at, "b", "x"}}}
		if err := s.Apply(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		second := Change{Nodes: []Node{node("b", 9)}, Freed: []Slot{{Group: "g", Node: "a"}}, Proofs: []Proof{{"a", at.Add(7)}}, Events: []Event{{at, "a", "two"}}}
		if err := s.Apply(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		if first.Nodes[0].Rev >= second.Nodes[0].Rev {
			t.Errorf("revisions %d, %d", first.Nodes[0].Rev, second.Nodes[0].Rev)
		}
		reader := open(t, name, false)
		all, err := since(t, reader, 0)
		if d := cmp.Diff([]Node{first.Nodes[0], second.Nodes[0]}, all); d != "" || err != nil {
			t.Errorf("%v\n%s", err, d)
		}
		if newer, err := since(t, reader, first.Nodes[0].Rev); err != nil || len(newer) != 1 || newer[0].Name != "b" {
			t.Errorf("%+v, %v", newer, err)
		}
		if k, err := reader.Key(t.Context(), "k"); err != nil || k != (Key{"k", "a", 7, time.Hour, false}) {
			t.Errorf("the key is %+v, %v", k, err)
		}
		if k, err := reader.Key(t.Context(), "other"); err != nil || k != (Key{ID: "other"}) {
			t.Errorf("a new key is %+v, %v", k, err)
		}
		if err := s.Apply(t.Context(), Change{Keys: []Key{{ID: "k2", Node: "a"}, {ID: "k3", Node: "b"}}, Ended: []Key{{ID: "k2", Node: "a"}}}); err != nil {
			t.Fatal(err)
		}
		for id, ended := range map[string]bool{"k": true, "k2": false, "k3": false} {
			if k, err := reader.Key(t.Context(), id); err != nil || k.GivenUp != ended {
				t.Errorf("%s is %+v, %v", id, k, err)
			}
		}
		if r, offered, err := reader.Reports(t.Context(), "a"); r != `{"é":"<"}` || offered != "" || err != nil {
			t.Errorf("%q, %q, %v", r, offered, err)
		}
		if slots, err := reader.Slots(t.Context()); err != nil || !cmp.Equal(slots, []Slot{{"g", "b", at, "", "q", time.Time{}}}) {
			t.Errorf("%+v, %v", slots, err)
		}
		if proofs, err := reader.Proofs(t.Context()); err != nil || !cmp.Equal(proofs, []Proof{{"a", at.Add(7)}}) {
			t.Errorf("%+v, %v", proofs, err)
		}
		if events, err := reader.Events(t.Context(), "a", 9); err != nil || !cmp.Equal(events, []Event{{at, "a", "two"}, {at, "a", "one"}}) {
			t.Errorf("%+v, %v", events, err)
		}
		if err := s.Prune(t.Context(), at.Unix()+1); err != nil {
			t.Fatal(err)
		}
		if events, err := reader.Events(t.Context(), "a", 9); err != nil || events != nil {
			t.Errorf("after a prune: %+v, %v", events, err)
		}
	})
}

// writesAfter makes a store the writer after another: a server may end a session a little
// later than its client.
func writesAfter(t *testing.T, s *Store) (err error) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = s.Write(t.Context()); !errors.Is(err, ErrTaken) {
			break
		}
	}
	return err
}

// Of a node that is forgotten nothing is left, and nothing of others goes with it.
func TestForget(t *testing.T) {
	require.Slow(t)
	storetest.Each(t, func(t *testing.T, name string) {
		s := open(t, name, true)
		at := time.Unix(1790000000, 0).UTC()
		if err := s.Apply(t.Context(), Change{Nodes: []Node{node("a", 1), node("b", 1)}, Keys: []Key{{ID: "k1", Node: "a"}, {ID: "k2", Node: "a"}, {ID: "k3", Node: "b"}},
			Taken: []Slot{{"g", "a", at, "", "", time.Time{}}, {"g", "b", at, "", "", time.Time{}}}, Proofs: []Proof{{"a", at}, {"b", at}}, Events: []Event{{at, "a", "x"}, {at, "b", "y"}}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Forget(t.Context(), []string{"a", "c"}); err != nil {
			t.Fatal(err)
		}
		for table, want := range map[string]string{"nodes": "name", "node_keys": "node", "events": "node", "slots": "node", "slot_proofs": "node"} {
			var left string
			var rows int
			if err := s.db.QueryRow("SELECT COUNT(*), MAX("+want+") FROM "+table).Scan(&rows, &left); err != nil || rows != 1 || left != "b" {
				t.Errorf("%s has %d rows, of %s: %v", table, rows, left, err)
			}
		}
		if err := open(t, name, false).Forget(t.Context(), []string{"b"}); err == nil {
			t.Error("a reader forgets")
		}
	})
}

// One program writes; the next one does as soon as that has gone.
func TestOneWriter(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		first, second := open(t, name, true), open(t, name, false)
		if err := second.Write(t.Context()); !errors.Is(err, ErrTaken) {
			t.Fatalf("a second writer: %v", err)
		}
		if err := second.Apply(t.Context(), Change{}); err == nil {
			t.Error("a reader writes")
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if err := writesAfter(t, second); err != nil {
			t.Fatalf("the first one is gone: %v", err)
		}
		if err := second.Apply(t.Context(), Change{Nodes: []Node{node("a", 1)}}); err != nil {
			t.Error(err)
		}
	})
}

// A change that fails leaves nothing.
func TestAllOrNothing(t *testing.T) {
	require.Slow(t)
	storetest.Each(t, func(t *testing.T, name string) {
		s := open(t, name, true)
		twice := []Slot{{Group: "g", Node: "a"}, {Group: "g", Node: "a"}}
		if err := s.Apply(t.Context(), Change{Nodes: []Node{node("a", 1)}, Taken: twice}); err == nil {
			t.Fatal("a slot was taken twice by one node")
		}
		if all, err := since(t, s, 0); err != nil || all != nil {
			t.Errorf("%+v, %v", all, err)
		}
		if err := s.Apply(t.Context(), Change{Nodes: []Node{node("a", 1)}}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestADatabaseOfALaterRelease(t *testing.T) {
	require.Slow(t)
	storetest.Each(t, func(t *testing.T, name string) {
		s := open(t, name, true)
		if _, err := s.db.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, $1)", true); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		later := open(t, name, false)
		if err := writesAfter(t, later); err == nil || !strings.Contains(err.Error(), "later release") {
			t.Errorf("%v", err)
		}
	})
}

func TestBackup(t *testing.T) {
	s := open(t, "sqlite:"+filepath.Join(t.TempDir(), "fleet.db"), true)
	for i := range 20 {
		if err := s.Apply(t.Context(), Change{Nodes: []Node{node(strconv.Itoa(i), 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(t.TempDir(), "it's a copy.db")
	if err := s.Backup(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(t.Context(), to); err == nil {
		t.Error("a copy was written over")
	}
	// A wrong name is not copied as a fleet without nodes.
	wrong := filepath.Join(t.TempDir(), "wrong.db")
	if s, err := Existing(t.Context(), "sqlite:"+wrong); err == nil {
		_ = s.Close() // the test has failed
		t.Error("a database that is not there was opened")
	}
	if _, err := os.Stat(wrong); err == nil {
		t.Error("it was made")
	}
	if err := open(t, "sqlite:"+wrong, false).Backup(t.Context(), wrong+".copy"); err == nil || !strings.Contains(err.Error(), "not the database of a fleet") {
		t.Errorf("a copy of what has no fleet: %v", err)
	}
	if _, err := os.Stat(wrong + ".copy"); err == nil {
		t.Error("the copy of nothing is there")
	}
	if all, err := since(t, open(t, "sqlite:"+to, true), 0); err != nil || len(all) != 20 {
		t.Errorf("%d nodes in the copy, %v", len(all), err)
	}
	info, err := os.Stat(to)
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"", "sqlite:", "fleet.db", "mysql://x", "/var/lib/fleet.db"} {
		if s, err := Open(t.Context(), name); err == nil {
			_ = s.Close() // the test has failed
			t.Errorf("%q was taken", name)
		}
	}
	// A password is not told.
	if _, err := Open(t.Context(), "postgres://u:geheim@127.0.0.1:9/x?connect_timeout=1"); err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("%v", err)
	}
	odd := filepath.Join(t.TempDir(), "a?b#c%41 d.db")
	s := open(t, "sqlite:"+odd, true)
	if _, err := os.Stat(odd); err != nil || s.Place() != odd {
		t.Errorf("%v, place %s", err, s.Place())
	}
}

// TestTheWriterIsGone: the connection of a writer ends without a word, as that of a machine
// without power. Another one writes soon.
func TestTheWriterIsGone(t *testing.T) {
	require.Root(t) // ends a connection so
	server := storetest.StartPostgres(t)
	gone, next := open(t, server.TCP, true), open(t, server.TCP, false)
	err := gone.writer.Raw(func(driver any) error {
		tcp := driver.(*stdlib.Conn).Conn().PgConn().Conn().(*net.TCPConn)
		raw, err := tcp.SyscallConn()
		if err != nil {
			return err
		}
		var set error
		err = raw.Control(func(fd uintptr) { // what is closed in repair is not told to the other end
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
		})
		return errors.Join(err, set, tcp.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Write(t.Context()); !errors.Is(err, ErrTaken) {
		t.Fatalf("its lock is gone at once: %v", err)
	}
	for end := time.Now().Add(5 * time.Minute); next.Write(t.Context()) != nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its lock stays")
		}
	}
}

// since returns the nodes that were written after a revision.
func since(t *testing.T, s *Store, rev int64) (all []Node, err error) {
	err = s.Since(t.Context(), rev, func(n Node) { all = append(all, n) })
	return all, err
}
