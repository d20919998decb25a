// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each change and each verb is an entry of systemd's journal, whoever asked for it.
func TestRecordsAreJournalEntries(t *testing.T) {
	m := newMachine(t)
	m.root = shortDir(t, m.root)
	socket := m.root + journalSocket
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // the test is over
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	n, err := Open(t.Context(), Options{Root: m.root, By: "ann/sync", Say: t.Logf}, m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close() // the test is over
	if _, err := n.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Freeze("", 0); err != nil {
		t.Fatal(err)
	}
	if err := n.RestoreAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.record("test", field{"why", "two\nlines"})
	var got strings.Builder
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(got.String(), "CAISSON_EVENT=test") { // the last one
		entry := make([]byte, 1<<16)
		size, err := conn.Read(entry)
		if err != nil {
			t.Fatalf("%v after\n%s", err, got.String())
		}
		got.Write(append(bytes.ReplaceAll(entry[:size], []byte("\n"), []byte(" ")), '\n'))
	}
	for _, want := range []string{
		"CAISSON_EVENT=change CAISSON_BY=ann/sync CAISSON_ITEM=sysctl CAISSON_KEY=vm.swappiness CAISSON_FROM=60 CAISSON_TO=10 CAISSON_ACTION=change CAISSON_GENERATION=1 CAISSON_WHY=",
		"SYSLOG_IDENTIFIER=caisson-agent CAISSON_EVENT=asked CAISSON_BY=ann/sync CAISSON_SYNC=current ",
		"CAISSON_EVENT=frozen CAISSON_BY=ann/sync CAISSON_GENERATION=1 CAISSON_WHY=",
		"CAISSON_EVENT=restored CAISSON_BY=ann/sync CAISSON_CHANGES=1 CAISSON_WHY=restore --all",
		"CAISSON_WHY \x09\x00\x00\x00\x00\x00\x00\x00two lines ",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("no entry has %q:\n%s", want, got.String())
		}
	}
}

// shortDir is a directory by a name that a socket's address has room for.
func shortDir(t *testing.T, dir string) string {
	t.Helper()
	link, err := os.MkdirTemp("", "j")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(link) }) // the test is over
	if err := os.Symlink(dir, link+"/r"); err != nil {
		t.Fatal(err)
	}
	return link + "/r"
}
