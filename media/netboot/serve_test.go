// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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

// TestTransfersAreLogged: the one that came and the one that did not.
func TestTransfersAreLogged(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "boot.ipxe"), []byte("#!ipxe\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	lines := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- Serve(ctx, root, Options{HTTP: "127.0.0.1:0", TFTP: "127.0.0.1:0", Say: func(format string, args ...any) { lines <- fmt.Sprintf(format, args...) }})
	}()
	address := map[string]string{}
	for range 2 {
		_, where, _ := strings.Cut(<-lines, "serving ")
		kind, addr, _ := strings.Cut(where, " on ")
		address[kind] = addr
	}
	resp, err := http.Get("http://" + address["HTTP"] + "/none%1b%5b2J")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	c, err := tftp.NewClient(address["TFTP"])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"boot.ipxe", "other"} {
		if from, err := c.Receive(name, "octet"); err == nil {
			if _, err := from.WriteTo(io.Discard); err != nil {
				t.Error(err)
			}
		}
	}
	var got []string
	for len(got) < 3 {
		select {
		case line := <-lines:
			got = append(got, line)
		case <-time.After(time.Minute):
			t.Fatalf("only %q", got)
		}
	}
	for _, want := range []string{` GET /none\S* 404 19 B `, ` TFTP boot.ipxe sent 7 B `, ` TFTP other no such file 0 B `} {
		if !regexp.MustCompile(want).MatchString(strings.Join(got, "\n")) { // in any order
			t.Errorf("%q, want %q", got, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
