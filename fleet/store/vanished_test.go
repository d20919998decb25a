// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/storetest"
)

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
