// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"io"

	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pin/tftp/v3"
)

// TestDirectoriesAreNotListed: files are served, directories are not there.
func TestDirectoriesAreNotListed(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub", "kernel"), []byte("k"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := http.FileServerFS(filesOnly{os.DirFS(dir)})
	for path, want := range map[string]int{"/": 404, "/sub/": 404, "/sub": 404, "/sub/kernel": 200, "/none": 404} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

// TestTFTPAnswersForgedRequestsWithLittle sends requests and never acknowledges.
func TestTFTPAnswersForgedRequestsWithLittle(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "boot.ipxe"), make([]byte, 100_000), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &places{from: map[string]int{}}
	s := tftp.NewServer(func(name string, to io.ReaderFrom) error { return p.send(root, name, to) }, nil)
	s.SetTimeout(100 * time.Millisecond)
	s.SetRetries(tftpRetries)
	go func() { _ = s.Serve(l.(*net.UDPConn)) }() // ends with Shutdown
	defer s.Shutdown()
	victim, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer victim.Close()
	const requests = 20
	for range requests {
		if _, err := victim.WriteTo([]byte("\x00\x01boot.ipxe\x00octet\x00"), l.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	got, buffer := 0, make([]byte, 2048)
	for {
		if err := victim.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, _, err := victim.ReadFrom(buffer)
		if err != nil {
			break
		}
		got += n
	}
	if most := tftpPerClient*(tftpRetries+2)*516 + requests*100; got > most || got == 0 {
		t.Errorf("%d bytes for %d requests, want at most %d", got, requests, most)
	}
	if p.total != 0 {
		t.Errorf("%d transfers are still counted", p.total)
	}
}
