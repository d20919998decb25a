// SPDX-License-Identifier: Apache-2.0

package updates

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestServerCounts: what comes by files and by the daemon is counted, heads and all.
func TestServerCounts(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "www"), 0o755), os.Mkdir(filepath.Join(dir, "registry"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "www", "file"), make([]byte, 10_000), 0o644); err != nil {
		t.Fatal(err)
	}
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		c, err := echo.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(c, c)
		_ = c.Close()
	}()
	s, err := serve(dir, echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	resp, err := http.Get("http://" + s.files.Addr().String() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 10_000 {
		t.Fatal(n, err)
	}
	resp.Body.Close()
	files := s.bytes.Load()
	if files < 10_100 || files > 11_000 {
		t.Errorf("%d bytes are counted for a file of 10,000", files)
	}
	c, err := net.Dial("tcp", s.daemon.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, 5000)); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, c); err != nil || n != 5000 {
		t.Fatal(n, err)
	}
	if daemon := s.bytes.Load() - files; daemon != 10_000 {
		t.Errorf("%d bytes are counted for 5,000 there and back", daemon)
	}
}

func TestDigestIn(t *testing.T) {
	want := "sha256:" + strings.Repeat("ab", 32)
	if got, err := digestIn([]byte("caisson: default base: done\n" + want + "  default\n")); err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := digestIn([]byte("caisson: nothing\n")); err == nil {
		t.Errorf("%q is a digest of nothing", got)
	}
}

// TestLongUpdates has everybody but caisson bring a small update: what the node has then is
// the new state, and less went through the network than that has.
func TestLongUpdates(t *testing.T) {
	require.Long(t)
	require.Root(t)
	require.Tool(t, "mmdebstrap", "unshare", "tar")
	h, remove, err := newHost(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(os.MkdirAll(filepath.Join(h.dir, "www"), 0o755), os.Mkdir(filepath.Join(h.dir, "registry"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old", "new"} {
		if _, err := h.run("cp -a /usr/lib/python3 " + name + " && rm -rf " + name + "/dist-packages/mkosi && echo " + name + " >" + name +
			"/state"); err != nil {
			t.Fatal(err)
		}
		if err := h.images(name); err != nil {
			t.Fatal(err)
		}
	}
	// The programs of this checkout are not built for it.
	for _, f := range formats {
		i, err := h.formatted(f)
		if err != nil {
			t.Fatal(err)
		}
		if t.Logf("%+v", i); i.New == 0 || i.New > i.Bytes/2 {
			t.Errorf("%s: %d of %d bytes are new", f.name, i.New, i.Bytes)
		}
	}
	var names []string
	for _, p := range peers {
		if p.node == "" {
			names = append(names, p.name)
		}
	}
	whole, err := os.Stat(filepath.Join(h.dir, "new.tar"))
	if err != nil {
		t.Fatal(err)
	}
	lives, err := h.all(2, names)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lives {
		t.Logf("%+v", l)
		if l.Bytes == 0 || l.Bytes > whole.Size()/2 {
			t.Errorf("%s: %d bytes for one file of a tree of %d", l.Peer, l.Bytes, whole.Size())
		}
	}
}
